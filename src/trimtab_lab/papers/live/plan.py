"""The plan of a live comparison: strategies, workloads, and scaling without our controller.

Promise  Pure. Every strategy of a comparison sends the same records at the same times to consumers
         with the same service time; only scaling and assignment of partitions differ. One strategy
         needs another's result: cooperative-sticky gets the replicas that ours had at each second.
Paper    Ezzeddine et al., section 4.1; Landau et al., sections VI-B, VI-C and VI-F.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from statistics import harmonic_mean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.apply.consumers.cycle import SETTLE_S
from trimtab.errors import ConfigError
from trimtab.model.load import Unit
from trimtab.workload.due import DueRecords, partitioned
from trimtab.workload.rate_streams import (
    RateSchedule,
    Segment,
    ezzeddine_workload_1,
    landau_stream,
)

SERVICE_MS = 10.0
"""100 records a second, without the cost of reading and committing."""

REPORTED_RATE, SLA_S = 95.0, 5.0
VALUE_BYTES, LINGER_MS = 100, 50.0
INTERVAL_S, MAX_QUIET_S, WINDOW_S = 1.0, SLA_S, 5.0
LATE_AT_MOST = 0.005
"""Largest share of records sent late; with more, the run is repeated."""

WAIT_S, BATCH_BYTES = 0.2, 4000
"""A short cycle: commands are checked five times a second, a batch has about 30 records."""

KEDA_THRESHOLD, HPA_PERIOD_S, HPA_STABILISES_S = 10, 15.0, 300.0
LANDAU_PARTITIONS, LANDAU_ITERATIONS, LANDAU_STEP_S, LEAD_IN_S = 8, 20, 15.0, 60.0

# ---------------------------------------------------------------- loads in bytes/s

SERVICE_BYTES_S = 120_000.0
"""Bytes/s that a consumer handles in a walk in bytes/s: the paper's real rate C̄, small enough for
many consumers on one machine."""

CAPACITY_BYTES_S = SERVICE_BYTES_S * 5 / 6
"""The packing capacity C = 5/6 C̄: a move may take 5 s of an iteration of 30 s (section VI-C)."""

SIZE_MEANS = (500, 1000, 2000, 4000)
"""Mean value sizes, used by the partitions in turn; sizes are uniform from half to 3/2 of it."""

BYTES_STEP_S = BYTES_WINDOW_S = BYTES_QUIET_S = 30.0
"""The paper's iteration and measurement window."""

BYTES_ITERATIONS = 12
BYTES_CLIMB_S, BYTES_HOLD_S = 120.0, 60.0
"""The first rates are reached slowly, because a window of 30 s lags by half of it, and then held
until the window shows them and backlogs are read. Only what follows is evaluated."""

BYTES_BATCH = 30_000
"""About 0.25 s of work for a consumer, like the batch of about 30 records in other workloads."""


class Strategy(StrEnum):
    """How a group is scaled and its partitions are assigned."""

    OURS = "trim"
    LL_FFD = "ll-ffd"
    LL_FFD_GROUP = "ll-ffd-group"
    MWF = "mwf"
    STICKY = "cooperative-sticky"
    KEDA = "keda-lag"
    FIXED = "fixed"

    @property
    def controlled(self) -> bool:
        """Whether `trimtab run` makes the decisions."""
        return self in (Strategy.OURS, Strategy.LL_FFD, Strategy.LL_FFD_GROUP, Strategy.MWF)

    @property
    def directed(self) -> bool:
        """Whether our controller moves single partitions; otherwise Kafka's group protocol does."""
        return self.controlled and self is not Strategy.LL_FFD_GROUP

    @property
    def planner(self) -> str:
        """The planner of a controlled strategy."""
        return "ll-ffd" if self is Strategy.LL_FFD_GROUP else str(self)


