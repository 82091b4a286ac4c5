"""Plans: the moves with their reasons, the expected result, the cost, and the inverse moves.

`Plan` is one envelope for all layers, generic in its moves and in the state before and after.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.model.wire import OMIT_EMPTY, REQUIRED, TIDY, Amount, Count, Wire, are_distinct

MoveT = TypeVar("MoveT")
InverseT = TypeVar("InverseT")
StateT = TypeVar("StateT")
CostT = TypeVar("CostT")

_Load = Annotated[Amount, TIDY]
_Numbers = Annotated[Mapping[str, float], TIDY]


class Layer(StrEnum):
    """What is placed (see the glossary). Records have no plans: partitioners place them."""

    CONSUMERS = "consumers"
    KEYS = "keys"
    BROKERS = "brokers"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The group and the topics of a plan."""

    group: str | None
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unplaced:
    """A partition whose load is above every consumer's capacity, with the reason."""

    topic: str
    partition: Count
    why: str
    load: _Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(Generic[MoveT, InverseT, StateT, CostT]):
    """The fields of all layers' plans; the id is a hash of the canonical form (`plan_id`).

    `bound` is the lower bound of the layer's first objective, `gap` how far above it the plan is.
    """

    layer: Layer
    planner: str
    params: Annotated[Mapping[str, Any], TIDY]
    seed: int
    made_ts: int
    snapshot: str
    scope: Scope
    moves: tuple[MoveT, ...]
    before: StateT
    after: StateT
    bound: _Load
    gap: Annotated[float, Wire(as_float=True)]
    cost: CostT
    inverse: tuple[InverseT, ...]
    unplaced: Annotated[tuple[Unplaced, ...], REQUIRED] = ()


# ---------------------------------------------------------------- consumers


class Reason(StrEnum):
    """Why a partition moves to another consumer."""

    ARRIVAL = "arrival"  # it had no consumer
    ORPHAN = "orphan"  # its consumer is dead
    OVERLOAD = "overload"  # its consumer is above its capacity
    CONSOLIDATE = "consolidate"  # its consumer is removed
    REPACK = "repack"  # the planner's own rule found a better consumer


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMove:
    """A partition moves to another consumer; `source` is None for arrivals and orphans."""

    topic: str
    partition: Count
    source: Annotated[Count | None, Wire(name="from")]
    target: Annotated[Count, Wire(name="to")]
    load: _Load
    reason: Annotated[Reason, Wire(noun="reason")]
    numbers: _Numbers

    @property
    def name(self) -> TopicPartition:
        """The partition that moves."""
        return TopicPartition(self.topic, self.partition)

    @property
    def counts(self) -> bool:
        """Whether this counts as a move; arrivals and orphans do not, as they had no consumer."""
        return self.source is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class InverseMove:
    """The inverse of a move."""

    topic: str
    partition: Count
    source: Annotated[Count, Wire(name="from")]
    target: Annotated[Count, Wire(name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """The figures that consumers' plans are compared by."""

    consumers: Count
    max_load: _Load


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of executing the plan; `orphan_load` is separate, as it cannot be avoided."""

    moves: Count
    moved_load: _Load
    rscore: Annotated[Amount, Wire(as_float=True)]
    orphan_load: _Load


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberName:
    """A consumer as the brokers know it: member id, client id and host."""

    client_id: str
    host: str
    member_id: str

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host.removeprefix('/')}, {self.member_id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan(Plan[ConsumerMove, InverseMove, ConsumerState, Cost]):
    """Which consumer of a group reads which partition.

    `members` are the consumers of the live group, by number. They are for display only: the plan's
    id does not depend on them.
    """

    assignment: Annotated[Assignment, Wire(before="before")]
    bound: Count
    bound_moved_load: Annotated[_Load, Wire(before="gap")]
    members: Annotated[Mapping[int, MemberName], OMIT_EMPTY] = field(default_factory=dict)

    @property
    def previous(self) -> Assignment:
        """The assignment before the plan; arrivals and orphans are not in it."""
        left = {m.name: m.source for m in self.moves}
        owners = {p: left.get(p, consumer) for p, consumer in self.assignment.items()}
        return Assignment({p: c for p, c in owners.items() if c is not None})


# ---------------------------------------------------------------- keys


class KeyReason(StrEnum):
    """Why a key gets another partition."""

    COOL = "cool"  # it is no longer hot and returns to its home partition
    PLACE = "place"  # it has become hot
    BALANCE = "balance"  # its partition is overloaded


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMove:
    """A key moves to another partition; `count` is the number of its records in the window."""

    key: bytes
    source: Annotated[Count, Wire(name="from")]
    target: Annotated[Count, Wire(name="to")]
    count: Count
    reason: Annotated[KeyReason, Wire(noun="reason")]
    numbers: _Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyInverse:
    """The inverse of a move."""

    key: bytes
    source: Annotated[Count, Wire(name="from")]
    target: Annotated[Count, Wire(name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyState:
    """The figures that keys' plans are compared by."""

    e_lb: _Load
    imbalance: _Load


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCost:
    """The cost of executing a keys' plan: moved keys, and their records in the window."""

    moves: Count
    count: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlan(Plan[KeyMove, KeyInverse, KeyState, KeyCost]):
    """Which partition a hot key goes to."""


# ---------------------------------------------------------------- brokers


class ReplicaReason(StrEnum):
    """Why a partition gets other replicas, or the same replicas in another order."""

    REORDER = "reorder"  # another leader; no data moves
    SWAP = "swap"  # two partitions exchange a broker
    MOVE = "move"


_EACH_ONCE = "should list at least one replica, and each only once"
_ReplicaList = Annotated[
    tuple[Annotated[BrokerId, Wire(least=0)], ...],
    Wire(rules=((bool, _EACH_ONCE), (are_distinct, _EACH_ONCE))),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMove:
    """A partition's replicas, leader first, before and after; `bytes` is the data to copy."""

    topic: str
    partition: Count
    source: Annotated[_ReplicaList, Wire(name="from")]
    target: Annotated[_ReplicaList, Wire(name="to")]
    bytes: Count
    reason: Annotated[ReplicaReason, Wire(noun="reason")]
    numbers: _Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInverse:
    """The inverse of a move."""

    topic: str
    partition: Count
    source: Annotated[_ReplicaList, Wire(name="from")]
    target: Annotated[_ReplicaList, Wire(name="to")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """The highest load of a broker: now, and after one failure, two failures, or a rack's."""

    f0: _Load
    f1: _Load
    f2: _Load
    f_rack: _Load


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerCost:
    """The cost of executing a brokers' plan."""

    moves: Count
    bytes: Count


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan(Plan[ReplicaMove, ReplicaInverse, BrokerState, BrokerCost]):
    """Which brokers hold which partition, and which of them leads."""


AnyPlan = ConsumerPlan | KeyPlan | BrokerPlan
