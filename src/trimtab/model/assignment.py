"""Assignments of partitions to consumer indexes, and the difference of two assignments."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from dataclasses import dataclass, field
from typing import Any

from trimtab.model.cluster import Group, Member, TopicPartition
from trimtab.model.wire import Count


@dataclass(frozen=True, slots=True)
class Assignment(Mapping[TopicPartition, Count]):
    """Partition → consumer index. A consumer without a partition is not part of it.

    `notes` are remarks of the planner that made it; they do not count in comparisons.

    >>> a = Assignment({TopicPartition("t", 0): 2, TopicPartition("t", 1): 2})
    >>> a.consumers
    (2,)
    """

    owners: Mapping[TopicPartition, int] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for partition, consumer in self.owners.items():
            if consumer < 0:
                raise ValueError(f"{partition} is on consumer {consumer}: indexes start at 0")

    def __getitem__(self, partition: TopicPartition) -> int:
        return self.owners[partition]

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.owners)

    def __len__(self) -> int:
        return len(self.owners)

    def __contains__(self, partition: object) -> bool:
        return partition in self.owners

    def items(self) -> ItemsView[TopicPartition, int]:
        """The partitions with their consumers; as fast as the map itself, as are the next two."""
        return self.owners.items()

    def keys(self) -> KeysView[TopicPartition]:
        """The partitions."""
        return self.owners.keys()

    def values(self) -> ValuesView[int]:
        """The consumer of each partition."""
        return self.owners.values()

    @property
    def consumers(self) -> tuple[int, ...]:
        """The indexes in use, ascending."""
        return tuple(sorted(set(self.owners.values())))

    def only(self, partitions: Mapping[TopicPartition, object]) -> Assignment:
        """The part of the assignment that concerns these partitions."""
        return Assignment({p: c for p, c in self.owners.items() if p in partitions})

    def without(self, dead: frozenset[int]) -> Assignment:
        """The assignment without these consumers."""
        return Assignment({p: c for p, c in self.owners.items() if c not in dead})

    def loads(self, of: Mapping[TopicPartition, float]) -> dict[int, float]:
        """Load per consumer in use; a partition without a load counts 0."""
        total: dict[int, float] = {}
        for partition in sorted(self.owners):
            consumer = self.owners[partition]
            total[consumer] = total.get(consumer, 0) + of.get(partition, 0)
        return total


def moved(before: Assignment, after: Assignment) -> tuple[TopicPartition, ...]:
    """Partitions that are in both assignments with different owners, sorted."""
    owner = after.owners.get
    return tuple(sorted(p for p, c in before.items() if owner(p, c) != c))


def numbered_members(group: Group, topics: frozenset[str]) -> dict[int, Member]:
    """The members of a group that read these topics, numbered from 0.

    Members are numbered by the smallest of these partitions that they own, so the numbers do not
    depend on member ids; members that own none have no number.
    """
    reading = [m for m in group.members if any(p.topic in topics for p in m.partitions)]
    first = {m.member_id: min(p for p in m.partitions if p.topic in topics) for m in reading}
    return dict(enumerate(sorted(reading, key=lambda m: first[m.member_id])))


def present_assignment(group: Group, topics: frozenset[str]) -> Assignment:
    """The current assignment of the partitions of these topics, by `numbered_members`."""
    owners: dict[TopicPartition, int] = {}
    for consumer, member in numbered_members(group, topics).items():
        for partition in sorted(p for p in member.partitions if p.topic in topics):
            if partition in owners:
                raise ValueError(f"{partition} has two owners in group {group.name}")
            owners[partition] = consumer
    return Assignment(owners)
