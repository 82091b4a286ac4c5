"""The planner protocol of the consumers layer, and the options of planners."""

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
    """The order in which fits that do not sort take partitions."""

    CANONICAL = "canonical"  # by topic, then number
    SHUFFLE = "shuffle"  # a new permutation at every iteration, from the seed


class FirstBin(StrEnum):
    """The consumer with which next fit begins."""

    STICKY = "sticky"  # the one that the first partition was on
    ZERO = "zero"  # consumer 0, always


class Keeps(StrEnum):
    """Which partitions a consumer keeps if it must give some away to equalise the numbers."""

    LOWEST = "lowest"
    HIGHEST = "highest"


def never() -> bool:
    """Never expires."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingOptions:
    """Options of planners beyond loads, group and capacities; each planner reads some of them.

    Attributes:
        seed: Seed of all random choices.
        iteration: Number of earlier plans in a series; varies the random choices.
        order: Order of the partitions, for fits that do not sort them.
        nf_first_bin: Where next fit begins.
        lags: Unread records by partition; 0 for a partition not named.
        sla_s: Longest acceptable wait of a record, in seconds.
        members: Number of consumers, for planners that do not choose it.
        sticky_keeps: Which partitions `kafka-sticky` keeps.
        lag_threshold: Target lag per consumer of `keda-lag`.
        slack: Share of consumers that `trim` may use above what `bfd` needs.
        max_moves: Largest number of partitions that may change their consumer.
        max_moved_load: Largest load that may change its consumer.
        expired: Called between steps; true when time is up.
        time_limit_s: Time limit of a solver, in seconds.
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
    """Partition → consumer: a pure function that does not depend on the order of its input.

    Departed partitions in `current` are dropped; partitions that are not in it are arrivals. A
    load that is negative or not finite is a `ValueError`.
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
    """The guarantee of a planner's assignment."""

    PACKS = "packs"  # no consumer above its capacity, except with one oversize partition
    LATENCY = "latency"  # rate and lag within the limits of the SLA, both capped
    DEALS = "deals"  # by number or lag of partitions; capacities are ignored


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingRequest:
    """The input of an autoscaler.

    Attributes:
        loads: Arrival rate by partition.
        lags: Unread records by partition.
        limits: Capacities of consumers.
        sla_s: Longest acceptable wait of a record, in seconds.
        current: The present assignment.
        alive: Consumers that run or are already requested.
        since_scaling_s: Time since the number of consumers last changed.
        cooldown_s: Time after a change in which the number stays the same.
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
        action: Nothing, a change of the number of consumers, or a reassignment.
        before: Number of consumers before.
        after: Number of consumers after.
        assignment: The new assignment.
        start: Consumers to start, ascending.
        stop: Consumers to stop, ascending: those whose removal moves the least load.
        reason: A short text.
        numbers: The numbers that the reason is computed from.
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
    """A planner that also decides when to scale a group, from arrival rates and lags."""

    def decide(self, request: ScalingRequest, /) -> ScalingDecision:
        """Decides the number of consumers and the assignment."""
        ...

    def relieves(self, request: ScalingRequest, after: Assignment, /) -> bool:
        """Whether the assignment reduces the load of an overloaded consumer."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingPlanner:
    """A planner by name: its rule, and the options that it reads.

    A planner with an `autoscaler` is called every interval; the others when a consumer is
    overloaded, or after a quiet time.
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
