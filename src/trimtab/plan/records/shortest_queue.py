"""SQF, "shortest queue first": the broker that was given least so far, then the next of its own.

Why      Topics that overlap on brokers load the common ones twice under `default` and `node`; one
         instance that counts what it gave to each broker, over all topics and producers that
         share it, evens them out. Brokers of different clusters are never mixed.
Promise  The least used broker of the topic's leaders, the lowest id among equals. It is no queue:
         it only grows. One shared instance comes as near to the least possible peak as rates allow
         (max over topic sets S of λ(S)/|N(S)|); with a single topic it is `node`. A broker that
         returns is not flooded with what it missed, see below.
Cost     O(leaders of the topic) per record; O(brokers) memory; one lock for all topics.
Paper    Burato, section 6.2.3. Differs: bytes are counted unless told otherwise; keyed records keep
         their home unless `ignore_keys`; where nobody leads anything, all partitions take their
         turn; and two rules for brokers that come, which `faithful` switches off. A broker that is
         new, or led nothing at all in the snapshot before, enters with the smallest value of those
         that lead something. Where one that begins to lead a topic is below all that stayed with
         it, every broker below them is lifted to the smallest of them: that widens no difference,
         so no other topic is turned away from the one that moved. As published, a broker that
         missed 10,000 records is given the next 10,000 in one run.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> sqf = ShortestQueue(RoutingOptions(start=0))
>>> seen = LeaderSnapshot({"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}})
>>> [(topic, sqf.partition(topic, None, 100, seen)) for topic in "ABABAB"]
[('A', 0), ('B', 0), ('A', 0), ('B', 1), ('A', 1), ('B', 1)]
"""

from __future__ import annotations

from threading import Lock

from trimtab.plan.records.counters import WITHOUT_SIGN, Once, Starts
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.node import Rotations
from trimtab.plan.records.partitioner import Counted, RoutingOptions

MOST = 2**62
"""Past it the smallest value is taken off all: only differences matter."""


class _Topic:
    """What is known of a topic."""

    __slots__ = ("brokers", "count", "inside", "made", "snapshot", "table")

    def __init__(self, topic: str, starts: Starts) -> None:
        self.snapshot: LeaderSnapshot | None = None
        self.table: TopicLeaders
        self.made = 0
        self.brokers: frozenset[int] = frozenset()
        self.count = starts.of(topic)
        self.inside = Rotations(topic, starts)


class _Cluster:
    """What was given to each broker of one cluster, over all its topics; used under its lock."""

    __slots__ = ("_faithful", "_leading", "_made", "lock", "topics", "used")

    def __init__(self, starts: Starts, *, faithful: bool) -> None:
        self.lock = Lock()
        self.topics: Once[str, _Topic] = Once(lambda topic: _Topic(topic, starts))
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
        """Takes note of a topic's leaders."""
        # Several producers may share this instance, each with metadata of its own age: only what
        # is newer than all before tells who comes, an older view is just looked at.
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
        """Those that led nothing before begin with the smallest value of those that do now."""
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
        """Where one that is new to this topic is below all that stayed, nobody stays below them."""
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
        self._by_bytes = options.counted is Counted.BYTES and not options.faithful
        self._clusters: Once[str, _Cluster] = Once(
            lambda _: _Cluster(starts, faithful=options.faithful)
        )

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The home of the key, or the next partition of the least used broker."""
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
        """Counts a record that was given to a broker of this cluster without asking."""
        cluster = self._clusters[name]
        with cluster.lock:
            if broker in cluster.used:
                cluster.add(broker, size if self._by_bytes and size > 0 else 1)

    def closed(self, topic: str, partition: int, /) -> None:
        """Batches are none of its business."""
