"""Write rates of partitions over time, and the arrivals that follow them.

Why      Planners are evaluated on changing rates: ramps as in Ezzeddine et al., random walks as
         in Landau et al. The same schedule is used by simulators and to load a real topic.
Promise  A `RateSchedule` is piecewise linear, its integral exact, and a rate at a jump is the one
         after it. A stream or a series of arrivals is a pure function of its arguments; a longer
         one begins with the shorter one; the arrivals of a partition do not depend on the others.
Cost     `rate_at` and `cumulative` O(log segments) and O(segments); arrivals O(1) each, vectorised.
Paper    Landau et al., section VI-B, eq. 15 (differs: loads are also clamped at the capacity,
         which the published figures require); Ezzeddine et al., workload 1.

>>> ramp = RateSchedule.ramp([0.0], [10.0], duration_s=4.0, end_s=2.0)
>>> ramp.rate_at(0, 1.0), ramp.cumulative(0, 1.0), ramp.records
(5.0, 2.5, 30.0)
>>> workload = ezzeddine_workload_1()
>>> [workload.rate_at(0, t) for t in (0, 130, 300, 480)], workload.total_rate_at(420)
([15.0, 25.0, 60.0, 15.0], 255.0)
>>> landau_stream(seed=1, partitions=3, iterations=2, delta=10, integer=True).tolist()
[[47, 51, 76], [56, 41, 69], [63, 50, 64]]
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

LANDAU_ITERATION_S = 30.0

_DRAWS = 1 << 13  # per step; a fixed number, so that no sum depends on the caller's block size


class Segment(NamedTuple):
    """The rate changes linearly from `first` at `start_s` to `last` at the end of the segment."""

    start_s: float
    first: float
    last: float


@dataclass(frozen=True, slots=True)
class RateSchedule:
    """A rate over time for each partition, from 0 to `duration_s`; it is 0 outside."""

    duration_s: float
    partitions: tuple[tuple[Segment, ...], ...]

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < math.inf:
            raise ValueError(f"duration_s must be positive and finite, not {self.duration_s}")
        for partition, segments in enumerate(self.partitions):
            starts = [segment.start_s for segment in segments]
            if not starts or starts[0] != 0 or starts[-1] >= self.duration_s:
                raise ValueError(f"partition {partition}: segments must cover 0 … duration_s")
            if any(later <= earlier for earlier, later in pairwise(starts)):
                raise ValueError(f"partition {partition}: segments must follow one another")
            if not all(0 <= rate < math.inf for _, *rates in segments for rate in rates):
                raise ValueError(f"partition {partition}: a rate is negative or not finite")

    @classmethod
    def constant(cls, rates: Sequence[float], *, duration_s: float) -> RateSchedule:
        """Returns a schedule with a constant rate for each partition."""
        return cls(duration_s, tuple((Segment(0.0, rate, rate),) for rate in rates))

    @classmethod
    def ramp(
        cls,
        first: Sequence[float],
        last: Sequence[float],
        *,
        duration_s: float,
        start_s: float = 0.0,
        end_s: float | None = None,
    ) -> RateSchedule:
        """Returns a schedule that goes from `first` to `last` between `start_s` and `end_s`."""
        end = duration_s if end_s is None else end_s
        if not 0 <= start_s < end <= duration_s:
            raise ValueError(f"a ramp from {start_s} s to {end} s does not fit {duration_s} s")

        def segments(low: float, high: float) -> tuple[Segment, ...]:
            before, during = Segment(0.0, low, low), Segment(start_s, low, high)
            after = Segment(end, high, high)
            return (before,) * (start_s > 0) + (during,) + (after,) * (end < duration_s)

        pairs = zip(first, last, strict=True)
        return cls(duration_s, tuple(segments(low, high) for low, high in pairs))

    @classmethod
    def from_steps(cls, step_s: float, loads: ArrayLike) -> RateSchedule:
        """Returns a schedule that holds each row of `loads`, one rate per partition, for a step."""
        rows = np.asarray(loads, dtype=np.float64)
        if rows.ndim != 2 or 0 in rows.shape:
            raise ValueError(f"loads must be steps × partitions, not of shape {rows.shape}")
        starts = [step_s * step for step in range(len(rows))]
        return cls(
            step_s * len(rows),
            tuple(
                tuple(Segment(start, rate, rate) for start, rate in zip(starts, rates, strict=True))
                for rates in rows.T.tolist()
            ),
        )

    def scaled(self, factor: float) -> RateSchedule:
        """Returns the schedule with every rate multiplied by `factor`."""
        return RateSchedule(
            self.duration_s,
            tuple(
                tuple(Segment(at, first * factor, last * factor) for at, first, last in segments)
                for segments in self.partitions
            ),
        )

    def stretched(self, factor: float) -> RateSchedule:
        """Returns the schedule with every time multiplied by `factor` and the same rates."""
        return RateSchedule(
            self.duration_s * factor,
            tuple(
                tuple(Segment(at * factor, first, last) for at, first, last in segments)
                for segments in self.partitions
            ),
        )

    def rate_at(self, partition: int, t_s: float) -> float:
        """Returns a partition's rate at a time."""
        if not 0 <= t_s < self.duration_s:
            return 0.0
        segments = self.partitions[partition]
        index = bisect_right(segments, t_s, key=lambda segment: segment.start_s) - 1
        start_s, first, last = segments[index]
        return first + (last - first) * (t_s - start_s) / (self._end_s(partition, index) - start_s)

    def total_rate_at(self, t_s: float) -> float:
        """Returns the sum of all partitions' rates at a time."""
        return math.fsum(self.rate_at(p, t_s) for p in range(len(self.partitions)))

    def cumulative(self, partition: int, t_s: float) -> float:
        """Returns how much a partition has received by a time: the integral of its rate."""
        parts = []
        for index, (start_s, first, last) in enumerate(self.partitions[partition]):
            length = self._end_s(partition, index) - start_s
            spent = min(max(t_s - start_s, 0.0), length)
            parts.append(first * spent + (last - first) / length * spent * spent / 2)
        return math.fsum(parts)

    @property
    def records(self) -> float:
        """The number of records of all partitions over the whole schedule."""
        return math.fsum(self.cumulative(p, self.duration_s) for p in range(len(self.partitions)))

    def _end_s(self, partition: int, index: int) -> float:
        segments = self.partitions[partition]
        return segments[index + 1].start_s if index + 1 < len(segments) else self.duration_s


