"""What a planner is: one Protocol per layer, and what it may be told."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits


class SortOrder(StrEnum):
    """In which order the fits without sorting take partitions."""

    CANONICAL = "canonical"  # by topic, then number
    SHUFFLE = "shuffle"  # a new permutation at every iteration, from the seed


class FirstBin(StrEnum):
    """With which consumer next fit begins."""

    STICKY = "sticky"  # the one that the first partition was on
    ZERO = "zero"  # consumer 0, always


class Keeps(StrEnum):
    """Which partitions a consumer keeps that must give some away for the sake of equal numbers."""

    LOWEST = "lowest"
    HIGHEST = "highest"


def never() -> bool:
    """Time does not run out."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """What a planner may be told beyond loads, group and capacities; each reads what concerns it.

    Attributes:
        seed: Of every choice that is left to chance.
        iteration: How many plans of a series came before; another one, other chances.
        order: Of the partitions, for fits that do not sort them.
        nf_first_bin: Where next fit begins.
        lags: Records not yet read, by partition; one that is not named has none.
        sla_s: How long a record may wait.
        members: How many consumers there are, for planners that do not choose their number.
        sticky_keeps: What `kafka-sticky` keeps.
        lag_threshold: Lag per consumer that `keda-lag` aims at.
        slack: Part of the consumers that `trim` may use above what `bfd` needs.
        max_moves: No more partitions than that change their consumer.
        max_moved_load: No more load than that changes its consumer.
        expired: Asked between steps whether time is up.
        time_limit_s: The same for a solver that keeps the time itself.
    """

    seed: int = 0
    iteration: int = 0
    order: SortOrder = SortOrder.CANONICAL
    nf_first_bin: FirstBin = FirstBin.STICKY
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    sla_s: float | None = None
    members: int | None = None
    sticky_keeps: Keeps = Keeps.LOWEST
    lag_threshold: int = 10
    slack: float = 0.0
    max_moves: int | None = None
    max_moved_load: float | None = None
    expired: Callable[[], bool] = never
    time_limit_s: float | None = None


DEFAULTS = PackingOptions()


class PackingRule(Protocol):
    """Partition → consumer: a pure function of its arguments, whatever their order.

    `current` may name partitions that have departed, which are dropped; partitions without an
    entry in it are arrivals. A load that is negative or not finite is a `ValueError`.
    """

    def __call__(
        self,
        loads: Mapping[TopicPartition, float],
        current: Assignment,
        limits: GroupLimits,
        options: PackingOptions = DEFAULTS,
        /,
    ) -> Assignment:
        """Places every partition of `loads`."""
        ...


class PlannerKind(StrEnum):
    """What a planner's assignment can be relied on for."""

    PACKS = "packs"  # no consumer above its capacity, save one partition that nobody can carry
    LATENCY = "latency"  # rate and lag within what the SLA allows, both capped
    DEALS = "deals"  # by number or lag of partitions; capacities play no part


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    """What an autoscaler decides from.

    Attributes:
        loads: What arrives, by partition.
        lags: Records not yet read, by partition.
        limits: What a consumer can carry.
        sla_s: How long a record may wait.
        current: Who reads what now.
        alive: Consumers that run or were asked for already.
        since_scaling_s: How long ago their number last changed.
        cooldown_s: For how long after that it stays as it is.
    """

    loads: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, float]
    limits: GroupLimits
    sla_s: float
    current: Assignment
    alive: tuple[int, ...]
    since_scaling_s: float = math.inf
    cooldown_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingDecision:
    """What to do, and why.

    Attributes:
        action: None at all, another number of consumers, or the same ones otherwise.
        before: How many consumers there are.
        after: How many there will be.
        assignment: Who reads what from then on.
        start: Consumers to start, ascending.
        stop: Consumers to stop, ascending: those whose going moves least.
        reason: In a few words.
        numbers: What the reason recomputes from.
    """

    action: Action
    before: int
    after: int
    assignment: Assignment
    start: tuple[int, ...] = ()
    stop: tuple[int, ...] = ()
    reason: str
    numbers: Mapping[str, float] = field(default_factory=dict)


class Autoscaler(Protocol):
    """A planner that also decides when a group is scaled, and by what: arrivals and lags."""

    def decide(self, request: ScalingRequest, /) -> ScalingDecision:
        """How many consumers there should be, and who reads what."""
        ...

    def relieves(self, request: ScalingRequest, after: Assignment, /) -> bool:
        """Whether somebody has less to do afterwards that has too much to do now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingPlanner:
    """A planner by name: its rule, and the options that it reads.

    One with an `autoscaler` is asked every interval; the others when a consumer has too much to do,
    or after a quiet time.
    """

    name: str
    rule: PackingRule
    kind: PlannerKind = PlannerKind.PACKS
    reads: frozenset[str] = frozenset()
    autoscaler: Autoscaler | None = None

    def __call__(
        self,
        loads: Mapping[TopicPartition, float],
        current: Assignment,
        limits: GroupLimits,
        options: PackingOptions = DEFAULTS,
        /,
    ) -> Assignment:
        """Places every partition of `loads`."""
        return self.rule(loads, current, limits, options)
