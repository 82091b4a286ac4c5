"""A plan: what moves from where to where, why, what comes of it, what it costs, how to undo it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition


class Layer(StrEnum):
    """What is placed where; see the glossary."""

    CONSUMERS = "consumers"


class Reason(StrEnum):
    """Why a partition moves to another consumer."""

    ARRIVAL = "arrival"  # nobody had it
    ORPHAN = "orphan"  # the consumer that had it is dead
    OVERLOAD = "overload"  # the consumer that had it carries more than it can
    CONSOLIDATE = "consolidate"  # the consumer that had it is dissolved
    REPACK = "repack"  # the planner found a better place, by its own rule


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMove:
    """One partition changes its consumer; `source` is None for arrivals and orphans."""

    topic: str
    partition: int
    source: int | None
    target: int
    load: float
    reason: Reason
    numbers: Mapping[str, float]

    @property
    def name(self) -> TopicPartition:
        """The partition that moves."""
        return TopicPartition(self.topic, self.partition)

    @property
    def counts(self) -> bool:
        """Whether this is a move at all: an arrival or an orphan had no place to leave."""
        return self.source is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseMove:
    """One step back."""

    topic: str
    partition: int
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A partition that no consumer can carry, and why."""

    topic: str
    partition: int
    why: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """The figures a consumers' plan is judged by."""

    consumers: int
    max_load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What carrying out the plan costs; `orphan_load` is apart, since nobody could avoid it."""

    moves: int
    moved_load: float
    rscore: float
    orphan_load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the plan speaks of."""

    group: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberName:
    """Who a consumer is to the brokers."""

    client_id: str
    host: str
    member_id: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.removeprefix('/')}, {self.member_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One plan; its id is that of its canonical form (`codec.plan_id`).

    `members` names the consumers that a live group had, by number. It is for people: the id does
    not depend on it.
    """

    layer: Layer
    planner: str
    params: Mapping[str, Any]
    seed: int
    made_ts: int
    snapshot: str
    scope: Scope
    moves: tuple[ConsumerMove, ...]
    assignment: Assignment
    before: ConsumerState
    after: ConsumerState
    bound: int
    bound_moved_load: float
    gap: float
    cost: Cost
    inverse: tuple[InverseMove, ...]
    unplaced: tuple[Unplaced, ...] = field(default=())
    members: Mapping[int, MemberName] = field(default_factory=dict)

    @property
    def previous(self) -> Assignment:
        """Who read what before; arrivals and orphans had nobody."""
        left = {m.name: m.source for m in self.moves}
        owners = {p: left.get(p, consumer) for p, consumer in self.assignment.items()}
        return Assignment({p: c for p, c in owners.items() if c is not None})
