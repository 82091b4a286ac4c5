"""Counts how many records each broker receives as leader, from the end offsets of its partitions.

Why      A broker without load is fast, and is no standard for brokers with load.
Promise  Counts in a background thread every two seconds, or less often if that takes over a tenth
         of the time. Topics that steering itself writes are left out. A broker that does not answer
         keeps its last count; counts older than 30 s are unknown for all brokers.
Cost     Per count the metadata of the cluster and one request per broker.

An end offset is the high watermark: with acks=1 and a follower that hangs it does not advance until
the follower leaves the in-sync replicas.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping

from trimtab.apply.records.cluster_poller import ClusterPoller
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import BrokerId, TopicPartition

_EVERY_S = 2.0
_PAUSE_FACTOR = 10.0
_REQUEST_TIMEOUT_S = 5.0  # a silent broker keeps its last count, and delays that of the others
_HOLD_S = 30.0

End = tuple[int, float]
"""The end offset of a partition, and when it was read."""


class Intake(ClusterPoller):
    """Counts records while the block runs."""

    def __init__(self, cluster: Cluster, *, without: Collection[str]) -> None:
        """Starts when entered.

        Args:
            cluster: The cluster to count in.
            without: Topics that do not count.
        """
        super().__init__(
            name="intake", error_event="records_could_not_be_counted", pause_s=_EVERY_S
        )
        self._cluster = cluster
        self._without = frozenset(without)
        self._guard = threading.Lock()
        self._ends: dict[TopicPartition, End] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._records: dict[int, float] = {}
        self._counted_at = float("-inf")

    @property
    def leaders(self) -> Mapping[TopicPartition, int]:
        """The leader of each partition at the last count."""
        return self._leaders

    def records_s(self) -> Mapping[int, float]:
        """Records per second by broker; empty while unknown."""
        with self._guard:
            fresh = time.monotonic() - self._counted_at <= _HOLD_S
            return self._records if fresh else {}

    def count(self, admin: Admin) -> None:
        """Counts once."""
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

    def _poll(self) -> None:
        with self._cluster.admin(patience_s=_REQUEST_TIMEOUT_S) as admin:
            while not self._closed.is_set():
                began = time.monotonic()
                self.count(admin)
                self._succeeded()
                self._closed.wait(max(_EVERY_S, _PAUSE_FACTOR * (time.monotonic() - began)))


def taken(
    before: Mapping[TopicPartition, End],
    ends: Mapping[TopicPartition, End],
    leaders: Mapping[TopicPartition, int],
    *,
    without: Collection[str] = (),
) -> dict[int, float]:
    """Records per second that each broker received as leader; 0 if it leads nothing that counts.

    A broker without a partition that was read both times is left out.

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
        more = max(0, end - known[0]) / (at - known[1])  # a re-created topic starts at 0
        found[leaders[name]] = found.get(leaders[name], 0.0) + more * counts
    return found