class LiveWorkload(StrEnum):
    """The load that is sent."""

    EZZEDDINE_1 = "workload-1"
    LANDAU_5 = "delta-5"
    LANDAU_25 = "delta-25"
    BYTES_5 = "bytes-5"
    BYTES_25 = "bytes-25"
    SHORT = "short"
    GIVEN = "given"  # the rates are a field of the run

    @property
    def in_bytes(self) -> bool:
        """Whether records differ in size, and consumers are limited by bytes/s."""
        return self in (LiveWorkload.BYTES_5, LiveWorkload.BYTES_25)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The strategies that are compared on this workload."""
        left_out = {Strategy.LL_FFD_GROUP}
        if self is LiveWorkload.EZZEDDINE_1:
            left_out = set()
        elif self.in_bytes:
            left_out |= {Strategy.KEDA}  # it uses only the lag in records
        return tuple(s for s in Strategy if s not in left_out)

    def schedule(self, seed: int, *, stretch: float = 1.0) -> RateSchedule:
        """The rates of its partitions in records/s; `stretch` multiplies all times."""
        if self is LiveWorkload.EZZEDDINE_1:
            return ezzeddine_workload_1().stretched(stretch)
        if self is LiveWorkload.SHORT:
            return _short().stretched(stretch)
        if self is LiveWorkload.GIVEN:
            raise ValueError("workload given has no schedule of its own: use LiveRun.schedule")
        delta = 5 if self in (LiveWorkload.LANDAU_5, LiveWorkload.BYTES_5) else 25
        # A partition's rate never exceeds the rate of a consumer.
        if self.in_bytes:
            walk = _walk(seed, BYTES_ITERATIONS, delta, capacity=0.8 * CAPACITY_BYTES_S)
            steps = RateSchedule.from_steps(
                BYTES_STEP_S, walk / np.array(size_means(LANDAU_PARTITIONS))
            )
            return _with_ramp(steps, BYTES_CLIMB_S, BYTES_HOLD_S).stretched(stretch)
        walk = _walk(seed, LANDAU_ITERATIONS, delta, capacity=80.0)
        return _with_ramp(RateSchedule.from_steps(LANDAU_STEP_S, walk), LEAD_IN_S).stretched(
            stretch
        )


def _walk(seed: int, iterations: int, delta: float, *, capacity: float) -> NDArray[Any]:
    return landau_stream(
        seed=seed,
        partitions=LANDAU_PARTITIONS,
        iterations=iterations - 1,
        delta=delta,
        capacity=capacity,
    )


def size_means(partitions: int) -> tuple[int, ...]:
    """The mean value size of each partition, in bytes.

    >>> size_means(5)
    (500, 1000, 2000, 4000, 500)
    """
    return tuple(SIZE_MEANS[p % len(SIZE_MEANS)] for p in range(partitions))


def sized(blocks: Iterable[DueRecords], *, seed: int) -> Iterator[DueRecords]:
    """The same records with random sizes around the mean of their partition.

    >>> steady = RateSchedule.constant([50.0, 0.0, 0.0, 50.0], duration_s=1.0)
    >>> [block] = sized(partitioned(steady, seed=1, value_bytes=0), seed=1)
    >>> small, large = (block.value_bytes[block.partitions == p] for p in (0, 3))
    >>> bool(small.min() >= 250), bool(small.max() <= 750 < 2000 <= large.min())
    (True, True)
    """
    rng = np.random.default_rng(seed)
    for block in blocks:
        if block.partitions is None:
            raise ValueError("sizes can only be set for records that have a partition")
        means = np.array(SIZE_MEANS)[block.partitions % len(SIZE_MEANS)]
        sizes = (means * rng.uniform(0.5, 1.5, len(block))).astype(np.int64)
        yield replace(block, value_bytes=sizes)


def _with_ramp(schedule: RateSchedule, climb_s: float, hold_s: float = 0.0) -> RateSchedule:
    """The same schedule after a ramp from 0, because a group starts with one consumer."""
    begins_s = climb_s + hold_s

    def ramped(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        first = segments[0].first
        held = (Segment(climb_s, first, first),) if hold_s else ()
        later = (Segment(begins_s + s.start_s, s.first, s.last) for s in segments)
        return (Segment(0.0, 0.0, first), *held, *later)

    return RateSchedule(begins_s + schedule.duration_s, tuple(map(ramped, schedule.partitions)))


def _short() -> RateSchedule:
    """15 s of eight partitions, two of which are together too much for one consumer.

    Two consumers that take one of the two each have a fifth of their capacity to spare. Kafka
    assigns by number and gives both to one member, whether the members join together (0, 2, 4, 6)
    or one after the other (0, 1, 2, 3).
    """
    return RateSchedule.constant(
        [62.0 if partition in (0, 2) else 2.0 for partition in range(8)], duration_s=15.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One strategy on one schedule.

    Workload `given` sends `rates` for `duration_s`, after a ramp from 0 that takes half of that
    time. `most` is the largest number of consumers a controller may use, and `max_quiet_s` how long
    it waits before it tries to use fewer. If `settled` is set, the schedule's first rates are sent
    beforehand, until the controller has assigned the partitions so that the group can handle them.
    """

    strategy: Strategy
    workload: LiveWorkload
    seed: int = 0
    stretch: float = 1.0
    sla_s: float = SLA_S
    most: int | None = None
    max_quiet_s: float = MAX_QUIET_S
    settled: bool = False
    rates: tuple[float, ...] = ()
    duration_s: float = 0.0

    @property
    def key(self) -> str:
        """The name of its kept result."""
        stretched = "" if self.stretch == 1 else f"-x{self.stretch:g}"
        return f"{self.workload}-{self.strategy}-{self.seed}{stretched}"

    @property
    def schedule(self) -> RateSchedule:
        """The rates that are sent."""
        if self.workload is LiveWorkload.GIVEN:
            nothing, climbed_s = [0.0] * len(self.rates), self.duration_s / 2
            return RateSchedule.ramp(
                nothing, self.rates, duration_s=self.duration_s, end_s=climbed_s
            )
        return self.workload.schedule(self.seed, stretch=self.stretch)

    def due(self, schedule: RateSchedule) -> Iterator[DueRecords]:
        """The records of a schedule, with the sizes used in this run."""
        blocks = partitioned(schedule, seed=self.seed, value_bytes=VALUE_BYTES)
        return sized(blocks, seed=self.seed) if self.workload.in_bytes else blocks

    @property
    def unit(self) -> Unit:
        """The controller's unit: bytes if they limit consumers and the planner supports it."""
        by_rate = self.strategy in (Strategy.OURS, Strategy.MWF)
        return Unit.BYTES_S if self.workload.in_bytes and by_rate else Unit.RECORDS_S

    @property
    def capacity(self) -> float:
        """The capacity of a consumer that the controller assumes, in its unit."""
        if not self.workload.in_bytes:
            return REPORTED_RATE
        if self.unit is Unit.BYTES_S:
            return CAPACITY_BYTES_S
        return CAPACITY_BYTES_S / harmonic_mean(SIZE_MEANS)  # mean record if bytes/s are equal

    @property
    def lead_in_s(self) -> float:
        """How long the load is sent at the start without being evaluated."""
        led_in_s = BYTES_CLIMB_S + BYTES_HOLD_S if self.workload.in_bytes else 0.0
        return led_in_s * self.stretch

    @property
    def held_to_s(self) -> float | None:
        """The controller's latency target; None for Landau's planner, which has no target."""
        blind = self.strategy is Strategy.MWF or self.unit is Unit.BYTES_S
        return None if blind else self.sla_s

    @property
    def window_s(self) -> float:
        """The window over which the controller's rates are measured."""
        return BYTES_WINDOW_S if self.workload.in_bytes else WINDOW_S

    @property
    def batch_bytes(self) -> int:
        """The size at which a consumer's batch is full."""
        return BYTES_BATCH if self.workload.in_bytes else BATCH_BYTES

    @property
    def opening(self) -> tuple[float, ...]:
        """The rates of its partitions at the start."""
        return tuple(segments[0].first for segments in self.schedule.partitions)

    def settings(self) -> dict[str, Any]:
        """Everything its result depends on, apart from the code and the machine."""
        service: dict[str, Any] = {"service_ms": SERVICE_MS}
        if self.workload.in_bytes:
            service = {
                "service_bytes_s": SERVICE_BYTES_S,
                "size_means": list(SIZE_MEANS),
                "unjudged_s": self.lead_in_s,
            }
        return {
            **asdict(self),
            **service,
            "unit": str(self.unit),
            "capacity": self.capacity,
            "interval_s": INTERVAL_S,
            "window_s": self.window_s,
            "wait_s": WAIT_S,
            "batch_bytes": self.batch_bytes,
            "settle_s": SETTLE_S,
        }


