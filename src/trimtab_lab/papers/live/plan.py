"""What a live comparison runs: strategies, workloads, and how a group is scaled without us.

Promise  Pure. Every strategy of a comparison sends the same records at the same times to consumers
         with the same service time; only who scales and who deals partitions differs. One strategy
         needs another's result: sticky dealing is given the replicas that ours had, second by
         second.
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
"""100 records a second, before what reading and committing cost."""

REPORTED_RATE, SLA_S = 95.0, 5.0
VALUE_BYTES, LINGER_MS = 100, 50.0
INTERVAL_S, MAX_QUIET_S, WINDOW_S = 1.0, SLA_S, 5.0
LATE_AT_MOST = 0.005
"""A run counts when no more of its records than that were sent late; else it is run again."""

WAIT_S, BATCH_BYTES = 0.2, 4000
"""The short cycle: commands are looked at five times a second, a batch is some 30 records."""

KEDA_THRESHOLD, HPA_PERIOD_S, HPA_STABILISES_S = 10, 15.0, 300.0
LANDAU_PARTITIONS, LANDAU_ITERATIONS, LANDAU_STEP_S, LEAD_IN_S = 8, 20, 15.0, 60.0

# ---------------------------------------------------------------- loads in bytes/s

SERVICE_BYTES_S = 120_000.0
"""What a consumer of a walk in bytes/s handles: the paper's real rate C̄, small enough for many
consumers on one machine."""

CAPACITY_BYTES_S = SERVICE_BYTES_S * 5 / 6
"""The packing capacity C = 5/6 C̄: iterations of 30 s, of which a move may take 5 (section VI-C)."""

SIZE_MEANS = (500, 1000, 2000, 4000)
"""Mean value size of the partitions in turn; every record's is uniform from half to 3/2 of it."""

BYTES_STEP_S = BYTES_WINDOW_S = BYTES_QUIET_S = 30.0
"""The paper's iteration, and its window of measurement."""

BYTES_ITERATIONS = 12
BYTES_CLIMB_S, BYTES_HOLD_S = 120.0, 60.0
"""How the first rates are reached: slowly, as a window of 30 s is late by half of it, and then held
until that window knows them and backlogs of the climb are read. Only what follows is judged."""

BYTES_BATCH = 30_000
"""A quarter of a second's work for a consumer, as the batch of some 30 records is for others."""


class Strategy(StrEnum):
    """Who scales a group and deals its partitions."""

    OURS = "trim"
    LL_FFD = "ll-ffd"
    LL_FFD_GROUP = "ll-ffd-group"
    MWF = "mwf"
    STICKY = "cooperative-sticky"
    KEDA = "keda-lag"
    FIXED = "fixed"

    @property
    def controlled(self) -> bool:
        """Whether `trimtab run` decides."""
        return self in (Strategy.OURS, Strategy.LL_FFD, Strategy.LL_FFD_GROUP, Strategy.MWF)

    @property
    def directed(self) -> bool:
        """Whether our controller gives and takes single partitions; else Kafka's protocol does."""
        return self.controlled and self is not Strategy.LL_FFD_GROUP

    @property
    def planner(self) -> str:
        """The planner of a controlled strategy."""
        return "ll-ffd" if self is Strategy.LL_FFD_GROUP else str(self)


