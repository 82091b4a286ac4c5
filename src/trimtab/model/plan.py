"""A plan: what moves from where to where, why, what comes of it, what it costs, how to undo it.

`Plan` is one envelope for all layers, generic in its moves and in the figures before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, TypeVar

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, TopicPartition

MoveT = TypeVar("MoveT")
InverseT = TypeVar("InverseT")
StateT = TypeVar("StateT")
CostT = TypeVar("CostT")


class Layer(StrEnum):
    """What is placed where; see the glossary. Records have no plans: partitioners place them."""

    CONSUMERS = "consumers"
    KEYS = "keys"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What the plan speaks of."""

    group: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A partition that no consumer can carry, and why."""

    topic: str
    partition: int
    why: str
    load: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[MoveT, InverseT, StateT, CostT]):
    """What the plans of all layers have; the id is that of the canonical form (`plan_id`).

    `bound` is the lower bound of the layer's first objective, `gap` how far above it the plan is.
    """

    layer: Layer
    planner: str
    params: Mapping[str, Any]
    seed: int
    made_ts: int
    snapshot: str
    scope: Scope
    moves: tuple[MoveT, ...]
    before: StateT
    after: StateT
    bound: float
    gap: float
    cost: CostT
    inverse: tuple[InverseT, ...]
    unplaced: tuple[Unplaced, ...] = field(default=())


# ---------------------------------------------------------------- consumers


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
class MemberName:
    """Who a consumer is to the brokers."""

    client_id: str
    host: str
    member_id: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.removeprefix('/')}, {self.member_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan(Plan[ConsumerMove, InverseMove, ConsumerState, Cost]):
    """Which consumer of a group reads which partition.

    `members` names the consumers that a live group had, by number. It is for people: the id does
    not depend on it.
    """

    assignment: Assignment
    bound_moved_load: float
    members: Mapping[int, MemberName] = field(default_factory=dict)

    @property
    def previous(self) -> Assignment:
        """Who read what before; arrivals and orphans had nobody."""
        left = {m.name: m.source for m in self.moves}
        owners = {p: left.get(p, consumer) for p, consumer in self.assignment.items()}
        return Assignment({p: c for p, c in owners.items() if c is not None})


# ---------------------------------------------------------------- keys


class KeyReason(StrEnum):
    """Why a key gets another partition."""

    COOL = "cool"  # it is no longer hot, and goes home
    PLACE = "place"  # it has become hot
    BALANCE = "balance"  # its partition carries too much


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMove:
    """A key gets another partition; `count` are its records in the window."""

    key: bytes
    source: int
    target: int
    count: int
    reason: KeyReason
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInverse:
    """One step back."""

    key: bytes
    source: int
    target: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The figures a keys' plan is judged by."""

    e_lb: float
    imbalance: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCost:
    """What carrying out a keys' plan costs: keys that move, and their records in the window."""

    moves: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan(Plan[KeyMove, KeyInverse, KeyState, KeyCost]):
    """Which partition a hot key goes to."""


# ---------------------------------------------------------------- brokers


class ReplicaReason(StrEnum):
    """Why a partition gets other replicas, or the same in another order."""

    REORDER = "reorder"  # another leader; no data moves
    SWAP = "swap"  # two partitions exchange a broker
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMove:
    """A partition's replicas, leader first, before and after; `bytes` are those to be copied."""

    topic: str
    partition: int
    source: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]
    bytes: int
    reason: ReplicaReason
    numbers: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInverse:
    """One step back."""

    topic: str
    partition: int
    source: tuple[BrokerId, ...]
    target: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The load of the worst broker: now, after one failure, after two, and after that of a rack."""

    f0: float
    f1: float
    f2: float
    f_rack: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCost:
    """What carrying out a brokers' plan costs."""

    moves: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan(Plan[ReplicaMove, ReplicaInverse, BrokerState, BrokerCost]):
    """Which brokers hold which partition, and which of them leads."""


AnyPlan = ConsumerPlan | KeyPlan | BrokerPlan
