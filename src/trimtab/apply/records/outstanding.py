"""Counts unacknowledged bytes per partition: queue lengths for a client that does not expose them.

Why      `adaptive` avoids long queues, but librdkafka does not expose its queues.
Promise  A queue is counted in batches, ⌈unacknowledged bytes / bytes of a batch⌉. A broker is stuck
         when it has unacknowledged records for `stuck_after_s` and has acknowledged none of any
         partition in that time. All methods may be called from any thread.
Cost     O(1) without a lock to note a record; O(partitions, records noted since the last call) to
         ask. If never asked, a partition keeps 1000 entries and one per unacknowledged record.

>>> under_way = OutstandingBytes(batch_bytes=1000)
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
from trimtab.plan.records.counters import LazyValues
from trimtab.plan.records.leaders import LeaderSnapshot

K = TypeVar("K")
V = TypeVar("V")

_NEVER = float("-inf")
_HIGH = 1000
"""Entries are added up when there are more."""


class UnacknowledgedBytes:
    """The unacknowledged bytes of one partition: entries are added up when they are needed.

    A deque takes entries from all threads without a lock, which would cost more than the rest.
    """

    __slots__ = ("_bytes", "_entries", "_lock")

    def __init__(self) -> None:
        self._entries: deque[int] = deque()
        self._lock = threading.Lock()
        self._bytes = 0

    def sent(self, size: int) -> None:
        """A record was handed to the client."""
        self._entries.append(size)
        if len(self._entries) > _HIGH:
            self.left()

    def done(self, size: int) -> None:
        """A record was acknowledged."""
        self._entries.append(-size)

    def dropped(self, size: int) -> None:
        """A record was not accepted, or failed: this is not an acknowledgement."""
        self._entries.append(-size)

    def left(self) -> int:
        """The unacknowledged bytes."""
        entries = self._entries
        with self._lock:
            self._bytes += sum([entries.popleft() for _ in range(len(entries))])
            return self._bytes


class _Timed(UnacknowledgedBytes):
    """One partition, with the times since when it waits and of the last acknowledgement."""

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


class OutstandingBytes:
    """Unacknowledged bytes by topic and partition; several producers may share one."""

    def __init__(
        self,
        *,
        batch_bytes: int = 16384,
        stuck_after_s: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts with no records.

        Args:
            batch_bytes: The largest size of the producer's batches.
            stuck_after_s: After this time without an acknowledgement a broker is stuck; None for
                never, as in Kafka unless `partitioner.availability.timeout.ms` is set.
            clock: Monotonic seconds.
        """
        self._batch_bytes = batch_bytes
        self._stuck_after_s = stuck_after_s
        self._clock = clock
        self._topics: LazyValues[str, LazyValues[int, UnacknowledgedBytes]] = LazyValues(
            lambda _: LazyValues(
                lambda _: UnacknowledgedBytes() if stuck_after_s is None else _Timed(clock)
            )
        )
        self._snapshot: Callable[[], LeaderSnapshot] = lambda: LeaderSnapshot({})

    def follow(self, snapshot: Callable[[], LeaderSnapshot]) -> None:
        """Sets the source of the current leaders."""
        self._snapshot = snapshot

    def place(self, topic: str, partition: int) -> UnacknowledgedBytes:
        """The counter of one partition, for frequent use."""
        return self._topics[topic][partition]

    def sent(self, topic: str, partition: int, size: int) -> None:
        """A record was handed to the client."""
        self._topics[topic][partition].sent(size)

    def done(self, topic: str, partition: int, size: int) -> None:
        """A record was acknowledged."""
        self._topics[topic][partition].done(size)

    def queues(self, topic: str) -> Mapping[int, int]:
        """Unacknowledged batches by partition of a topic; the `queues` of `RoutingOptions`."""
        return {
            partition: -(-place.left() // self._batch_bytes)
            for partition, place in _now(self._topics.get(topic)).items()
        }

    def stuck(self) -> frozenset[int]:
        """Brokers that do not acknowledge; the `stuck` of `RoutingOptions`."""
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
    """A copy, since other threads may add to it."""
    return {} if known is None else known.copy()


def _leaders(snapshot: LeaderSnapshot, topic: str) -> Mapping[int, int]:
    try:
        return snapshot.topic(topic).leader
    except UnknownTopic:
        return {}
