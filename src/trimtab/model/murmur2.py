"""Kafka's murmur2: the partition that the default partitioner chooses for a key.

Why      A plan that moves keys must know the default partition of each key.
Promise  `home(key, m) = (murmur2(key) & 0x7fffffff) mod m`, as the Java client computes it;
         `homes` is the same for many keys, `decimal_hashes` hashes numbers as decimal ASCII.
Cost     O(length); many keys of one length are hashed together, in numpy: a number takes some
         40 ns, since words of four digits are looked up instead of written out.
Paper    Appleby's MurmurHash2 with Kafka's seed.

>>> murmur2(b"21") - 2**32  # as in the Java client's own test, where it is signed
-973932308
>>> home(b"21", 8), homes([b"21", b"foobar", b""], 8).tolist()
(4, [4, 6, 1])
>>> import numpy as np
>>> int(decimal_hashes(np.array([21]))[0]) == murmur2(b"21")
True
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """Returns the unsigned 32-bit hash of some bytes."""
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _MIX & _MASK
        k = (k ^ k >> 24) * _MIX & _MASK
        h = h * _MIX & _MASK ^ k
    if whole < length:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _MIX & _MASK
    h = (h ^ h >> 13) * _MIX & _MASK
    return h ^ h >> 15


def home(key: bytes, partitions: int) -> int:
    """Returns the partition of a key among `partitions`."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def homes(keys: Sequence[bytes], partitions: int) -> NDArray[np.int64]:
    """Returns the partition of each key, in the order given."""
    import numpy as np

    lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    found = np.empty(len(keys), dtype=np.int64)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        joined = b"".join(keys[i] for i in where.tolist())
        hashed = _murmur2_rows(np.frombuffer(joined, np.uint8).reshape(len(where), length))
        found[where] = (hashed & np.uint32(0x7FFFFFFF)) % partitions
    return found


def _murmur2_rows(rows: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Returns the hash of each row; uint32 arithmetic wraps around as the hash requires."""
    import numpy as np

    count, length = rows.shape
    whole = length & ~3
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    tail = np.zeros(count, dtype=np.uint32)
    for place in range(whole, length):
        tail |= rows[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
    return _mixed((words[:, column] for column in range(whole // 4)), tail, count, length)


def _mixed(
    words: Iterable[NDArray[np.uint32]], tail: NDArray[np.uint32], count: int, length: int
) -> NDArray[np.uint32]:
    """Returns the hashes of `count` keys of one length from their words and what is left over."""
    import numpy as np

    mix = np.uint32(_MIX)
    h = np.full(count, _SEED ^ length, dtype=np.uint32)
    for word in words:
        k = word * mix
        k = (k ^ k >> np.uint32(24)) * mix
        h = h * mix ^ k
    if length & 3:
        h = (h ^ tail) * mix
    h = (h ^ h >> np.uint32(13)) * mix
    return h ^ h >> np.uint32(15)


def decimal_hashes(given: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Returns the unsigned hash of each number, 0 or above, written as decimal ASCII."""
    import numpy as np

    numbers: NDArray[np.integer] = given
    if numbers.size and int(numbers.min()) < 0:
        raise ValueError(f"numbers must not be negative: {int(numbers.min())}")
    powers = 10 ** np.arange(1, 19, dtype=np.int64)
    lengths = np.searchsorted(powers, numbers, side="right") + 1
    if numbers.size and int(numbers.max()) < 2**32:
        numbers = numbers.astype(np.uint32)  # divided several times faster
    found = np.empty(numbers.size, dtype=np.uint32)
    for length in np.unique(lengths).tolist():
        where = np.flatnonzero(lengths == length)
        found[where] = _decimal_rows(numbers[where], length)
    return found


def _decimal_rows(numbers: NDArray[np.integer], length: int) -> NDArray[np.uint32]:
    """Returns the hashes of numbers of `length` digits."""
    left_over = length & 3
    leading = numbers // 10**left_over if left_over else numbers
    tails = _digit_words(left_over)[numbers - leading * 10**left_over]
    words = []
    for _ in range(length // 4):
        shorter = leading // 10_000
        words.append(_digit_words(4)[leading - shorter * 10_000])
        leading = shorter
    return _mixed(reversed(words), tails, numbers.size, length)


@cache
def _digit_words(digits: int) -> NDArray[np.uint32]:
    """Returns, for each number of so many digits, its digits as a little-endian word."""
    import numpy as np

    rest = np.arange(10**digits, dtype=np.uint32)
    words = np.zeros(rest.size, dtype=np.uint32)
    for place in reversed(range(digits)):
        rest, digit = np.divmod(rest, np.uint32(10))
        words |= (digit + np.uint32(ord("0"))) << np.uint32(8 * place)
    return words
