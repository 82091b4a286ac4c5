"""A choice that holds for a batch: the same partition until enough bytes were given to it.

Why      Choosing anew for each record spreads a producer's records over many small batches; brokers
         and clients pay per batch.
Promise  A partition is kept until at least `sticky_bytes` were given to it since it was chosen, a
         record counted as one byte at least; then the chooser is asked again. It is asked at once
         where the kept partition has lost its leader and another has one, or is gone.
Cost     O(1) per record, and the chooser's own once per batch.
Paper    KIP-794 without the client's own view of its batches.

>>> from trimtab.plan.records.default import Default
>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> options = RoutingOptions(start=0, sticky_bytes=250)
>>> batched = PerBatch(Default(options), options)
>>> seen = LeaderSnapshot({"t": {0: 1, 1: 2}})
>>> [batched.partition("t", None, 100, seen) for _ in range(7)]
[0, 0, 0, 1, 1, 1, 0]
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from trimtab.plan.records.counters import per_topic
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions


class _Batch:
    """The partition that is kept for a topic, and how many bytes it still takes."""

    __slots__ = ("broker", "kept", "lock", "room", "snapshot")

    def __init__(self) -> None:
        self.lock = Lock()
        self.snapshot: LeaderSnapshot | None = None
        self.kept = -1
        self.broker = -1
        self.room = 0


class PerBatch:
    """Asks another partitioner once per batch."""

    def __init__(
        self,
        chooser: Partitioner,
        options: RoutingOptions,
        *,
        stayed: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Keeps what `chooser` chooses.

        Args:
            chooser: Asked without a key, with the size of the first record.
            options: Of it all.
            stayed: Told cluster, broker and size of every record that the chooser was not asked
                for.
        """
        self._chooser = chooser
        self.ignore_keys = options.ignore_keys
        self._sticky_bytes = options.sticky_bytes
        self._stayed = stayed
        self._batches = per_topic(lambda _: _Batch())

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The home of the key, or the partition of the present batch."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        batch = self._batches[snapshot.cluster][topic]
        with batch.lock:
            if batch.snapshot is not snapshot:
                table = snapshot.topic(topic)
                if not table.takes(batch.kept):
                    batch.room = 0
                batch.broker = table.leader.get(batch.kept, -1)
                batch.snapshot = snapshot
            if batch.room <= 0:
                batch.kept = self._chooser.partition(topic, None, size, snapshot)
                batch.broker = snapshot.topic(topic).leader[batch.kept]
                batch.room = self._sticky_bytes
            elif self._stayed is not None:
                self._stayed(snapshot.cluster, batch.broker, size)
            batch.room -= size if size > 0 else 1
            return batch.kept

    def closed(self, topic: str, partition: int, /) -> None:
        """Bytes decide, not the client's batches."""
