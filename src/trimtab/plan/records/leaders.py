"""Who leads what at one moment, as a partitioner looks at it.

Promise  Immutable: a change of leaders is another snapshot, so that `is` tells whether anything
         changed. The table of a topic is made when it is first asked for, and kept.
Cost     O(partitions of the topic) once per topic; afterwards one look-up.

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
    """One topic: every partition, those with a leader, and who leads which; all ascending."""

    all: tuple[int, ...]
    available: tuple[int, ...]
    brokers: tuple[int, ...]
    led: Mapping[int, tuple[int, ...]]
    leader: Mapping[int, int]

    def home(self, key: bytes) -> int:
        """Where Kafka's hash puts a key: among all partitions, so that no fault moves it."""
        return self.all[home(key, len(self.all))]

    def takes(self, partition: int) -> bool:
        """Whether it has a leader or, where none has one, at least exists."""
        leader = self.leader.get(partition)
        return leader is not None and (leader >= 0 or not self.available)


class LeaderSnapshot:
    """Leaders by topic and partition; −1, or any negative number, is nobody."""

    __slots__ = ("_leaders", "_tables", "cluster", "leading", "made", "racks")

    def __init__(
        self,
        leaders: Mapping[str, Mapping[int, int]],
        racks: Mapping[int, str | None] | None = None,
        cluster: str = "",
    ) -> None:
        """Takes a copy.

        Args:
            leaders: Of every topic that is known, the broker that leads each partition.
            racks: Where brokers stand; one that is not named stands nowhere in particular.
            cluster: Which cluster this is. A partitioner that serves several keeps what it counts
                apart for each: broker 1 of one is not broker 1 of another.
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
        """Brokers that lead anything at all."""
        with _making:
            self.made: int = next(_made)
        """Higher for each that is made in this process: the later one knows better."""

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
        """The topics that are known, ascending."""
        return tuple(sorted(self._leaders))

    def topic(self, name: str) -> TopicLeaders:
        """The table of a topic; one that is unknown or has no partition is an error."""
        table = self._tables.get(name)
        return table if table is not None else self._made(name)

    def _made(self, name: str) -> TopicLeaders:
        leader = self._leaders.get(name)
        if not leader:
            raise UnknownTopic(
                f"Topic {name} is not in the snapshot, or has no partition.",
                hint="Check the name; a topic that was just made is seen when metadata is fresh.",
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
