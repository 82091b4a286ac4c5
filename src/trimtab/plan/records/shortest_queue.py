"""SQF, "shortest queue first": the broker that received the least so far, then its next partition.

Promise  Chooses the leader with the lowest count, the lowest id among equals; counts only grow, per
         cluster, over all topics and producers that share the instance. A shared instance comes
         close to the least possible peak (max over topic sets S of λ(S)/|N(S)|); with one topic it
         equals `node`. O(leaders of the topic) per record; one lock for all topics.
Paper    Burato, section 6.2.3. Differs: counts bytes by default; keyed records keep their partition
         unless `ignore_keys`; without any leader all partitions are used in turn; and returning
         brokers are not flooded (unless `faithful`): a new broker starts at the smallest count of
         the leaders, and if a new leader of a topic is below all leaders that stayed, every broker
         below them is raised to the smallest of these.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> sqf = ShortestQueue(RoutingOptions(start=0))
>>> seen = LeaderSnapshot({"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}})
>>> [(topic, sqf.partition(topic, None, 100, seen)) for topic in "ABABAB"]
[('A', 0), ('B', 0), ('A', 0), ('B', 1), ('A', 1), ('B', 1)]
"""

from __future__ import annotations

from threading import Lock

from trimtab.plan.records.counters import WITHOUT_SIGN, LazyValues, Starts
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.node import Rotations
from trimtab.plan.records.partitioner import CountUnit, RoutingOptions

MOST = 2**62
"""Above this the smallest count is subtracted from all: only differences matter."""


class _Topic:
    """The leaders of a topic as last seen."""

    __slots__ = ("brokers", "count", "inside", "made", "snapshot", "table")

    def __init__(self, topic: str, starts: Starts) -> None:
        self.snapshot: LeaderSnapshot | None = None
        self.table: TopicLeaders
        self.made = 0
        self.brokers: frozenset[int] = frozenset()
        self.count = starts.of(topic)
        self.inside = Rotations(topic, starts)


class _Cluster:
    """The counts of the brokers of one cluster, over all topics; used under its lock."""

    __slots__ = ("_faithful", "_leading", "_made", "lock", "topics", "used")

    def __init__(self, starts: Starts, *, faithful: bool) -> None:
        self.lock = Lock()
        self.topics: LazyValues[str, _Topic] = LazyValues(lambda topic: _Topic(topic, starts))
        self.used: dict[int, int] = {}
        self._faithful = faithful
        self._leading: frozenset[int] = frozenset()
        self._made = 0

    def add(self, broker: int, size: int) -> None:
        """Counts a record."""
        self.used[broker] += size
        if self.used[broker] > MOST:
            smallest = min(self.used.values())
            for each in self.used:
                self.used[each] -= smallest

    def see(self, state: _Topic, table: TopicLeaders, snapshot: LeaderSnapshot) -> None:
        """Updates the leaders of a topic."""
        # Several producers may share this instance, with metadata of different age: only the
        # newest snapshot shows new leaders; an older one is used without updating counts.
        if snapshot.made > self._made:
            self._enter(snapshot)
        for broker in table.brokers:
            if broker not in self.used:
                self.used[broker] = 0 if self._faithful else min(self.used.values(), default=0)
        if snapshot.made > state.made:
            if not self._faithful:
                self._lift(state.brokers, table)
            state.made = snapshot.made
            state.brokers = frozenset(table.brokers)
        state.table = table
        state.snapshot = snapshot

    def _enter(self, snapshot: LeaderSnapshot) -> None:
        """Brokers that led nothing before start with the smallest count of the present leaders."""
        now, used = snapshot.leading, self.used
        if self._faithful:
            for broker in now:
                used.setdefault(broker, 0)
        else:
            known = now & self._leading or now & used.keys()
            smallest = min((used[broker] for broker in known), default=0)
            used.update(dict.fromkeys(now - self._leading, smallest))
        self._leading, self._made = now, snapshot.made

    def _lift(self, before: frozenset[int], table: TopicLeaders) -> None:
        """If a new leader of the topic is below all that stayed, raises all brokers below these."""
        used = self.used
        smallest = min((used[broker] for broker in table.brokers if broker in before), default=0)
        if any(used[broker] < smallest for broker in table.brokers if broker not in before):
            for broker in used:
                used[broker] = max(used[broker], smallest)


class ShortestQueue:
    """The least used leader, then round robin inside it."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._by_bytes = options.counted is CountUnit.BYTES and not options.faithful
        self._clusters: LazyValues[str, _Cluster] = LazyValues(
            lambda _: _Cluster(starts, faithful=options.faithful)
        )

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or the next partition of the least used broker."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        cluster = self._clusters[snapshot.cluster]
        state = cluster.topics[topic]
        with cluster.lock:
            if state.snapshot is not snapshot:
                cluster.see(state, snapshot.topic(topic), snapshot)
            table = state.table
            if not table.brokers:
                count = state.count
                state.count = (count + 1) & WITHOUT_SIGN
                return table.all[count % len(table.all)]
            broker = min(table.brokers, key=cluster.used.__getitem__)
            cluster.add(broker, size if self._by_bytes and size > 0 else 1)
            return state.inside.next(broker, table)

    def stayed(self, name: str, broker: int, size: int) -> None:
        """Counts a record that was sent to a broker of this cluster without a new choice."""
        cluster = self._clusters[name]
        with cluster.lock:
            if broker in cluster.used:
                cluster.add(broker, size if self._by_bytes and size > 0 else 1)

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: the choice does not depend on batches."""