def runs_of(
    workloads: Iterable[LiveWorkload],
    strategies: Sequence[Strategy],
    *,
    seeds: int,
    stretch: float = 1.0,
) -> tuple[LiveRun, ...]:
    """All runs, each after the run it depends on, which is added if it was not requested."""
    wanted = set(strategies) | ({Strategy.OURS} if Strategy.STICKY in strategies else set())
    return tuple(
        LiveRun(
            strategy=strategy,
            workload=workload,
            seed=seed,
            stretch=stretch,
            max_quiet_s=BYTES_QUIET_S if workload.in_bytes else MAX_QUIET_S,
        )
        for workload in workloads
        for seed in range(seeds)
        for strategy in workload.strategies
        if strategy in wanted
    )


def strategies_of(text: str | None, known: Iterable[Strategy]) -> tuple[Strategy, ...]:
    """The known strategies that a comma-separated list names; all if there is no list.

    >>> strategies_of("mwf, trim,mwf", Strategy)
    (<Strategy.OURS: 'trim'>, <Strategy.MWF: 'mwf'>)
    """
    every = tuple(dict.fromkeys(known))
    if text is None:
        return every
    asked = {name.strip() for name in text.split(",")}
    if unknown := sorted(asked - set(map(str, every))):
        raise ConfigError(
            f'This experiment has no strategy "{unknown[0]}".',
            hint=f"Strategies: {', '.join(every)}.",
        )
    return tuple(strategy for strategy in every if str(strategy) in asked)