class LiveWorkload(StrEnum):
    """What is sent."""

    EZZEDDINE_1 = "workload-1"
    LANDAU_5 = "delta-5"
    LANDAU_25 = "delta-25"
    BYTES_5 = "bytes-5"
    BYTES_25 = "bytes-25"
    SHORT = "short"
    GIVEN = "given"  # by the run itself

    @property
    def in_bytes(self) -> bool:
        """Whether records differ in size, and consumers are limited by bytes/s."""
        return self in (LiveWorkload.BYTES_5, LiveWorkload.BYTES_25)

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """Those that are compared on it."""
        left_out = {Strategy.LL_FFD_GROUP}
        if self is LiveWorkload.EZZEDDINE_1:
            left_out = set()
        elif self.in_bytes:
            left_out |= {Strategy.KEDA}  # it knows lag only, in records
        return tuple(s for s in Strategy if s not in left_out)

    def schedule(self, seed: int, *, stretch: float = 1.0) -> RateSchedule:
        """The rates of its partitions in records/s; `stretch` multiplies all times."""
        if self is LiveWorkload.EZZEDDINE_1:
            return ezzeddine_workload_1().stretched(stretch)
        if self is LiveWorkload.SHORT:
            return _short().stretched(stretch)
        if self is LiveWorkload.GIVEN:
            raise ValueError("the rates of this workload are those of its run")
        delta = 5 if self in (LiveWorkload.LANDAU_5, LiveWorkload.BYTES_5) else 25
        # A partition never asks for more than a consumer reads.
        if self.in_bytes:
            walk = _walk(seed, BYTES_ITERATIONS, delta, capacity=0.8 * CAPACITY_BYTES_S)
            steps = RateSchedule.from_steps(
                BYTES_STEP_S, walk / np.array(size_means(LANDAU_PARTITIONS))
            )
            return _led_in(steps, BYTES_CLIMB_S, BYTES_HOLD_S).stretched(stretch)
        walk = _walk(seed, LANDAU_ITERATIONS, delta, capacity=80.0)
        return _led_in(RateSchedule.from_steps(LANDAU_STEP_S, walk), LEAD_IN_S).stretched(stretch)


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
    """The same records with sizes of their own, by the mean of their partition.

    >>> steady = RateSchedule.constant([50.0, 0.0, 0.0, 50.0], duration_s=1.0)
    >>> [block] = sized(partitioned(steady, seed=1, value_bytes=0), seed=1)
    >>> small, large = (block.value_bytes[block.partitions == p] for p in (0, 3))
    >>> bool(small.min() >= 250), bool(small.max() <= 750 < 2000 <= large.min())
    (True, True)
    """
    rng = np.random.default_rng(seed)
    for block in blocks:
        if block.partitions is None:
            raise ValueError("records without a partition have no size of their own")
        means = np.array(SIZE_MEANS)[block.partitions % len(SIZE_MEANS)]
        sizes = (means * rng.uniform(0.5, 1.5, len(block))).astype(np.int64)
        yield replace(block, value_bytes=sizes)


