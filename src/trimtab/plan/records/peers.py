"""The partitioners of Kafka's own producers since 2.4 for keyless records, as baselines.

Promise  `sticky` keeps a partition until its batch is done (full, `linger_s` over, or closed by the
         client), then draws another available one. `uniform-sticky` keeps it for `sticky_bytes`,
         then draws any available one. `adaptive` draws with weight longest queue + 1 − own queue,
         without partitions of stuck brokers. `rack-aware` is adaptive within the client's rack, if
         possible. Without any leader all partitions are drawn from. Equal seeds, equal draws.
Cost     O(1) per record, O(partitions) per draw.
Paper    KIP-480, KIP-794, KIP-1123. Differs: a partition that loses its leader is left at once;
         without a view of the client's batches the switch is at `sticky_bytes`, not at batch end.

>>> from bisect import bisect_right
>>> running_sums([0, 3, 1])
[4, 5, 8]
>>> [bisect_right(running_sums([0, 3, 1]), drawn) for drawn in range(8)]
[0, 0, 0, 0, 1, 2, 2, 2]
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from random import Random
from threading import Lock

from trimtab.plan.records.batches import PerBatch
from trimtab.plan.records.counters import Starts, per_topic
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.partitioner import RoutingOptions


def running_sums(queues: Sequence[int]) -> list[int]:
    """Running sums of the weights of partitions: a shorter queue has a higher weight."""
    longest = max(queues)
    return list(accumulate(longest + 1 - queue for queue in queues))


class _Batch:
    """The open batch of a topic."""

    __slots__ = ("done", "given", "kept", "lock", "opened_s", "random", "snapshot")

    def __init__(self, random: Random) -> None:
        self.lock = Lock()
        self.random = random
        self.snapshot: LeaderSnapshot | None = None
        self.kept = -1
        self.given = 0
        self.opened_s = 0.0
        self.done = True


class Sticky:
    """One partition per batch, then another one."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._most = options.sticky_bytes
        self._linger_s = options.linger_s
        self._clock = options.clock
        self._told = False
        self._batches = per_topic(lambda topic: _Batch(starts.random(topic)))

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or of the open batch."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        size = max(size, 1)
        batch = self._batches[snapshot.cluster][topic]
        with batch.lock:
            if batch.snapshot is not snapshot:
                batch.done = batch.done or not snapshot.topic(topic).takes(batch.kept)
                batch.snapshot = snapshot
            if batch.done or (not self._told and self._is_over(batch, size)):
                self._open(batch, snapshot.topic(topic))
            batch.given += size
            return batch.kept

    def batches_are_reported(self) -> None:
        """From now on only `closed` ends a batch: the client calls it for each finished batch.

        A switch at a guessed time would open a second batch; the client would close that one too,
        and with two partitions the next draw would always return to the first.
        """
        self._told = True

    def closed(self, topic: str, partition: int, /, cluster: str = "") -> None:
        """The next record goes to another partition, if this is still the current one."""
        batch = self._batches[cluster].get(topic)
        if batch is not None:
            with batch.lock:
                batch.done = batch.done or batch.kept == partition

    def _is_over(self, batch: _Batch, size: int) -> bool:
        if batch.given + size > self._most:
            return True
        return self._linger_s is not None and self._clock() - batch.opened_s >= self._linger_s

    def _open(self, batch: _Batch, table: TopicLeaders) -> None:
        choices = [p for p in table.available if p != batch.kept] or table.available or table.all
        batch.kept = batch.random.choice(choices)
        batch.given = 0
        batch.done = False
        if self._linger_s is not None:
            batch.opened_s = self._clock()


class _Drawn:
    """Draws a partition; called by one thread at a time per topic."""

    def __init__(
        self, options: RoutingOptions, weigh: Callable[[str, LeaderSnapshot], _Odds]
    ) -> None:
        starts = Starts(options)
        self._weigh = weigh
        self._random = per_topic(starts.random)

    def partition(
        self, topic: str, _key: bytes | None, _size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        choices, sums = self._weigh(topic, snapshot)
        random = self._random[snapshot.cluster][topic]
        return choices[bisect_right(sums, random.randrange(sums[-1]))]

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: bytes end a batch here, not the client."""


_Odds = tuple[Sequence[int], Sequence[int]]


def uniform_sticky(options: RoutingOptions) -> PerBatch:
    """A random available partition for each batch."""

    def odds(topic: str, snapshot: LeaderSnapshot) -> _Odds:
        table = snapshot.topic(topic)
        choices = table.available or table.all
        return choices, range(1, len(choices) + 1)

    return PerBatch(_Drawn(options, odds), options)


def adaptive(options: RoutingOptions) -> PerBatch:
    """A random partition for each batch, preferring short queues."""

    def odds(topic: str, snapshot: LeaderSnapshot) -> _Odds:
        return _by_queue(topic, _unstuck(snapshot.topic(topic), options), options)

    return PerBatch(_Drawn(options, odds), options)


def rack_aware(options: RoutingOptions) -> PerBatch:
    """As `adaptive`, within the client's rack if it has leaders, else anywhere."""

    def odds(topic: str, snapshot: LeaderSnapshot) -> _Odds:
        table = snapshot.topic(topic)
        anywhere = _unstuck(table, options)
        near = [
            p
            for p in anywhere
            if options.rack is not None and snapshot.racks.get(table.leader[p]) == options.rack
        ]
        return _by_queue(topic, near or anywhere, options)

    return PerBatch(_Drawn(options, odds), options)


def _unstuck(table: TopicLeaders, options: RoutingOptions) -> Sequence[int]:
    stuck = options.stuck()
    moving = [p for p in table.available if table.leader[p] not in stuck]
    return moving or table.available or table.all


def _by_queue(topic: str, choices: Sequence[int], options: RoutingOptions) -> _Odds:
    queues = options.queues(topic)
    return choices, running_sums([queues.get(p, 0) for p in choices])
