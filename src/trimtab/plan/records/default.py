"""Default: the hash of the key, else round robin over the partitions that have a leader.

Why      What Kafka's producers did before 2.4, and the baseline for all others.
Promise  While the leaders stay the same, the numbers of keyless records on any two partitions
         differ by at most 1, and by 1 more for every wrap of the counter, with any number of
         threads. If no partition has a leader, all partitions are used in turn.
Cost     Three look-ups per record, as published; O(topics) memory.
Paper    Burato, section 2.2. Differs: keys are ignored with `ignore_keys`.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> default = Default(RoutingOptions(start=0))
>>> seen = LeaderSnapshot({"U2": {0: 1, 1: 2, 2: 2, 3: -1}})
>>> [default.partition("U2", None, 100, seen) for _ in range(4)]
[0, 1, 2, 0]
"""

from __future__ import annotations

from trimtab.plan.records.counters import Counter, Starts, per_topic
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions


class Default:
    """Round robin over available partitions."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._counters = per_topic(lambda topic: Counter(starts.of(topic)))

    def partition(
        self, topic: str, key: bytes | None, _size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or the next available partition."""
        table = snapshot.topic(topic)
        if key is not None and not self.ignore_keys:
            return table.home(key)
        count = self._counters[snapshot.cluster][topic].step()
        choices = table.available or table.all
        return choices[count % len(choices)]

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: the choice does not depend on batches."""
