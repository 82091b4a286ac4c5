"""Latency distributions that are computed without listing single samples.

Why      A run has one latency per byte. Queues in a steady state give samples on straight lines
         (`Ramps`), a simulation in steps gives integer numbers of steps (`Delays`): both can be
         counted in closed form.
Promise  `Ramps` gives percentiles (linear interpolation) to within rounding, over all samples or
         over those above 0. `Delays` is weighted by amount.
Cost     Ramps: about 80 bisection steps of O(lines) per percentile, for any number of samples.
Paper    Landau et al., eqs 22 and 27: a queue's latency is `max(slope · i + start, 0)` for its
         i-th unit. Ezzeddine et al., section 4: the share of events within the SLA.

>>> ramps = Ramps.of([Ramp(slope=-1.0, start=3.0, samples=6)])      # 3 2 1 0 0 0
>>> ramps.samples, ramps.positive, ramps.percentile(50), ramps.percentile(50, positive=False)
(6, 3, 2.0, 0.5)
>>> Delays(step_s=0.5, amounts=np.array([80.0, 0.0, 20.0])).share_within(0.5)
0.8
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_HALVINGS = 80  # relative to the longest latency; far below the precision needed
_ROUNDING = 1e-9


class Ramp(NamedTuple):
    """The latencies `max(slope · i + start, 0)` for i from 0 to `samples` − 1, in seconds."""

    slope: float
    start: float
    samples: int


@dataclass(frozen=True, slots=True, eq=False)
class Ramps:
    """All latencies of a run, as straight lines."""

    slopes: NDArray[np.float64]
    starts: NDArray[np.float64]
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, ramps: Iterable[Ramp]) -> Ramps:
        """Returns the distribution of all samples on these lines."""
        rows = [ramp for ramp in ramps if ramp.samples > 0]
        return cls(
            np.array([r.slope for r in rows], dtype=np.float64),
            np.array([r.start for r in rows], dtype=np.float64),
            np.array([r.samples for r in rows], dtype=np.int64),
        )

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return int(self.counts.sum())

    @property
    def positive(self) -> int:
        """How many samples are above 0."""
        return self.samples - self.at_most(0.0)

    @property
    def maximum(self) -> float:
        """The longest latency; 0 without samples."""
        ends = self.starts + self.slopes * (self.counts - 1)
        return max(0.0, float(np.max(np.maximum(self.starts, ends), initial=0.0)))

    def at_most(self, latency_s: float) -> int:
        """The number of samples at or below a latency: a count of integers below a root."""
        if latency_s < 0:
            return 0
        room = latency_s - self.starts
        level = self.slopes == 0
        root = np.clip(room / np.where(level, 1.0, self.slopes), -1.0, self.counts)
        rising = np.floor(root) + 1
        falling = self.counts - np.ceil(root)
        flat = np.where(room >= 0, self.counts, 0)
        found = np.where(level, flat, np.where(self.slopes > 0, rising, falling))
        return int(np.clip(found, 0, self.counts).sum())

    def percentile(self, percent: float, *, positive: bool = True) -> float:
        """A percentile by linear interpolation, over the samples above 0 or over all.

        NaN if there is no such sample.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile is between 0 and 100, not {percent}")
        below = self.at_most(0.0) if positive else 0
        count = self.samples - below
        if count == 0:
            return math.nan
        rank = percent / 100 * (count - 1)
        low = self._ordered(below + math.floor(rank))
        high = self._ordered(below + math.ceil(rank))
        return low + (high - low) * (rank - math.floor(rank))

    def counts_between(self, edges_s: Sequence[float]) -> list[int]:
        """The number of samples above each edge and at or below the next one: a histogram."""
        below = [self.at_most(edge) for edge in edges_s]
        return [later - earlier for earlier, later in pairwise(below)]

    def _ordered(self, index: int) -> float:
        """The sample at position `index` in ascending order."""
        low, high = 0.0, self.maximum
        if self.at_most(low) > index:
            return low
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if middle in (low, high):
                break
            low, high = (low, middle) if self.at_most(middle) > index else (middle, high)
        return self._nearest(high)

    def _nearest(self, latency_s: float) -> float:
        """The sample nearest to a latency, without the rounding of the bisection."""
        level = self.slopes == 0
        root = np.where(level, 0.0, (latency_s - self.starts) / np.where(level, 1.0, self.slopes))
        near = self.starts + self.slopes * np.clip(np.round(root), 0, self.counts - 1)
        return max(0.0, float(near[np.argmin(np.abs(near - latency_s))]))


@dataclass(frozen=True, slots=True, eq=False)
class Delays:
    """Amounts by the number of steps they waited."""

    step_s: float
    amounts: NDArray[np.float64]

    @property
    def total(self) -> float:
        """The whole amount."""
        return float(self.amounts.sum())

    @property
    def maximum_s(self) -> float:
        """The longest delay; 0 if there is no amount."""
        waited = np.flatnonzero(self.amounts)
        return self._seconds(int(waited[-1])) if waited.size else 0.0

    def share_within(self, limit_s: float) -> float:
        """The share of the amount that waited at most `limit_s`; 1 if there is no amount."""
        if not self.total:
            return 1.0
        steps = math.floor(limit_s / self.step_s + _ROUNDING)
        # Computed from the late amount, so that a share of exactly 1 means that nothing was late.
        return 1.0 - float(self.amounts[steps + 1 :].sum()) / self.total

    def percentile_s(self, percent: float) -> float:
        """The lowest delay that `percent` of the amount does not exceed; NaN without an amount."""
        if not 0 <= percent <= 100:
            raise ValueError(f"a percentile is between 0 and 100, not {percent}")
        if not self.total:
            return math.nan
        reached = np.cumsum(self.amounts)
        wanted = percent / 100 * float(reached[-1])
        return self._seconds(int(np.searchsorted(reached, wanted * (1 - _ROUNDING))))

    def _seconds(self, steps: int) -> float:
        return round(steps * self.step_s, 9)
