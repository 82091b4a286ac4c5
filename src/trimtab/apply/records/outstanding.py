"""What is under way to each partition: queues, for a client that cannot look into its buffer.

Why      `adaptive` leaves long queues alone, but librdkafka shows nobody its queues.
Promise  A queue is counted in batches, ⌈bytes under way / bytes of a batch⌉: written, and not yet
         acknowledged or given up. A broker is stuck when something is under way to it for
         `stuck_after_s`, and as long none of its partitions was acknowledged, be it one with
         nothing else under way. Any thread may tell and ask.
Cost     O(1) and no lock to tell; O(partitions, and what was told since the last time) to ask. If
         nobody asks, a partition holds a thousand tellings and one per record under way.

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
from collections import deque
from collections.abc import Callable, Mapping
from typing import TypeVar

from trimtab.errors import UnknownTopic
from trimtab.model.cluster import NO_LEADER
from trimtab.plan.records.counters import Once
from trimtab.plan.records.leaders import LeaderSnapshot

K = TypeVar("K")
V = TypeVar("V")

_NEVER = float("-inf")
_HIGH = 1000
"""A pile of more is added up at once."""


class UnderWay:
    """One partition: what is told lies on a pile and is added up when somebody asks.

    A pile takes records of all threads without a lock, which would cost more than all else here.
    """

    __slots__ = ("_bytes", "_lock", "_pile")

    def __init__(self) -> None:
        self._pile: deque[int] = deque()
        self._lock = threading.Lock()
        self._bytes = 0

    def sent(self, size: int) -> None:
        """A record was handed to the client."""
        self._pile.append(size)
        if len(self._pile) > _HIGH:
            self.left()

    def done(self, size: int) -> None:
        """A record was acknowledged."""
        self._pile.append(-size)

    def dropped(self, size: int) -> None:
        """A record was not taken, or given up: that is no sign of life."""
        self._pile.append(-size)

    def left(self) -> int:
        """Bytes under way."""
        pile = self._pile
        with self._lock:
            self._bytes += sum([pile.popleft() for _ in range(len(pile))])
            return self._bytes


class _Timed(UnderWay):
    """One partition, and since when it waits."""

    __slots__ = ("_clock", "_timed", "acknowledged_at", "began_at")

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._timed: deque[tuple[int, float]] = deque()
        self.began_at = _NEVER
        self.acknowledged_at = _NEVER

    def sent(self, size: int) -> None:
        self._timed.append((size, self._clock()))
        if len(self._timed) > _HIGH:
            self.left()

    def done(self, size: int) -> None:
        self._timed.append((-size, self._clock()))

    def dropped(self, size: int) -> None:
        self._timed.append((-size, _NEVER))

    def left(self) -> int:
        with self._lock:
            for _ in range(len(self._timed)):
                size, at = self._timed.popleft()
                if size < 0:
                    self.acknowledged_at = max(self.acknowledged_at, at)
                elif not self._bytes:
                    self.began_at = at
                self._bytes += size
            return self._bytes


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
        self._topics: Once[str, Once[int, UnderWay]] = Once(
            lambda _: Once(lambda _: UnderWay() if stuck_after_s is None else _Timed(clock))
        )
        self._snapshot: Callable[[], LeaderSnapshot] = lambda: LeaderSnapshot({})

    def follow(self, snapshot: Callable[[], LeaderSnapshot]) -> None:
        """Learns whom to ask for the leaders of now."""
        self._snapshot = snapshot

    def place(self, topic: str, partition: int) -> UnderWay:
        """Where to tell of one partition, for those who tell often."""
        return self._topics[topic][partition]

    def sent(self, topic: str, partition: int, size: int) -> None:
        """A record was handed to the client."""
        self._topics[topic][partition].sent(size)

    def done(self, topic: str, partition: int, size: int) -> None:
        """A record was acknowledged."""
        self._topics[topic][partition].done(size)

    def queues(self, topic: str) -> Mapping[int, int]:
        """Batches under way to the partitions of a topic; the `queues` of `RoutingOptions`."""
        return {
            partition: -(-place.left() // self._batch_bytes)
            for partition, place in _now(self._topics.get(topic)).items()
        }

    def stuck(self) -> frozenset[int]:
        """Brokers that acknowledge nothing; the `stuck` of `RoutingOptions`."""
        if self._stuck_after_s is None:
            return frozenset()
        limit = self._clock() - self._stuck_after_s
        snapshot = self._snapshot()
        waiting: set[int] = set()
        moving: set[int] = set()
        for topic, of_topic in _now(self._topics).items():
            leader = _leaders(snapshot, topic)
            for partition, place in _now(of_topic).items():
                broker = leader.get(partition, NO_LEADER)
                if broker < 0 or not isinstance(place, _Timed):
                    continue
                if place.left() and place.began_at < limit:
                    waiting.add(broker)
                if place.acknowledged_at >= limit:
                    moving.add(broker)
        return frozenset(waiting - moving)


def _now(known: dict[K, V] | None) -> dict[K, V]:
    """A copy, since others may add to it."""
    return {} if known is None else known.copy()


def _leaders(snapshot: LeaderSnapshot, topic: str) -> Mapping[int, int]:
    try:
        return snapshot.topic(topic).leader
    except UnknownTopic:
        return {}
