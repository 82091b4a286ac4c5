"""In-memory fakes of the ports, for tests without brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from trimtab.errors import BrokerUnavailable, MeasurementError
from trimtab.kafka.admin import ClusterInfo, TopicSpec
from trimtab.model.cluster import Broker, BrokerId, Group, Replicas, TopicPartition
from trimtab.model.timeouts import Timeouts

_DEFAULT_SETTINGS = {
    "cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
}


class FakeAdmin:
    """An in-memory cluster that implements the admin port.

    `silent` brokers do not respond; with `down` no broker responds. `before[name]` is called before
    the method of that name: a test can use it to change the cluster between two calls.
    """

    def __init__(
        self,
        *,
        brokers: Iterable[Broker] = (),
        partitions: Iterable[Replicas] = (),
        groups: Iterable[Group] = (),
        cluster: str = "fake",
    ) -> None:
        self.timeouts = Timeouts()
        self.brokers = list(brokers)
        self.partitions = {p.name: p for p in partitions}
        self.described = {g.name: g for g in groups}
        self.settings = {p.topic: dict(_DEFAULT_SETTINGS) for p in self.partitions.values()}
        self.cluster_id = cluster
        self.silent: set[BrokerId] = set()
        self.down = False
        self.before: dict[str, Callable[[], None]] = {}

    def cluster(self) -> ClusterInfo:
        """The brokers of the cluster."""
        self._enter("cluster")
        live = frozenset(b.id for b in self.brokers) - self.silent
        return ClusterInfo(cluster=self.cluster_id, brokers=tuple(self.brokers), live=live)

    def topics(self, names: Collection[str] | None = None) -> tuple[Replicas, ...]:
        """The partitions of these topics, or of all, without sizes and offsets."""
        self._enter("topics")
        return tuple(
            replace(p, elr=(), log_bytes=None, begin_offset=None, end_offset=None)
            for name, p in sorted(self.partitions.items())
            if names is None or name.topic in names
        )

    def log_dirs(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """The log size of each partition whose leader responds, in bytes."""
        self._enter("log_dirs")
        return {
            name: p.log_bytes
            for name, p in self.partitions.items()
            if leaders.get(name) == p.leader and p.leader not in self.silent
            if p.log_bytes is not None
        }

    def offsets(
        self, leaders: Mapping[TopicPartition, BrokerId]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First and next offset of each partition whose leader responds."""
        self._enter("offsets")
        return {
            name: (p.begin_offset, p.end_offset)
            for name, p in self.partitions.items()
            if leaders.get(name) == p.leader and p.leader not in self.silent
            if p.begin_offset is not None and p.end_offset is not None
        }

    def ends(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """Next offset of each partition whose leader responds."""
        self._enter("ends")
        return {
            name: p.end_offset
            for name, p in self.partitions.items()
            if leaders.get(name) == p.leader and p.leader not in self.silent
            if p.end_offset is not None
        }

    def group_names(self) -> tuple[str, ...]:
        """Names of all consumer groups."""
        self._enter("group_names")
        return tuple(sorted(self.described))

    def groups(self, names: Collection[str]) -> tuple[Group, ...]:
        """State and members of these groups."""
        self._enter("groups")
        known = sorted(set(names) & self.described.keys())
        return tuple(replace(self.described[name], committed={}) for name in known)

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets of these groups."""
        self._enter("committed")
        return {
            name: dict(self.described[name].committed) if name in self.described else {}
            for name in groups
        }

    def create_topic(self, topic: TopicSpec) -> bool:
        """Creates a topic; its replicas are placed as given, else on the brokers in turn."""
        self._enter("create_topic")
        if topic.name in self.settings:
            return False
        self.settings[topic.name] = _DEFAULT_SETTINGS | dict(topic.settings)
        self._deal(topic.name, range(topic.partitions), topic.replication)
        for number, held in topic.assignment.items():
            self._place(topic.name, number, tuple(map(BrokerId, held)))
        return True

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """All settings of a topic; None if it does not exist."""
        self._enter("topic_settings")
        found = self.settings.get(name)
        return None if found is None else dict(found)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """An id for each of these topics that exists."""
        self._enter("topic_ids")
        return {name: f"id of {name}" for name in sorted(self.settings.keys() & set(names))}

    def min_insync(self, names: Collection[str]) -> dict[str, int]:
        """The min.insync.replicas of these topics, as far as they exist."""
        self._enter("min_insync")
        known = sorted(self.settings.keys() & set(names))
        return {name: int(self.settings[name]["min.insync.replicas"]) for name in known}

    def eligible(self, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Eligible leader replicas of the partitions of these topics that have any."""
        self._enter("eligible")
        return {name: p.elr for name, p in self.partitions.items() if p.topic in names and p.elr}

    def add_partitions(
        self, topic: str, total: int, *, held_by: Sequence[Sequence[int]] = ()
    ) -> None:
        """Raises the number of partitions of a topic to `total`; `held_by` places each new one."""
        self._enter("add_partitions")
        present = [p for p in self.partitions.values() if p.topic == topic]
        if total <= len(present):
            raise MeasurementError(f"Topic {topic} has {len(present)} partitions already.")
        self._deal(topic, range(len(present), total), len(present[0].replicas))
        for number, held in enumerate(held_by, start=len(present)):
            self._place(topic, number, tuple(map(BrokerId, held)))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; does nothing if it does not exist."""
        self._enter("delete_topic")
        self.settings.pop(name, None)
        self.partitions = {k: p for k, p in self.partitions.items() if k.topic != name}

    def _enter(self, method: str) -> None:
        self.before.get(method, lambda: None)()
        if self.down:
            raise BrokerUnavailable("No broker responded.")

    def _deal(self, topic: str, numbers: Iterable[int], replication: int) -> None:
        ids = [b.id for b in self.brokers]
        for number in numbers:
            self._place(
                topic, number, tuple(ids[(number + i) % len(ids)] for i in range(replication))
            )

    def _place(self, topic: str, number: int, replicas: tuple[BrokerId, ...]) -> None:
        self.partitions[TopicPartition(topic, number)] = Replicas(
            topic=topic,
            partition=number,
            leader=replicas[0],
            replicas=replicas,
            isr=replicas,
            log_bytes=0,
            begin_offset=0,
            end_offset=0,
        )


class FakePublisher:
    """Keeps the published records; calls `on_publish` for each."""

    def __init__(self, on_publish: Callable[[], None] = lambda: None) -> None:
        self.records: list[tuple[bytes, bytes]] = []
        self.published = 0
        self.failed = 0
        self._on_publish = on_publish

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Keeps a record; it counts as delivered after the next flush."""
        del topic
        self.records.append((key, value))
        self._on_publish()

    def flush(self) -> None:
        """Marks all records as delivered."""
        self.published = len(self.records)
