"""Node: round robin over the leaders of the topic, then over the partitions of each leader.

Why      Under `default`, unevenly spread leaders load brokers unevenly; here each leader of a topic
         gets an equal share. The price: partitions of a broker that leads many get fewer records.
Promise  While the leaders stay the same, the numbers of keyless records on any two brokers differ
         by at most 1, and so do those on any two partitions of one broker; 1 more for every wrap.
         Counters survive a change of leaders, so a failure starves no partition.
Cost     O(1) per record; O(leaders of the topic) memory.
Paper    Burato, section 6.2.2. Differs: keyed records keep their partition unless `ignore_keys`;
         without any leader all partitions are used in turn.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> node = NodePartitioner(RoutingOptions(start=0))
>>> seen = LeaderSnapshot({"U2": {0: 1, 1: 2, 2: 2}})
>>> [node.partition("U2", None, 100, seen) for _ in range(6)]
[0, 1, 0, 2, 0, 1]
"""

from __future__ import annotations

from threading import Lock

from trimtab.plan.records.counters import WITHOUT_SIGN, Starts, per_topic
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.partitioner import RoutingOptions


class Rotations:
    """The rotation within each leader of one topic; kept when leaders change."""

    __slots__ = ("_counts", "_starts", "_topic")

    def __init__(self, topic: str, starts: Starts) -> None:
        self._topic = topic
        self._starts = starts
        self._counts: dict[int, int] = {}

    def next(self, broker: int, table: TopicLeaders) -> int:
        """The next partition of the topic that the broker leads; the caller holds a lock."""
        counts = self._counts
        count = counts.get(broker)
        if count is None:
            count = self._starts.of(self._topic, broker)
        counts[broker] = (count + 1) & WITHOUT_SIGN
        led = table.led[broker]
        return led[count % len(led)]


class _Topic:
    """The leaders of a topic as last seen, and the position of the rotation."""

    __slots__ = ("count", "inside", "lock", "snapshot", "table")

    def __init__(self, topic: str, starts: Starts) -> None:
        self.lock = Lock()
        self.snapshot: LeaderSnapshot | None = None
        self.table: TopicLeaders
        self.count = starts.of(topic)
        self.inside = Rotations(topic, starts)


class NodePartitioner:
    """Round robin over leaders, then inside the leader."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._topics = per_topic(lambda topic: _Topic(topic, starts))

    def partition(
        self, topic: str, key: bytes | None, _size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or the next partition of the next broker."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        state = self._topics[snapshot.cluster][topic]
        with state.lock:
            if state.snapshot is not snapshot:
                state.table = snapshot.topic(topic)
                state.snapshot = snapshot
            table = state.table
            count = state.count
            state.count = (count + 1) & WITHOUT_SIGN
            if not table.brokers:
                return table.all[count % len(table.all)]
            return state.inside.next(table.brokers[count % len(table.brokers)], table)

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: the choice does not depend on batches."""
