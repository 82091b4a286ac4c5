"""Makes a partitioner choose per batch: it keeps a partition until enough bytes went to it.

Why      A choice per record makes many small batches, and brokers and clients pay per batch.
Promise  A partition is kept until at least `sticky_bytes` were sent to it since it was chosen (a
         record counts at least one byte); then the inner partitioner chooses again. It chooses at
         once if the partition is gone, or has lost its leader while another has one.
Cost     O(1) per record, plus the inner partitioner once per batch.
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
    """The current partition of a topic, and how many bytes remain for it."""

    __slots__ = ("broker", "kept", "lock", "room", "snapshot")

    def __init__(self) -> None:
        self.lock = Lock()
        self.snapshot: LeaderSnapshot | None = None
        self.kept = -1
        self.broker = -1
        self.room = 0


class PerBatch:
    """Calls another partitioner once per batch."""

    def __init__(
        self,
        chooser: Partitioner,
        options: RoutingOptions,
        *,
        stayed: Callable[[str, int, int], None] | None = None,
    ) -> None:
        """Wraps `chooser`.

        Args:
            chooser: Called without a key, with the size of the first record of a batch.
            options: The routing options.
            stayed: Called with cluster, broker and size of every record for which the chooser was
                not called.
        """
        self._chooser = chooser
        self.ignore_keys = options.ignore_keys
        self._sticky_bytes = options.sticky_bytes
        self._stayed = stayed
        self._batches = per_topic(lambda _: _Batch())

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or of the current batch."""
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
        """Does nothing: bytes end a batch here, not the client."""
