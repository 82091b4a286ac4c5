"""Our partitioners behind the partitioner interface of kafka-python.

Why      For a keyless record that would open a batch, kafka-python 3 asks twice: it drops the first
         answer, calls `on_new_batch`, asks again. A plain round robin would skip partitions.
Promise  The second answer is the first one; only `sticky` changes its partition then, and only
         then. Leaders are at most `table_ttl_ms` older than the producer's metadata. One instance
         serves any number of producers and threads; those of one cluster share one snapshot, the
         union of their metadata. Keyed records go to the partition of kafka-python's
         DefaultPartitioner. Like that, it raises ValueError for a topic without metadata.
Cost     Per record a weak look-up and a clock reading; per topic and `table_ttl_ms` O(partitions).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, WeakValueDictionary, ref

import kafka
import kafka.partitioner
from kafka import TopicPartition

from trimtab.errors import ConfigError, UnknownTopic
from trimtab.model.cluster import NO_LEADER
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions
from trimtab.plan.records.peers import Sticky
from trimtab.plan.records.registry import partitioner_of

_WITHOUT_LEADERS = frozenset({"default", "improved"})
_unnamed = count(1)
_Interface = getattr(kafka.partitioner, "Partitioner", object)  # version 2 has none

LegacyPartitioner = Callable[[bytes | None, Sequence[int], Sequence[int]], int]
"""A partitioner of version 2: (key, all partitions, available partitions) → partition."""


class RoutedPartitioner(_Interface):  # type: ignore[misc,valid-type]
    """One of our partitioners for `KafkaProducer(partitioner=…)`."""

    def __init__(
        self,
        partitioner: Partitioner,
        *,
        table_ttl_ms: float = 100.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Serves any number of producers.

        Args:
            partitioner: The partitioner that chooses.
            table_ttl_ms: How long leaders are used before the metadata is read again.
            clock: Monotonic seconds.
        """
        self._choose = partitioner.partition
        self._sticky = partitioner if isinstance(partitioner, Sticky) else None
        if self._sticky is not None:
            self._sticky.batches_are_reported()
        self._ttl_s = table_ttl_ms / 1000
        self._clock = clock
        self._guard = threading.Lock()
        self._views: WeakKeyDictionary[Any, _View] = WeakKeyDictionary()
        self._clusters: WeakValueDictionary[str, _Cluster] = WeakValueDictionary()

    def partition(
        self,
        topic: str,
        key: object,
        serialized_key: bytes | None,
        value: object,
        serialized_value: bytes | None,
        cluster: Any,
    ) -> int:
        """The partition for a record; `cluster` is the producer's live metadata."""
        del key, value
        view = self._views.get(cluster)
        if view is None:
            view = self._met(cluster)
        now = self._clock()
        if now >= view.due.get(topic, now):
            self._look(view, topic, cluster, now)
        snapshot = view.cluster.snapshot
        if serialized_key is None:
            again = view.taken_back(topic)
            if again is not None and _takes(snapshot, topic, again):
                return again
            size = 0
        else:
            size = len(serialized_key)
            if type(serialized_key) is not bytes:
                serialized_key = bytes(serialized_key)
        if serialized_value is not None:
            size += len(serialized_value)
        try:
            return self._choose(topic, serialized_key, size, snapshot)
        except UnknownTopic as unknown:
            raise ValueError(unknown.message) from unknown

    def on_new_batch(self, topic: str, cluster: Any, prev_partition: int) -> None:
        """The producer drops the answer, since a batch would open, and asks again."""
        view = self._views.get(cluster) or self._met(cluster)
        if self._sticky is not None:
            self._sticky.closed(topic, prev_partition, view.cluster.name)
        else:
            view.local.taken_back = topic, prev_partition

    def _met(self, cluster: Any) -> _View:
        with self._guard:
            view = self._views.get(cluster)
            if view is None:
                name: str | None = cluster.cluster_id
                whole = None if name is None else self._clusters.get(name)
                if whole is None:
                    whole = _Cluster(name)
                    if name is not None:
                        self._clusters[name] = whole
                view = _View(whole)
                whole.views.add(view)
                cluster.add_listener(view.on_refresh)
                self._views[cluster] = view
        return view

    def _look(self, view: _View, topic: str, cluster: Any, now: float) -> None:
        """Compares the known leaders with the metadata: one topic, or all after a refresh."""
        with self._guard:
            due = view.due  # a refresh from here on replaces it
            changed = not due and view.saw_racks(_racks(cluster))
            asked = {topic} if due else view.seen.keys() | {topic, *_topics(cluster)}
            for name in asked:
                changed |= view.saw(name, _leaders(cluster, name))
                due[name] = now + self._ttl_s
            if changed:
                view.cluster.merge()


class _Cluster:
    """One cluster, as all producers of an instance know it together."""

    def __init__(self, name: str | None) -> None:
        self.name = name or f"unnamed {next(_unnamed)}"
        self.views: WeakSet[_View] = WeakSet()
        self.snapshot = LeaderSnapshot({})
        self.changes = 0

    def merge(self) -> None:
        """Replaces the snapshot; the latest change of all producers counts."""
        newest: dict[str, tuple[int, Mapping[int, int]]] = {}
        racks: dict[int, str | None] = {}
        for view in self.views:
            racks |= view.racks
            for topic, seen in view.seen.items():
                if topic not in newest or newest[topic][0] < seen[0]:
                    newest[topic] = seen
        leaders = {topic: of_topic for topic, (_, of_topic) in newest.items()}
        self.snapshot = LeaderSnapshot(leaders, racks, self.name)