def ezzeddine_workload_1() -> RateSchedule:
    """Returns 5 partitions over 600 s at 15/s; four rise to 60/s: two, then one, then one."""
    low, high, end_s = 15.0, 60.0, 480.0

    def climbing_from(start_s: float) -> tuple[Segment, ...]:
        return (
            Segment(0.0, low, low),
            Segment(start_s, low, high),  # by 1/s each second
            Segment(start_s + high - low, high, high),
            Segment(end_s, low, low),
        )

    climbing = tuple(climbing_from(start_s) for start_s in (120.0, 120.0, 240.0, 360.0))
    return RateSchedule(600.0, (*climbing, (Segment(0.0, low, low),)))


def landau_stream(
    *,
    seed: int,
    partitions: int,
    iterations: int = 500,
    delta: float,
    capacity: float = 100,
    start: Literal["uniform"] | float = "uniform",
    cap: Literal["capacity"] | float | None = "capacity",
    integer: bool = False,
) -> NDArray[Any]:
    """Returns a bounded random walk per partition: row 0 is the initial state, then the iterations.

    A step is uniform within ± `delta` percent of the capacity. Loads stay within 0 and `cap`, or
    have no upper limit with `cap=None`. A number as `start` is a fraction of the capacity.
    `integer` draws whole numbers, with inclusive bounds.
    """
    step = delta * capacity / 100
    if not (step >= 0 and 0 < capacity < math.inf and partitions >= 1 and iterations >= 0):
        raise ValueError(
            "delta and iterations must not be negative, capacity and partitions must be positive: "
            f"{delta}, {iterations}, {capacity}, {partitions}"
        )
    if start != "uniform" and not 0 <= start <= 1:
        raise ValueError(f"start must be 'uniform' or a fraction of the capacity, not {start}")
    limit = capacity if cap == "capacity" else cap
    if limit is not None and not limit > 0:
        raise ValueError(f"cap must be positive, not {limit}")
    level = None if start == "uniform" else start * capacity
    whole = all(float(x).is_integer() for x in (step, capacity, limit, level) if x is not None)
    if integer and not whole:
        raise ValueError(
            "whole loads need a whole step, capacity, cap and start, not "
            f"{step}, {capacity}, {limit} and {start}"
        )
    rng = np.random.default_rng(seed)

    def draws(low: float, high: float, shape: tuple[int, ...]) -> NDArray[Any]:
        if integer:
            return rng.integers(int(low), int(high), size=shape, endpoint=True)
        return rng.uniform(low, high, size=shape)

    loads = np.empty((iterations + 1, partitions), dtype=np.int64 if integer else np.float64)
    loads[0] = draws(0, capacity, (partitions,)) if level is None else level
    # One draw for all, row by row: by iteration, then by partition.
    for k, phi in enumerate(draws(-step, step, (iterations, partitions)), start=1):
        loads[k] = np.clip(loads[k - 1] + phi, 0, limit)
    return loads


