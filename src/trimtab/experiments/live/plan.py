"""What a live comparison runs: strategies, workloads, and how a group is scaled without us.

Promise  Pure. Every strategy of a comparison sends the same records at the same times to consumers
         with the same service time; only who scales and who deals partitions differs. One strategy
         needs another's result: sticky dealing is given the replicas that ours had, second by
         second.
Paper    Ezzeddine et al., section 4.1; Landau et al., sections VI-B and VI-F.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from trimtab.apply.cycle import SETTLE_S
from trimtab.errors import ConfigError
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
INTERVAL_S, MAX_QUIET_S = 1.0, SLA_S
LATE_AT_MOST = 0.005
"""A run counts when no more of its records than that were sent late; else it is run again."""

WAIT_S, BATCH_BYTES = 0.2, 4000
"""The short cycle: commands are looked at five times a second, a batch is some 30 records."""

KEDA_THRESHOLD, HPA_PERIOD_S, HPA_STABILISES_S = 10, 15.0, 300.0
LANDAU_PARTITIONS, LANDAU_ITERATIONS, LANDAU_STEP_S, LEAD_IN_S = 8, 20, 15.0, 60.0


class Strategy(StrEnum):
    """Who scales a group and deals its partitions."""

    OURS = "trim"
    LL_FFD = "ll-ffd"
    MWF = "mwf"
    STICKY = "cooperative-sticky"
    KEDA = "keda-lag"
    FIXED = "fixed"

    @property
    def directed(self) -> bool:
        """Whether our controller gives and takes partitions; else Kafka's own protocol does."""
        return self in (Strategy.OURS, Strategy.LL_FFD, Strategy.MWF)


class Workload(StrEnum):
    """What is sent."""

    EZZEDDINE_1 = "workload-1"
    LANDAU_5 = "delta-5"
    LANDAU_25 = "delta-25"
    SHORT = "short"
    GIVEN = "given"  # by the run itself

    def schedule(self, seed: int, *, stretch: float = 1.0) -> RateSchedule:
        """The rates of its partitions; `stretch` multiplies all times."""
        if self is Workload.EZZEDDINE_1:
            return ezzeddine_workload_1().stretched(stretch)
        if self is Workload.SHORT:
            return _short().stretched(stretch)
        if self is Workload.GIVEN:
            raise ValueError("this workload is what a run says")
        walk = landau_stream(
            seed=seed,
            partitions=LANDAU_PARTITIONS,
            iterations=LANDAU_ITERATIONS - 1,
            delta=5 if self is Workload.LANDAU_5 else 25,
            capacity=80.0,  # a partition never asks for more than a consumer reads
        )
        return _led_in(RateSchedule.from_steps(LANDAU_STEP_S, walk)).stretched(stretch)


def _led_in(schedule: RateSchedule) -> RateSchedule:
    """The same after a climb from nothing: a group begins with one consumer, which is no news."""
    return RateSchedule(
        LEAD_IN_S + schedule.duration_s,
        tuple(
            (
                Segment(0.0, 0.0, segments[0].first),
                *(Segment(LEAD_IN_S + s.start_s, s.first, s.last) for s in segments),
            )
            for segments in schedule.partitions
        ),
    )


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
    workload: Workload
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
        if self.workload is Workload.GIVEN:
            nothing, climbed_s = [0.0] * len(self.rates), self.duration_s / 2
            return RateSchedule.ramp(
                nothing, self.rates, duration_s=self.duration_s, end_s=climbed_s
            )
        return self.workload.schedule(self.seed, stretch=self.stretch)

    @property
    def opening(self) -> tuple[float, ...]:
        """The rates of its partitions as it begins."""
        return tuple(segments[0].first for segments in self.schedule.partitions)

    def settings(self) -> dict[str, Any]:
        """All that its result depends on, besides the code and the machine."""
        return {
            **asdict(self),
            "service_ms": SERVICE_MS,
            "reported_rate": REPORTED_RATE,
            "interval_s": INTERVAL_S,
            "wait_s": WAIT_S,
            "batch_bytes": BATCH_BYTES,
            "settle_s": SETTLE_S,
        }


def runs_of(
    workloads: Iterable[Workload],
    strategies: Sequence[Strategy],
    *,
    seeds: int,
    stretch: float = 1.0,
) -> tuple[LiveRun, ...]:
    """All runs, each after the one that it needs; a needed one takes part unasked."""
    wanted = set(strategies) | ({Strategy.OURS} if Strategy.STICKY in strategies else set())
    return tuple(
        LiveRun(strategy=strategy, workload=workload, seed=seed, stretch=stretch)
        for workload in workloads
        for seed in range(seeds)
        for strategy in Strategy
        if strategy in wanted
    )


def strategies_of(text: str | None) -> tuple[Strategy, ...]:
    """The strategies in a list with commas; all when there is none."""
    if text is None:
        return tuple(Strategy)
    try:
        return tuple(dict.fromkeys(Strategy(name.strip()) for name in text.split(",")))
    except ValueError as error:
        raise ConfigError(
            f"{error}.".replace("Strategy", "strategy"), hint=f"There are {', '.join(Strategy)}."
        ) from error


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