# ---------------------------------------------------------------- scaling without a controller

Timeline = tuple[tuple[float, int], ...]
"""Pairs of seconds since the start of the load, and the number of consumers from then on."""


def changes(samples: Iterable[tuple[float, int]]) -> Timeline:
    """A timeline from samples, without repeated values.

    >>> changes([(0.0, 1), (0.5, 1), (1.0, 2), (1.5, 2)])
    ((0.0, 1), (1.0, 2))
    """
    kept: list[tuple[float, int]] = []
    for t_s, count in samples:
        if not kept or kept[-1][1] != count:
            kept.append((t_s, count))
    return tuple(kept)


def replicas_at(timeline: Timeline, t_s: float) -> int:
    """The number of consumers at a time; the first number before the timeline starts."""
    return next((n for at, n in reversed(timeline) if at <= t_s), timeline[0][1])


def replica_minutes(timeline: Timeline, until_s: float) -> float:
    """The replica-minutes of a timeline from 0 to `until_s`.

    >>> replica_minutes(((0.0, 1), (60.0, 3)), 120.0)
    4.0
    """
    cuts = [*(max(0.0, min(t, until_s)) for t, _ in timeline), until_s]
    spans = zip(cuts, cuts[1:], timeline, strict=False)
    return sum((end - start) * n for start, end, (_, n) in spans) / 60


class HorizontalScaler:
    """KEDA's rule ⌈lag / threshold⌉, with the behaviour of the autoscaler that it drives.

    It checks every 15 s, and never has fewer replicas than requested in the last five minutes.
    """

    def __init__(self, most: int, *, threshold: int = KEDA_THRESHOLD) -> None:
        self._most = most
        self._threshold = threshold
        self._asked: list[tuple[float, int]] = []
        self._wanted = 1

    def wanted(self, t_s: float, lag: int) -> int:
        """The number of consumers wanted now."""
        if not self._asked or t_s - self._asked[-1][0] >= HPA_PERIOD_S:
            asked = max(1, min(self._most, math.ceil(lag / self._threshold)))
            self._asked.append((t_s, asked))
            self._wanted = max(n for at, n in self._asked if at > t_s - HPA_STABILISES_S)
        return self._wanted


def unexplained(decisions: Iterable[Mapping[str, Any]]) -> int:
    """The number of decisions without a reason."""
    return sum(not str(decision.get("reason") or "").strip() for decision in decisions)
