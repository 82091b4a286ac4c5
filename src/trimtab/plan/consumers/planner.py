"""The planner protocol of the consumers layer: its input and its options.

A planner gets the situation as loads, assignment, capacities and a `PackingContext`; everything
else is in its own `PlannerOptions`. It declares both, so that a value it would ignore is
refused. `plan.registry` lists all planners.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Protocol, TypeVar

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits
from trimtab.plan.planner import NamedPlanner

_OptionsT_contra = TypeVar("_OptionsT_contra", contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingContext:
    """Facts beyond loads, assignment and capacities; a planner declares which of them it uses.

    Attributes:
        lags: Unread records by partition; 0 for a partition not named.
        sla_s: Longest acceptable wait of a record, in seconds.
        members: Number of consumers, for planners that do not choose it.
        seed: Seed of all random choices.
        iteration: Number of earlier plans in a series; varies the random choices.
        clock: The present time in seconds, for time limits.
    """

    lags: Mapping[TopicPartition, int] = field(default_factory=dict)
    sla_s: float | None = None
    members: int | None = None
    seed: int = 0
    iteration: int = 0
    clock: Callable[[], float] = time.monotonic


NO_CONTEXT = PackingContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveBudget:
    """How much one plan may move; None means without limit."""

    max_moves: int | None = None
    max_moved_load: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerOptions:
    """The options of a planner, one field each; this one is for planners without options.

    A planner with options declares a subclass beside its rule. Each field has a default, and its
    type says what it means: `Annotated[float, "text for the command line and the reference"]`.
    """

    @property
    def budget(self) -> MoveBudget:
        """The limits for moves, which hold for every plan made with this planner."""
        return MoveBudget()


NO_OPTIONS = PlannerOptions()


class PackingRule(Protocol[_OptionsT_contra]):
    """Partition → consumer: a pure function that does not depend on the order of its input.

    Departed partitions in `current` are dropped; partitions that are not in it are arrivals. A
    load that is negative or not finite is a `ValueError`.
    """

    def __call__(
        self,
        loads: Mapping[TopicPartition, float],
        current: Assignment,
        limits: GroupLimits,
        context: PackingContext = ...,
        options: _OptionsT_contra = ...,
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
class PackingPlanner(NamedPlanner[PackingRule[Any], PlannerOptions]):
    """A planner by name: its rule, its options, and the fields of `PackingContext` that it uses.

    A planner with an `autoscaler` is called every interval; the others when a consumer is
    overloaded, or after a quiet time.
    """

    options: PlannerOptions = NO_OPTIONS
    kind: PlannerKind = PlannerKind.PACKS
    autoscaler: Autoscaler | None = None

    def __post_init__(self) -> None:
        if unknown := self.uses - {fact.name for fact in fields(PackingContext)}:
            raise ValueError(f"{self.name} uses unknown facts: {', '.join(sorted(unknown))}")

    @property
    def deals_by_number(self) -> bool:
        """Whether it ignores loads and lags: equal numbers of partitions are all it wants."""
        return self.kind is PlannerKind.DEALS and "lags" not in self.uses

    def __call__(
        self,
        loads: Mapping[TopicPartition, float],
        current: Assignment,
        limits: GroupLimits,
        context: PackingContext = NO_CONTEXT,
        /,
    ) -> Assignment:
        """Places every partition of `loads`."""
        return self.rule(loads, current, limits, context, self.options)
