"""Delays of many records in little memory: a histogram of fine buckets that grow with the delay.

Why      A simulation of minutes has more records than one wants to keep, and needs percentiles
         of any set of its windows.
Promise  Delays are whole nanoseconds. Up to 4 095 ns each has its own bucket; above, a bucket is
         at most 1/2048 of its delays wide. A percentile is by nearest rank, reported as the middle
         of its bucket: at most 0.025 % off. Number, sum, maximum and the share within the limit
         are exact. Histograms add up.
Cost     Some 10 ns per delay; some 0.4 MB for delays of up to a second.

>>> delays = DelayHistogram.of(np.array([0, 10, 20, 30, 4_000_000]), within_ns=20)
>>> delays.quantile_s(0.5), round(1e3 * delays.quantile_s(1.0), 3), delays.within
(2e-08, 4.0, 3)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

_DIGITS = 11  # binary digits of a delay that its bucket keeps, after the first
_SHIFT = 52 - _DIGITS  # of a double's mantissa
_FIRST = 1023 << _DIGITS  # the bucket of 1 ns, before it is moved to 1
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class DelayHistogram:
    """The delays of some records.

    Attributes:
        buckets: The number of delays in each bucket, from 0 ns on.
        records: How many delays there are.
        sum_ns: Their sum.
        max_ns: The largest; 0 if there is none.
        within: How many are at most the limit that was given.
    """

    buckets: Ints
    records: int
    sum_ns: int
    max_ns: int
    within: int

    @classmethod
    def empty(cls) -> Self:
        """No delays."""
        return cls(buckets=np.zeros(0, np.int64), records=0, sum_ns=0, max_ns=0, within=0)

    @classmethod
    def of(cls, delays_ns: Ints, *, within_ns: int = 0) -> Self:
        """Counts delays; none may be negative."""
        if not delays_ns.size:
            return cls.empty()
        places = delays_ns.astype(np.float64).view(np.int64) >> _SHIFT  # exponent and digits
        np.subtract(places, _FIRST - 1, out=places)
        np.maximum(places, 0, out=places)  # a delay of 0 has the exponent 0
        return cls(
            buckets=np.bincount(places),
            records=delays_ns.size,
            sum_ns=int(delays_ns.sum()),
            max_ns=int(delays_ns.max()),
            within=int(np.count_nonzero(delays_ns <= within_ns)),
        )

    @classmethod
    def total(cls, parts: Iterable[DelayHistogram]) -> Self:
        """The delays of all parts."""
        listed = list(parts)
        buckets = np.zeros(max((part.buckets.size for part in listed), default=0), np.int64)
        for part in listed:
            buckets[: part.buckets.size] += part.buckets
        return cls(
            buckets=buckets,
            records=sum(part.records for part in listed),
            sum_ns=sum(part.sum_ns for part in listed),
            max_ns=max((part.max_ns for part in listed), default=0),
            within=sum(part.within for part in listed),
        )

    def quantile_s(self, share: float) -> float:
        """The nearest-rank quantile, in seconds; nan without records."""
        return self.quantiles_s((share,))[0]

    def quantiles_s(self, shares: Sequence[float]) -> list[float]:
        """Nearest-rank quantiles, in seconds; nan without records."""
        if not self.records:
            return [math.nan] * len(shares)
        up_to = np.cumsum(self.buckets)
        ranks = [max(1, math.ceil(share * self.records)) for share in shares]
        places = np.searchsorted(up_to, ranks)
        return [min(middle, self.max_ns) * 1e-9 for middle in _middles_ns(places).tolist()]

    def curve_s(self, points: int = 400) -> tuple[list[float], list[float]]:
        """Delays in seconds and the share of records at or below them, for a plot."""
        if not self.records:
            return [], []
        used = np.flatnonzero(self.buckets)
        shares = np.cumsum(self.buckets[used]) / self.records
        if used.size > points:
            # Evenly spaced over the shares and over the tail, where 1 − share falls by decades.
            wanted = np.concatenate(
                (np.linspace(0, 1, points // 2), 1 - np.logspace(-6, 0, points // 2))
            )
            kept = np.unique(np.searchsorted(shares, np.sort(wanted)).clip(0, used.size - 1))
            used, shares = used[kept], shares[kept]
        return (_middles_ns(used) * 1e-9).tolist(), shares.tolist()

    @property
    def mean_s(self) -> float:
        """The mean, in seconds; nan without records."""
        return self.sum_ns / self.records * 1e-9 if self.records else math.nan

    @property
    def within_share(self) -> float:
        """The share of the delays that are at most the limit; nan without records."""
        return self.within / self.records if self.records else math.nan


def _middles_ns(places: NDArray[np.intp]) -> NDArray[np.float64]:
    """The middle of each bucket: of the smallest and the largest whole delay in it."""
    wide = places.astype(np.int64)
    low = np.ceil(_edges(wide))
    high = np.ceil(_edges(wide + 1)) - 1
    middles: NDArray[np.float64] = (low + np.maximum(low, high)) / 2
    return middles


def _edges(places: Ints) -> NDArray[np.float64]:
    """The lower edge of each bucket; bucket 0 has only the delay 0."""
    edges = ((places + (_FIRST - 1)) << _SHIFT).view(np.float64)
    return np.where(places > 0, edges, 0.0)
