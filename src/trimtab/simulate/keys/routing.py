"""Where the records of each key go: a routing table over a hash.

Promise  A key in the table goes to its partition there; any other to its home, which is what
         Kafka's default partitioner gives, or to the partition of its bucket, if there are buckets.
         Values do not change.
Cost     Some 5 ns per record for keys below 2^20; a binary search in the table for larger ones.

>>> routing = Routing(table={5: 1})
>>> keys, hashes = np.array([4, 5, 6]), np.array([40, 50, 60], np.uint32)
>>> routing.of(keys, hashes, np.zeros(3, np.uint16)).tolist()
[0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

_DENSE = 1 << 20
_NOWHERE = -1
Ints = NDArray[np.int64]
Hashes = NDArray[np.uint32]
Partitions = NDArray[np.uint16]


def other_hashes(hashes: Hashes, number: int) -> Hashes:
    """Hash functions beside Kafka's, by number from 1: murmur3's last step on its hash.

    >>> first, second = (int(other_hashes(np.array([7], np.uint32), n)[0]) for n in (1, 2))
    >>> first != second
    True
    """
    h = hashes ^ np.uint32(number * 0x9E3779B1 & 0xFFFFFFFF)
    h = (h ^ h >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    h = (h ^ h >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return h ^ h >> np.uint32(16)


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The partition of every key.

    Attributes:
        table: The explicit routes, by the number of the key.
        buckets: The partition of each bucket of keys; None if other keys go to their homes.
    """

    table: Mapping[int, int] = field(default_factory=dict)
    buckets: Partitions | None = None

    def of(self, keys: Ints, hashes: Hashes, homes: Partitions) -> Partitions:
        """The partitions of some keys, whose hashes and homes are known."""
        base = homes if self.buckets is None else self.buckets[self.bucket_of(hashes)]
        if not self.table:
            return base
        found = self._dense.take(keys, mode="clip")
        if self._large[0].size:
            large = np.flatnonzero(keys >= _DENSE)
            numbers, partitions = self._large
            at = np.searchsorted(numbers, keys[large]).clip(0, numbers.size - 1)
            found[large] = np.where(numbers[at] == keys[large], partitions[at], _NOWHERE)
        return np.where(found == _NOWHERE, base, found).astype(np.uint16)

    def bucket_of(self, hashes: Hashes) -> Hashes:
        """The bucket of each key."""
        if self.buckets is None:
            raise ValueError("this routing has no buckets")
        return bucket_numbers(hashes, self.buckets.size)

    @property
    def entries(self) -> int:
        """The memory it takes: routes in the table, and buckets."""
        return len(self.table) + (0 if self.buckets is None else self.buckets.size)

    @cached_property
    def _dense(self) -> NDArray[np.int32]:
        """The routes of keys below 2^20; the last one stands for all keys beyond."""
        small = [key for key in self.table if key < _DENSE]
        dense = np.full(max(small, default=-1) + 2, _NOWHERE, np.int32)
        dense[small] = [self.table[key] for key in small]
        return dense

    @cached_property
    def _large(self) -> tuple[Ints, NDArray[np.int32]]:
        """The routes of other keys, in ascending order of the keys."""
        large = sorted(key for key in self.table if key >= _DENSE)
        return np.array(large, np.int64), np.array([self.table[key] for key in large], np.int32)


def bucket_numbers(hashes: Hashes, buckets: int) -> Hashes:
    """The bucket of each key, by a hash that is independent of its home."""
    return other_hashes(hashes, 1) % np.uint32(buckets)
