"""Arrivals of keyed records for a simulation: in whole nanoseconds, hashed, and cut at windows.

Why      Every policy must see the same records, hashed once; and each block belongs to one window.
Promise  The records are those of the stream, in its order, whatever the size of the blocks. A time
         is rounded down to a nanosecond. Window `w` has the times from `w·W` up to, and without,
         `(w + 1)·W`.
Cost     Some 100 ns per record with the generator; the hashes of the first 2^20 keys are kept.

>>> from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
>>> stream = KeyStream(rate_s=1000.0, seed=8, distribution=ZipfMandelbrot(keys=100))
>>> blocks = list(arrivals(stream, duration_s=1.0, window_ns=400_000_000, partitions=8))
>>> [(block.window, block.keys.size) for block in blocks]
[(0, 401), (1, 398), (2, 193)]
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.model.murmur2 import decimal_hashes
from trimtab.workload.key_streams import KeyBlock

NANOS = 1_000_000_000
BLOCK_RECORDS = 1 << 17
_KEPT_HASHES = 1 << 20
_POSITIVE = np.uint32(0x7FFFFFFF)
Ints = NDArray[np.int64]


class KeySource(Protocol):
    """Records in order of time: a `KeyStream`, or anything else with keys that are numbers."""

    @property
    def rate_s(self) -> float:
        """Records per second, as far as known beforehand."""
        ...

    def blocks(self, duration_s: float, *, block_records: int) -> Iterator[KeyBlock]:
        """Yields the records before `duration_s`, `block_records` at a time."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedArrivals:
    """Records of one window, in order of arrival.

    Attributes:
        window: The number of the window, from 0.
        times_ns: When they arrive.
        keys: Numbers of their keys; the record key is the number as decimal ASCII.
        hashes: Kafka's murmur2 of the keys, without its sign.
        homes: The partitions that Kafka's default partitioner gives.
    """

    window: int
    times_ns: Ints
    keys: Ints
    hashes: NDArray[np.uint32]
    homes: NDArray[np.uint16]


class KeyHashes:
    """Hashes of keys, kept for the keys with small numbers, which are most of the records."""

    def __init__(self, kept: int = _KEPT_HASHES) -> None:
        self._kept = _first_hashes(kept)

    def of(self, keys: Ints) -> NDArray[np.uint32]:
        """Kafka's murmur2 of each key, without its sign."""
        found = self._kept.take(keys, mode="clip")
        large = np.flatnonzero(keys >= self._kept.size)
        if large.size:
            found[large] = decimal_hashes(keys[large]) & _POSITIVE
        return found


@cache
def _first_hashes(count: int) -> NDArray[np.uint32]:
    """The hashes of the keys below `count`, for all simulations of a process."""
    return decimal_hashes(np.arange(count, dtype=np.int64)) & _POSITIVE


def arrivals(
    stream: KeySource,
    *,
    duration_s: float,
    window_ns: int,
    partitions: int,
    block_records: int = BLOCK_RECORDS,
    hashes: KeyHashes | None = None,
) -> Iterator[KeyedArrivals]:
    """Yields the records of a stream; no block goes beyond the end of a window."""
    if window_ns < 1:
        raise ValueError(f"a window must be at least 1 ns long, not {window_ns}")
    known = hashes or KeyHashes()
    for block in stream.blocks(duration_s, block_records=block_records):
        times = (block.times_s * NANOS).astype(np.int64)
        first, last = int(times[0]) // window_ns, int(times[-1]) // window_ns
        edges = np.arange(first + 1, last + 1, dtype=np.int64) * window_ns
        cuts = [0, *np.searchsorted(times, edges).tolist(), times.size]
        hashed = known.of(block.keys)
        homes = (hashed % np.uint32(partitions)).astype(np.uint16)
        for window in range(first, last + 1):
            part = slice(cuts[window - first], cuts[window - first + 1])
            if part.start < part.stop:
                yield KeyedArrivals(
                    window=window,
                    times_ns=times[part],
                    keys=block.keys[part],
                    hashes=hashed[part],
                    homes=homes[part],
                )
