"""A snapshot of the leaders of partitions, as used by partitioners.

Promise  Immutable: a change of leaders makes a new snapshot, so `is` shows whether anything
         changed. The table of a topic is built on first access and cached.
Cost     O(partitions of the topic) once per topic; then one look-up.

>>> seen = LeaderSnapshot({"U2": {0: 1, 1: 2, 2: 2, 3: -1}})
>>> table = seen.topic("U2")
>>> table.all, table.available, table.brokers, dict(table.led)
((0, 1, 2, 3), (0, 1, 2), (1, 2), {1: (0,), 2: (1, 2)})
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from threading import Lock
from types import MappingProxyType
from typing import Self

from trimtab.errors import UnknownTopic
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.murmur2 import home

_made = count(1)
_making = Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLeaders:
    """One topic: all partitions, those with a leader, and those of each leader; all ascending."""

    all: tuple[int, ...]
    available: tuple[int, ...]
    brokers: tuple[int, ...]
    led: Mapping[int, tuple[int, ...]]
    leader: Mapping[int, int]

    def home(self, key: bytes) -> int:
        """The partition of a key by Kafka's hash over all partitions; failures do not change it."""
        return self.all[home(key, len(self.all))]

    def takes(self, partition: int) -> bool:
        """Whether it has a leader, or exists if no partition has a leader."""
        leader = self.leader.get(partition)
        return leader is not None and (leader >= 0 or not self.available)


class LeaderSnapshot:
    """Leaders by topic and partition; a negative number means no leader."""

    __slots__ = ("_leaders", "_tables", "cluster", "leading", "made", "racks")

    def __init__(
        self,
        leaders: Mapping[str, Mapping[int, int]],
        racks: Mapping[int, str | None] | None = None,
        cluster: str = "",
    ) -> None:
        """Copies its arguments.

        Args:
            leaders: For every known topic, the leader of each partition.
            racks: The racks of brokers; a broker not named has no rack.
            cluster: The id of the cluster. A partitioner that serves several clusters counts each
                separately: broker 1 of one is not broker 1 of another.
        """
        self.cluster = cluster
        self._leaders = {topic: dict(of_topic) for topic, of_topic in leaders.items()}
        self._tables: dict[str, TopicLeaders] = {}
        self.racks: Mapping[int, str | None] = MappingProxyType(dict(racks or {}))
        self.leading: frozenset[int] = frozenset(
            broker
            for of_topic in self._leaders.values()
            for broker in of_topic.values()
            if broker >= 0
        )
        """Brokers that lead at least one partition."""
        with _making:
            self.made: int = next(_made)
        """Increases with each snapshot created in this process; a later snapshot is newer."""

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._leaders, dict(self.racks), self.cluster)

    @classmethod
    def of(cls, snapshot: ClusterSnapshot) -> Self:
        """The leaders of a cluster's snapshot."""
        leaders: dict[str, dict[int, int]] = {}
        for p in snapshot.partitions:
            leaders.setdefault(p.topic, {})[p.partition] = p.leader
        racks: dict[int, str | None] = {b.id: b.rack for b in snapshot.brokers}
        return cls(leaders, racks, snapshot.cluster or "")

    @property
    def topics(self) -> tuple[str, ...]:
        """The known topics, ascending."""
        return tuple(sorted(self._leaders))

    def topic(self, name: str) -> TopicLeaders:
        """The table of a topic; raises if it is unknown or has no partition."""
        table = self._tables.get(name)
        return table if table is not None else self._made(name)

    def _made(self, name: str) -> TopicLeaders:
        leader = self._leaders.get(name)
        if not leader:
            raise UnknownTopic(
                f"Topic {name} is not in the snapshot, or has no partition.",
                hint="Check the name; a new topic is known after the next metadata refresh.",
            )
        everything = tuple(sorted(leader))
        led: dict[int, list[int]] = {}
        for partition in everything:
            if leader[partition] >= 0:
                led.setdefault(leader[partition], []).append(partition)
        table = TopicLeaders(
            all=everything,
            available=tuple(p for p in everything if leader[p] >= 0),
            brokers=tuple(sorted(led)),
            led=MappingProxyType({broker: tuple(led[broker]) for broker in sorted(led)}),
            leader=MappingProxyType(dict(leader)),
        )
        return self._tables.setdefault(name, table)
