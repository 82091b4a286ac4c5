"""Kafka's murmur2: the partition that the default partitioner chooses for a key.

Why      A plan that moves keys must know the default partition of each key.
Promise  `home(key, m) = (murmur2(key) & 0x7fffffff) mod m`, as the Java client computes it;
         `homes` is the same for many keys.
Cost     O(length); `homes` hashes all keys of one length together, in numpy.
Paper    Appleby's MurmurHash2 with Kafka's seed.

>>> murmur2(b"21") - 2**32  # as in the Java client's own test, where it is signed
-973932308
>>> home(b"21", 8), homes([b"21", b"foobar", b""], 8).tolist()
(4, [4, 6, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
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
    mix = np.uint32(_MIX)
    words = np.ascontiguousarray(rows[:, :whole]).view("<u4")
    h = np.full(count, _SEED ^ length, dtype=np.uint32)
    for column in range(whole // 4):
        k = words[:, column] * mix
        k = (k ^ k >> np.uint32(24)) * mix
        h = h * mix ^ k
    if whole < length:
        for place in range(whole, length):
            h ^= rows[:, place].astype(np.uint32) << np.uint32(8 * (place - whole))
        h *= mix
    h = (h ^ h >> np.uint32(13)) * mix
    return h ^ h >> np.uint32(15)