def unit_poisson(rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yields the arrivals of a Poisson process of rate 1, endlessly."""
    last = 0.0
    while True:
        arrivals = last + np.cumsum(rng.standard_exponential(_DRAWS))
        last = float(arrivals[-1])
        yield arrivals


def unit_spaced(rng: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Yields arrivals exactly 1 apart, endlessly; the first is drawn from [0, 1)."""
    first = rng.random()
    count = 0
    while True:
        yield first + np.arange(count, count + _DRAWS, dtype=np.float64)
        count += _DRAWS


def arrivals(
    schedule: RateSchedule, partition: int, *, seed: int, poisson: bool
) -> NDArray[np.float64]:
    """Returns the times at which a partition's records arrive."""
    pieces = list(_arrivals(schedule, partition, seed=seed, poisson=poisson))
    return np.concatenate(pieces)


class ArrivalBlock(NamedTuple):
    """A block of arrivals in the order of time, with their partitions."""

    times_s: NDArray[np.float64]
    partitions: NDArray[np.int64]


def arrival_blocks(
    schedule: RateSchedule, *, seed: int, poisson: bool, block_records: int = 1 << 16
) -> Iterator[ArrivalBlock]:
    """Yields the arrivals of all partitions merged in the order of time; ties by partition."""
    if block_records < 1:
        raise ValueError(f"a block must have at least 1 record, not {block_records}")
    merged = Tap(_merged(schedule, seed=seed, poisson=poisson))
    while (block := merged.take(block_records)).size:
        yield ArrivalBlock(block["time_s"], block["partition"])


class Tap:
    """Takes any number of elements at a time from an iterator of arrays."""

    __slots__ = ("_arrays", "_rest")

    def __init__(self, arrays: Iterator[NDArray[Any]]) -> None:
        self._arrays = arrays
        self._rest: NDArray[Any] | None = None

    def take(self, count: int) -> NDArray[Any]:
        """Returns the next `count` elements, or fewer at the end."""
        rest = next(self._arrays, np.empty(0)) if self._rest is None else self._rest
        pieces, got = [rest], rest.size
        while got < count and (piece := next(self._arrays, None)) is not None:
            pieces.append(piece)
            got += piece.size
        together = np.concatenate(pieces) if len(pieces) > 1 else rest
        self._rest = together[count:]
        return together[:count]


def _arrivals(
    schedule: RateSchedule, partition: int, *, seed: int, poisson: bool
) -> Iterator[NDArray[np.float64]]:
    """Yields a partition's arrival times.

    They are the times at which the integral of the rate reaches the points of a process of rate 1,
    which is evenly spaced or Poisson.

    Within a segment that began at `first` and changes by `slope`, an amount `a` has arrived after
    the time `t` with `first · t + slope · t² / 2 = a`; its root is computed without cancellation.
    """
    segments = schedule.partitions[partition]
    starts, first, last = (np.array(column) for column in zip(*segments, strict=True))
    ends = np.append(starts[1:], schedule.duration_s)
    slope = (last - first) / (ends - starts)
    before = np.array([schedule.cumulative(partition, start) for start in starts.tolist()])
    total = schedule.cumulative(partition, schedule.duration_s)
    rng = np.random.default_rng([seed, partition])
    for points in unit_poisson(rng) if poisson else unit_spaced(rng):
        due = points[: np.searchsorted(points, total)]
        # Of segments that begin with the same amount, all but the last have rate 0.
        at = np.searchsorted(before, due, side="right") - 1
        amount = due - before[at]
        ahead = first[at] + np.sqrt(np.maximum(first[at] ** 2 + 2 * slope[at] * amount, 0.0))
        spent = np.divide(2 * amount, ahead, out=np.zeros_like(amount), where=ahead > 0)
        yield np.minimum(starts[at] + spent, ends[at])
        if due.size < points.size:
            return


def _merged(schedule: RateSchedule, *, seed: int, poisson: bool) -> Iterator[NDArray[Any]]:
    """Yields all partitions' arrivals in the order of time, as (time_s, partition)."""
    count = len(schedule.partitions)
    sources = [_arrivals(schedule, p, seed=seed, poisson=poisson) for p in range(count)]
    waiting: dict[int, NDArray[np.float64]] = {p: np.empty(0) for p in range(count)}
    while waiting:
        for p in [p for p, times in waiting.items() if not times.size]:
            times = next((times for times in sources[p] if times.size), None)
            if times is None:
                del waiting[p]
            else:
                waiting[p] = times
        if not waiting:
            return
        # After the earliest end of the loaded blocks, records not loaded yet could come first.
        horizon = min(float(times[-1]) for times in waiting.values())
        ready = {p: int(np.searchsorted(t, horizon, side="right")) for p, t in waiting.items()}
        block = np.empty(
            sum(ready.values()), dtype=[("time_s", np.float64), ("partition", np.int64)]
        )
        block["time_s"] = np.concatenate([waiting[p][:due] for p, due in ready.items()])
        block["partition"] = np.repeat(list(ready), list(ready.values()))
        waiting = {p: waiting[p][due:] for p, due in ready.items()}
        yield block[np.argsort(block["time_s"], kind="stable")]
