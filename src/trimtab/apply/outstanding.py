"""What is under way to each partition: queues, for a client that cannot look into its buffer.

Why      `adaptive` leaves long queues alone, but librdkafka shows nobody its queues.
Promise  A queue is counted in batches, ⌈bytes under way / bytes of a batch⌉: written, and not yet
         acknowledged or given up. A broker is stuck when something is under way to it and none of
         its partitions was acknowledged for `stuck_after_s`. Any thread may tell and ask.
Cost     O(1) to tell; O(partitions with something under way) to ask.

>>> under_way = Outstanding(batch_bytes=1000)
>>> for partition, size in [(0, 900), (0, 200), (1, 50)]:
...     under_way.sent("t", partition, size)
>>> under_way.done("t", 1, 50)
>>> under_way.queues("t")
{0: 2, 1: 0}
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from trimtab.errors import UnknownTopic
from trimtab.model.cluster import NO_LEADER
from trimtab.plan.routing.leaders import LeaderSnapshot


class _UnderWay:
    __slots__ = ("bytes", "moved_at")

    def __init__(self) -> None:
        self.bytes = 0
        self.moved_at = 0.0


class Outstanding:
    """Bytes under way by topic and partition; one may serve several producers."""

    def __init__(
        self,
        *,
        batch_bytes: int = 16384,
        stuck_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Nothing is under way yet.

        Args:
            batch_bytes: How large a batch of the producer may grow.
            stuck_after_s: After that long without an acknowledgement a broker is stuck; None for
                never, as in Kafka unless `partitioner.availability.timeout.ms` is set.
            clock: Seconds that only grow.
        """
        self._batch_bytes = batch_bytes
        self._stuck_after_s = stuck_after_s
        self._clock = clock
        self._guard = threading.Lock()
        self._topics: dict[str, dict[int, _UnderWay]] = {}
        self._snapshot: Callable[[], LeaderSnapshot] = lambda: LeaderSnapshot({})

    def follow(self, snapshot: Callable[[], LeaderSnapshot]) -> None:
        """Learns whom to ask for the leaders of now."""
        self._snapshot = snapshot

    def sent(self, topic: str, partition: int, size: int) -> None:
        """A record was handed to the client."""
        with self._guard:
            of_topic = self._topics.get(topic)
            if of_topic is None:
                of_topic = self._topics[topic] = {}
            entry = of_topic.get(partition)
            if entry is None:
                entry = of_topic[partition] = _UnderWay()
            if not entry.bytes:
                entry.moved_at = self._clock()
            entry.bytes += size

    def done(self, topic: str, partition: int, size: int) -> None:
        """A record was acknowledged, or given up."""
        with self._guard:
            entry = self._topics[topic][partition]
            entry.bytes -= size
            entry.moved_at = self._clock()

    def queues(self, topic: str) -> Mapping[int, int]:
        """Batches under way to the partitions of a topic; the `queues` of `RoutingOptions`."""
        with self._guard:
            return {
                partition: -(-entry.bytes // self._batch_bytes)
                for partition, entry in self._topics.get(topic, {}).items()
            }

    def stuck(self) -> frozenset[int]:
        """Brokers that acknowledge nothing; the `stuck` of `RoutingOptions`."""
        if self._stuck_after_s is None:
            return frozenset()
        moved: dict[int, float] = {}
        snapshot = self._snapshot()
        with self._guard:
            for topic, of_topic in self._topics.items():
                leader = _leaders(snapshot, topic)
                for partition, entry in of_topic.items():
                    broker = leader.get(partition, NO_LEADER)
                    if entry.bytes and broker >= 0:
                        moved[broker] = max(moved.get(broker, entry.moved_at), entry.moved_at)
            limit = self._clock() - self._stuck_after_s
        return frozenset(broker for broker, at in moved.items() if at < limit)


def _leaders(snapshot: LeaderSnapshot, topic: str) -> Mapping[int, int]:
    try:
        return snapshot.topic(topic).leader
    except UnknownTopic:
        return {}