def _led_in(schedule: RateSchedule, climb_s: float, hold_s: float = 0.0) -> RateSchedule:
    """The same after a climb from nothing, since a group begins with one consumer."""
    begins_s = climb_s + hold_s

    def led(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
        first = segments[0].first
        held = (Segment(climb_s, first, first),) if hold_s else ()
        later = (Segment(begins_s + s.start_s, s.first, s.last) for s in segments)
        return (Segment(0.0, 0.0, first), *held, *later)

    return RateSchedule(begins_s + schedule.duration_s, tuple(map(led, schedule.partitions)))


def _short() -> RateSchedule:
    """15 s of eight partitions, two of which are as much as one consumer can carry of such.

    Two consumers carry them apart, with a fifth to spare. Kafka deals by number and gives both to
    one, whether its two members come at once (0, 2, 4, 6) or one by one (0, 1, 2, 3).
    """
    return RateSchedule.constant(
        [62.0 if partition in (0, 2) else 2.0 for partition in range(8)], duration_s=15.0
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """One strategy on one schedule.

    `rates` for `duration_s` are what is sent by the workload that is given, after a climb from
    nothing that takes half of the time. `most` is how many consumers a controller may have, and
    `max_quiet_s` how long it waits before it looks whether fewer would do. Where the run is
    `settled`, the rates that the schedule begins with are sent beforehand, until a controller has
    dealt the partitions so that its group can carry them.
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
        """What its kept result is called."""
        stretched = "" if self.stretch == 1 else f"-x{self.stretch:g}"
        return f"{self.workload}-{self.strategy}-{self.seed}{stretched}"

    @property
    def schedule(self) -> RateSchedule:
        """What is sent."""
        if self.workload is LiveWorkload.GIVEN:
            nothing, climbed_s = [0.0] * len(self.rates), self.duration_s / 2
            return RateSchedule.ramp(
                nothing, self.rates, duration_s=self.duration_s, end_s=climbed_s
            )
        return self.workload.schedule(self.seed, stretch=self.stretch)

    def due(self, schedule: RateSchedule) -> Iterator[DueRecords]:
        """The records of a schedule, with the sizes that they have in this run."""
        blocks = partitioned(schedule, seed=self.seed, value_bytes=VALUE_BYTES)
        return sized(blocks, seed=self.seed) if self.workload.in_bytes else blocks

    @property
    def unit(self) -> Unit:
        """What the controller counts: bytes where they limit consumers and the planner can."""
        by_rate = self.strategy in (Strategy.OURS, Strategy.MWF)
        return Unit.BYTES_S if self.workload.in_bytes and by_rate else Unit.RECORDS_S

    @property
    def capacity(self) -> float:
        """What the controller takes a consumer to carry, in its unit."""
        if not self.workload.in_bytes:
            return REPORTED_RATE
        if self.unit is Unit.BYTES_S:
            return CAPACITY_BYTES_S
        return CAPACITY_BYTES_S / harmonic_mean(SIZE_MEANS)  # by the mean record of equal parts

    @property
    def unjudged_s(self) -> float:
        """How long after its beginning the load is sent without being judged."""
        led_in_s = BYTES_CLIMB_S + BYTES_HOLD_S if self.workload.in_bytes else 0.0
        return led_in_s * self.stretch

    @property
    def held_to_s(self) -> float | None:
        """The latency that the controller is told to hold; Landau's planner knows none."""
        blind = self.strategy is Strategy.MWF or self.unit is Unit.BYTES_S
        return None if blind else self.sla_s

    @property
    def window_s(self) -> float:
        """The window of the rates that the controller decides by."""
        return BYTES_WINDOW_S if self.workload.in_bytes else WINDOW_S

    @property
    def batch_bytes(self) -> int:
        """When a consumer's batch is full."""
        return BYTES_BATCH if self.workload.in_bytes else BATCH_BYTES

    @property
    def opening(self) -> tuple[float, ...]:
        """The rates of its partitions as it begins."""
        return tuple(segments[0].first for segments in self.schedule.partitions)

    def settings(self) -> dict[str, Any]:
        """All that its result depends on, besides the code and the machine."""
        service: dict[str, Any] = {"service_ms": SERVICE_MS}
        if self.workload.in_bytes:
            service = {
                "service_bytes_s": SERVICE_BYTES_S,
                "size_means": list(SIZE_MEANS),
                "unjudged_s": self.unjudged_s,
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
    """All runs, each after the one that it needs; a needed one takes part unasked."""
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
    """Those of the known strategies that a list with commas names; all when there is no list.

    >>> strategies_of("mwf, trim,mwf", Strategy)
    (<Strategy.OURS: 'trim'>, <Strategy.MWF: 'mwf'>)
    """
    every = tuple(dict.fromkeys(known))
    if text is None:
        return every
    asked = {name.strip() for name in text.split(",")}
    if strange := sorted(asked - set(map(str, every))):
        raise ConfigError(
            f'There is no strategy "{strange[0]}" here.', hint=f"There are {', '.join(every)}."
        )
    return tuple(strategy for strategy in every if str(strategy) in asked)


# ---------------------------------------------------------------- scaling without a controller

Timeline = tuple[tuple[float, int], ...]
"""Seconds since the load began, and how many consumers there were from then on."""


def changes(samples: Iterable[tuple[float, int]]) -> Timeline:
    """A timeline of samples, without those that say nothing new.

    >>> changes([(0.0, 1), (0.5, 1), (1.0, 2), (1.5, 2)])
    ((0.0, 1), (1.0, 2))
    """
    kept: list[tuple[float, int]] = []
    for t_s, count in samples:
        if not kept or kept[-1][1] != count:
            kept.append((t_s, count))
    return tuple(kept)


def replicas_at(timeline: Timeline, t_s: float) -> int:
    """How many consumers a timeline has at a time; its first number before it begins."""
    return next((n for at, n in reversed(timeline) if at <= t_s), timeline[0][1])


def replica_minutes(timeline: Timeline, until_s: float) -> float:
    """What a timeline costs from 0 to `until_s`.

    >>> replica_minutes(((0.0, 1), (60.0, 3)), 120.0)
    4.0
    """
    cuts = [*(max(0.0, min(t, until_s)) for t, _ in timeline), until_s]
    spans = zip(cuts, cuts[1:], timeline, strict=False)
    return sum((end - start) * n for start, end, (_, n) in spans) / 60


class HorizontalScaler:
    """KEDA's rule ⌈lag / threshold⌉, with the habits of the autoscaler that it steers.

    That one looks every 15 s, and never has fewer than it was asked for in the last five minutes.
    """

    def __init__(self, most: int, *, threshold: int = KEDA_THRESHOLD) -> None:
        self._most = most
        self._threshold = threshold
        self._asked: list[tuple[float, int]] = []
        self._wanted = 1

    def wanted(self, t_s: float, lag: int) -> int:
        """How many consumers there should be now."""
        if not self._asked or t_s - self._asked[-1][0] >= HPA_PERIOD_S:
            asked = max(1, min(self._most, math.ceil(lag / self._threshold)))
            self._asked.append((t_s, asked))
            self._wanted = max(n for at, n in self._asked if at > t_s - HPA_STABILISES_S)
        return self._wanted


def unexplained(decisions: Iterable[Mapping[str, Any]]) -> int:
    """How many decisions say nothing of why."""
    return sum(not str(decision.get("reason") or "").strip() for decision in decisions)
