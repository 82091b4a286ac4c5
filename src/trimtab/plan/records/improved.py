"""Improved: the choices of `default` with less work for each.

Why      A partitioner is called for every record, but its choices change only with the leaders, so
         the counter and the choices are stored together.
Promise  Equal starts and equal snapshots give the same sequence as `default`.
Cost     One look-up per keyless record; O(topics) memory.
Paper    Burato, section 6.2.1, which looks up twice; counters beside the lists they index are
         what section 6.3 proposes.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> improved = Improved(RoutingOptions(start=0))
>>> seen = LeaderSnapshot({"U2": {0: 1, 1: 2, 2: 2, 3: -1}})
>>> [improved.partition("U2", None, 100, seen) for _ in range(4)]
[0, 1, 2, 0]
"""

from __future__ import annotations

from threading import Lock

from trimtab.plan.records.counters import WITHOUT_SIGN, Starts, per_topic
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions


class _Topic:
    """The available partitions of a topic as last seen, and the current position."""

    __slots__ = ("choices", "count", "lock", "snapshot")

    def __init__(self, start: int) -> None:
        self.lock = Lock()
        self.snapshot: LeaderSnapshot | None = None
        self.choices: tuple[int, ...] = ()
        self.count = start


class Improved:
    """Round robin over available partitions, looked up once."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._topics = per_topic(lambda topic: _Topic(starts.of(topic)))

    def partition(
        self, topic: str, key: bytes | None, _size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or the next available partition."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        state = self._topics[snapshot.cluster][topic]
        with state.lock:
            if state.snapshot is not snapshot:
                table = snapshot.topic(topic)
                state.choices = table.available or table.all
                state.snapshot = snapshot
            count = state.count
            state.count = (count + 1) & WITHOUT_SIGN
            return state.choices[count % len(state.choices)]

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: the choice does not depend on batches."""
