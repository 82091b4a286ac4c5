"""The state of a cluster at one time: brokers, partitions, groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, NamedTuple, NewType

from trimtab.model.wire import NOT_WRITTEN, OMIT_EMPTY, Count, Positive, Wire, are_distinct

BrokerId = NewType("BrokerId", int)
NO_LEADER = BrokerId(-1)

_Brokers = Annotated[tuple[BrokerId, ...], Wire(rules=((are_distinct, "lists a broker twice"),))]


class TopicPartition(NamedTuple):
    """The name of a partition; sorts by topic in code-point order, then by number."""

    topic: str
    partition: Count

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker, its rack, and whether it is alive; None means unknown."""

    id: Annotated[BrokerId, Wire(least=0)]
    rack: Annotated[str | None, OMIT_EMPTY] = None
    capacity: Annotated[Positive | None, OMIT_EMPTY] = None
    alive: Annotated[bool | None, OMIT_EMPTY] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """The replicas of a partition; sizes and offsets are None if unknown.

    `elr` are the eligible leader replicas: out of sync, but with all acknowledged records.
    """

    topic: str
    partition: Count
    leader: BrokerId
    replicas: _Brokers
    isr: _Brokers
    elr: Annotated[_Brokers, OMIT_EMPTY] = ()
    log_bytes: Annotated[Count | None, Wire(name="bytes", omit_empty=True)] = None
    begin_offset: Annotated[Count | None, OMIT_EMPTY] = None
    end_offset: Annotated[Count | None, OMIT_EMPTY] = None

    @property
    def name(self) -> TopicPartition:
        """The name of the partition."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offline(self) -> bool:
        """Whether this partition has no leader."""
        return self.leader == NO_LEADER


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A live member of a consumer group and its partitions; a static member has an instance id."""

    member_id: str
    client_id: str
    host: str
    partitions: frozenset[TopicPartition]
    instance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A consumer group: its members and committed offsets."""

    name: str
    state: str
    members: tuple[Member, ...] = ()
    committed: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSnapshot:
    """The whole cluster at one time, sorted, so that equal clusters are equal values."""

    cluster: str | None
    ts: Count = 0
    brokers: Annotated[tuple[Broker, ...], Wire(sorted_by="id", noun="broker")]
    partitions: Annotated[tuple[Replicas, ...], Wire(sorted_by="name", noun="partition")]
    groups: Annotated[tuple[Group, ...], NOT_WRITTEN] = ()

    def __post_init__(self) -> None:
        names = [p.name for p in self.partitions]
        if len(set(names)) != len(names):
            twice = next(n for i, n in enumerate(names) if n in names[:i])
            raise ValueError(f"partition {twice} appears twice in the snapshot")

    @property
    def topics(self) -> tuple[str, ...]:
        """All topic names, sorted."""
        return tuple(sorted({p.topic for p in self.partitions}))

    def of_topics(self, topics: frozenset[str]) -> tuple[Replicas, ...]:
        """The partitions of these topics, in order."""
        return tuple(p for p in self.partitions if p.topic in topics)

    def group(self, name: str) -> Group | None:
        """The group of that name, or None."""
        return next((g for g in self.groups if g.name == name), None)