class _View:
    """One producer's metadata as last read; keeps no reference to the metadata itself."""

    def __init__(self, cluster: _Cluster) -> None:
        self.cluster = cluster
        self.seen: dict[str, tuple[int, Mapping[int, int]]] = {}
        self.racks: Mapping[int, str | None] = {}
        self.due: dict[str, float] = {}
        self.local = threading.local()

    def on_refresh(self, _cluster: Any) -> None:
        """The metadata was refreshed: everything must be read again."""
        self.due = {}

    def taken_back(self, topic: str) -> int | None:
        """The answer of this thread that the producer dropped; returned once."""
        dropped: tuple[str, int] | None = getattr(self.local, "taken_back", None)
        if dropped is None or dropped[0] != topic:
            return None
        self.local.taken_back = None
        return dropped[1]

    def saw(self, topic: str, leaders: Mapping[int, int] | None) -> bool:
        """Stores the leaders of a topic, None if it was deleted; True if they changed."""
        before = self.seen.get(topic)
        if leaders is None:
            self.seen.pop(topic, None)
            return before is not None
        if before is not None and before[1] == leaders:
            return False
        self.cluster.changes += 1
        self.seen[topic] = self.cluster.changes, leaders
        return True

    def saw_racks(self, racks: Mapping[int, str | None]) -> bool:
        """Stores the racks of brokers; True if they changed."""
        before, self.racks = self.racks, racks
        return before != racks


def _takes(snapshot: LeaderSnapshot, topic: str, partition: int) -> bool:
    try:
        return snapshot.topic(topic).takes(partition)
    except UnknownTopic:
        return False


def _topics(cluster: Any) -> Collection[str]:
    topics: Collection[str] = cluster.topics(exclude_internal_topics=False)
    return topics


def _leaders(cluster: Any, topic: str) -> dict[int, int] | None:
    try:
        partitions = cluster.partitions_for_topic(topic)
        if partitions is None:
            return None
        found = {p: cluster.leader_for_partition(TopicPartition(topic, p)) for p in partitions}
    except KeyError:  # the metadata was replaced meanwhile, without the topic
        return None
    return {p: NO_LEADER if leader is None else leader for p, leader in found.items()}


def _racks(cluster: Any) -> dict[int, str | None]:
    return {broker.node_id: broker.rack for broker in cluster.brokers()}


# ---------------------------------------------------------------- versions of kafka-python


def for_kafka_python(
    name: str,
    options: RoutingOptions | None = None,
    *,
    version: str = kafka.__version__,
) -> RoutedPartitioner | LegacyPartitioner:
    """The partitioner of that name for the installed kafka-python.

    Version 2 gives partitioners neither topic nor leaders: only `default` and `improved` are
    supported, with one counter for all topics.
    """
    options = options or RoutingOptions()
    if int(version.partition(".")[0]) >= 3:
        return RoutedPartitioner(partitioner_of(name, options))
    if name not in _WITHOUT_LEADERS:
        raise ConfigError(
            f"kafka-python {version} does not give leaders to partitioners: {name} is not "
            "supported.",
            hint="Install kafka-python 3, or use trimtab's RoutedProducer.",
        )
    return _without_leaders(partitioner_of(name, options))


def _without_leaders(partitioner: Partitioner) -> LegacyPartitioner:
    unknown_topic = ""
    last: tuple[tuple[Sequence[int], ...], LeaderSnapshot] = ((), LeaderSnapshot({}))

    def partition(
        key: bytes | None, all_partitions: Sequence[int], available: Sequence[int]
    ) -> int:
        nonlocal last
        given = tuple(all_partitions), tuple(available)
        known = last
        if known[0] != given:
            led = dict.fromkeys(all_partitions, int(NO_LEADER)) | dict.fromkeys(available, 0)
            known = last = given, LeaderSnapshot({unknown_topic: led})
        return partitioner.partition(unknown_topic, key, 0, known[1])

    return partition


# ---------------------------------------------------------------- queues


class WaitingBatches:
    """Counts batches that wait in the buffers of producers: `RoutingOptions.queues` of `adaptive`.

    Producers are created after their partitioner, so they are added afterwards:

        waiting = WaitingBatches()
        adaptive = partitioner_of("adaptive", RoutingOptions(queues=waiting))
        producer = KafkaProducer(partitioner=RoutedPartitioner(adaptive), …)
        waiting.watch(producer)

    Producers are referenced weakly. One whose buffer is not accessible counts as empty.
    """

    def __init__(self) -> None:
        self._buffers: tuple[ref[Any], ...] = ()

    def watch(self, producer: Any) -> None:
        """Counts the batches of this producer too."""
        buffer = getattr(producer, "_accumulator", None)
        if hasattr(buffer, "_batches"):
            existing = tuple(b for b in self._buffers if b() is not None)
            self._buffers = (*existing, ref(buffer))

    def __call__(self, topic: str) -> Mapping[int, int]:
        """The number of waiting batches per partition of a topic; 0 may be left out."""
        waiting: dict[int, int] = {}
        for buffer in self._buffers:
            if (existing := buffer()) is not None:
                for place in list(existing._batches):  # the producer's threads add to it
                    if place.topic == topic:
                        count = len(existing._batches[place])
                        waiting[place.partition] = waiting.get(place.partition, 0) + count
        return waiting
