"""How many records each broker takes as a leader, by the ends of its partitions.

Why      A broker that leads nothing of what is written is quick for that alone, and says nothing of
         those that work.
Promise  Counted in a thread of its own, which nobody waits for, every two seconds, or less often
         where that takes over a tenth of the time. Topics that steering itself writes are left out.
         A broker that does not answer keeps what it had; counts older than half a minute are
         unknown, all of them.
Cost     Per count the metadata of the cluster and one request per broker.

An end is the high watermark: with acks=1 and a follower that hangs it stands still, until the
follower leaves the in-sync set.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from trimtab.apply.records.asking import Asking
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import BrokerId, TopicPartition

_EVERY_S = 2.0
_REST = 10.0
_PATIENCE_S = 5.0
_HOLD_S = 30.0

End = tuple[int, float]
"""The end of a partition, and when it was asked for."""


class Intake(Asking):
    """Counts while it is entered."""

    def __init__(self, cluster: Cluster, *, without: Collection[str]) -> None:
        """Begins when entered.

        Args:
            cluster: Where it counts.
            without: Topics that do not count.
        """
        super().__init__(name="intake", complaint="records_could_not_be_counted", rest_s=_EVERY_S)
        self._cluster = cluster
        self._without = frozenset(without)
        self._guard = threading.Lock()
        self._ends: dict[TopicPartition, End] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._records: dict[int, float] = {}
        self._counted_at = float("-inf")

    @property
    def leaders(self) -> Mapping[TopicPartition, int]:
        """Who led what at the last count."""
        return self._leaders

    def records_s(self) -> Mapping[int, float]:
        """Records per second by broker; nothing where nobody knows."""
        with self._guard:
            fresh = time.monotonic() - self._counted_at <= _HOLD_S
            return self._records if fresh else {}

    def count(self, admin: Admin) -> None:
        """Asks once."""
        leaders = {p.name: int(p.leader) for p in admin.topics() if not p.offline}
        found = admin.ends({name: BrokerId(leader) for name, leader in leaders.items()})
        now = time.monotonic()
        ends = {name: (end, now) for name, end in found.items()}
        counted = taken(self._ends, ends, leaders, without=self._without)
        there = set(leaders.values())
        kept = {broker: rate for broker, rate in self._records.items() if broker in there}
        with self._guard:
            self._records = {**kept, **counted}
            if self._ends:
                self._counted_at = now
        self._ends = {name: end for name, end in self._ends.items() if name in leaders} | ends
        self._leaders = leaders

    def _visit(self) -> None:
        with self._cluster.admin(patience_s=_PATIENCE_S) as admin:
            while not self._closed.is_set():
                began = time.monotonic()
                self.count(admin)
                self._went_well()
                self._closed.wait(max(_EVERY_S, _REST * (time.monotonic() - began)))


def taken(
    before: Mapping[TopicPartition, End],
    ends: Mapping[TopicPartition, End],
    leaders: Mapping[TopicPartition, int],
    *,
    without: Collection[str] = (),
) -> dict[int, float]:
    """Records per second that each broker took as a leader; 0 where it leads nothing that counts.

    A broker is left out where nothing of it was asked for both times.

    >>> at = [TopicPartition("t", n) for n in range(3)]
    >>> leaders = {at[0]: 1, at[1]: 1, at[2]: 2}
    >>> first = dict.fromkeys(at, (10, 5.0))
    >>> then = {at[0]: (30, 7.0), at[1]: (20, 7.0), at[2]: (10, 7.0)}
    >>> taken(first, then, leaders)
    {1: 15.0, 2: 0.0}
    """
    found: dict[int, float] = {}
    for name, (end, at) in ends.items():
        known = before.get(name)
        if known is None or at <= known[1]:
            continue
        counts = name.topic not in without
        more = max(0, end - known[0]) / (at - known[1])  # a topic made anew begins at 0
        found[leaders[name]] = found.get(leaders[name], 0.0) + more * counts
    return found
