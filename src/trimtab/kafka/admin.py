"""The admin port: every admin request Trimtab sends to a cluster, with Trimtab's own values.

`Admin` is the protocol, `KafkaAdmin` implements it for a real cluster, and
`trimtab.testing.fakes.FakeAdmin` implements it in memory.

Promise  A dead or hung broker loses only its own answers (`requests.py`). Values that are unknown
         are left out of the answer. Missing authorization is an error, never an unknown value.
         Errors of the client library are raised as Trimtab's, with the cause kept.
Cost     One request per broker and call (two for offsets). Connections are reused.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import kafka.errors as theirs
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetSpec
from kafka.protocol.metadata import MetadataRequest

from trimtab.kafka import consumer_groups, topic_facts
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors, reason_of
from trimtab.kafka.requests import Connections, error_of
from trimtab.kafka.retry import attempts
from trimtab.model.cluster import Broker, BrokerId, Group, Replicas, TopicPartition
from trimtab.model.timeouts import Timeouts
from trimtab.observe.logging import library_log

log = library_log()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """The brokers of a cluster; `live` are those that are running now."""

    cluster: str | None
    brokers: tuple[Broker, ...]
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to create; `assignment` lists the replicas of each partition, leader first."""

    name: str
    partitions: int
    replication: int
    settings: Mapping[str, str] = field(default_factory=dict)
    assignment: Mapping[int, Sequence[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.assignment and sorted(self.assignment) != list(range(self.partitions)):
            raise ValueError(f"topic {self.name}: assignment and partitions do not agree")
        if any(len(set(held)) != self.replication for held in self.assignment.values()):
            raise ValueError(f"topic {self.name}: assignment and replication do not agree")


class Admin(Protocol):
    """The admin requests that Trimtab needs."""

    @property
    def timeouts(self) -> Timeouts:
        """How long brokers may take."""
        ...

    def cluster(self) -> ClusterInfo:
        """The brokers of the cluster."""
        ...

    def topics(self, names: Collection[str] | None = None) -> tuple[Replicas, ...]:
        """The partitions of these topics, or of all; topics that do not exist are left out."""
        ...

    def log_dirs(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """Bytes of each partition on its leader; unknown ones are left out."""
        ...

    def offsets(
        self, leaders: Mapping[TopicPartition, BrokerId]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First and next offset of each partition, from its leader; unknown ones are left out."""
        ...

    def ends(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """Next offset of each partition, from its leader; unknown ones are left out."""
        ...

    def group_names(self) -> tuple[str, ...]:
        """Names of all consumer groups, sorted, without those of brokers that do not answer."""
        ...

    def groups(self, names: Collection[str]) -> tuple[Group, ...]:
        """State and members of these groups; only groups that do not exist are left out."""
        ...

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets; a group is left out when its coordinator did not answer."""
        ...

    def create_topic(self, topic: TopicSpec) -> bool:
        """Creates a topic and waits until all brokers know it; False if it already existed."""
        ...

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """All settings of a topic, defaults included; None if the topic does not exist."""
        ...

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """The id of each topic; one that is created again gets another. Others are left out."""
        ...

    def min_insync(self, names: Collection[str]) -> dict[str, int]:
        """min.insync.replicas by topic; topics that do not exist are left out."""
        ...

    def eligible(self, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Eligible leader replicas of the partitions of these topics that have any."""
        ...

    def add_partitions(
        self, topic: str, total: int, *, held_by: Sequence[Sequence[int]] = ()
    ) -> None:
        """Raises the number of partitions to `total`; `held_by` lists the new ones' replicas."""
        ...

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; does nothing if it does not exist."""
        ...


# ---------------------------------------------------------------- the implementation


@contextmanager
def connect(
    cluster: Cluster,
    *,
    connect_within_s: float,
    patience_s: float,
) -> Iterator[KafkaAdmin]:
    """Connects to a cluster; `patience_s` is how long to wait for a broker's answer."""
    brokers = Connections(cluster, connect_within_s, patience_s)
    try:
        yield KafkaAdmin(brokers, cluster.timeouts)
    finally:
        brokers.close()


class KafkaAdmin:
    """The admin port on a real cluster (Kafka 3.0 or newer)."""

    def __init__(self, brokers: Connections, timeouts: Timeouts) -> None:
        self._brokers = brokers
        self._timeouts = timeouts

    @property
    def timeouts(self) -> Timeouts:
        """How long brokers may take."""
        return self._timeouts

    def cluster(self) -> ClusterInfo:
        """The brokers of the cluster, including registered brokers that are down."""
        with kafka_errors("describing the cluster"):
            answer = self._brokers.ask_any(
                lambda: DescribeClusterRequest(include_fenced_brokers=True)
            )
            _raise(answer.error_code)
        brokers = sorted(answer.brokers, key=lambda b: b.broker_id)
        return ClusterInfo(
            cluster=answer.cluster_id,
            brokers=tuple(Broker(id=BrokerId(b.broker_id), rack=b.rack) for b in brokers),
            live=frozenset(
                BrokerId(b.broker_id) for b in brokers if not getattr(b, "is_fenced", False)
            ),
        )

    def topics(self, names: Collection[str] | None = None) -> tuple[Replicas, ...]:
        """The partitions of these topics, or of all."""
        with kafka_errors("listing topics"):
            return _placed(self._brokers.ask_any(_metadata_request(names)))

    def log_dirs(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """Size in bytes of each partition on its leader."""
        sizes = {}
        with kafka_errors("describing log dirs"):
            answers = self._brokers.ask_each(
                {broker: partial(_log_dirs_request, led) for broker, led in _led(leaders).items()},
                "describe log dirs",
            )
            for broker, answer in answers.items():
                _raise(getattr(answer, "error_code", 0) or 0)
                for folder in answer.results:
                    error = error_of(folder.error_code)
                    if error is not None:
                        log.warning("log_dir_was_offline", broker=broker, why=reason_of(error))
                        continue
                    for topic in folder.topics:
                        for p in topic.partitions:
                            if not p.is_future_key:  # a copy on its way to another disk
                                name = TopicPartition(topic.name, p.partition_index)
                                sizes[name] = p.partition_size
        return sizes

    def offsets(
        self, leaders: Mapping[TopicPartition, BrokerId]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """First and next offset of each partition, from its leader."""
        begin = self._offsets(leaders, OffsetSpec.EARLIEST)
        end = self._offsets(leaders, OffsetSpec.LATEST)
        return {name: (begin[name], end[name]) for name in begin.keys() & end.keys()}

    def ends(self, leaders: Mapping[TopicPartition, BrokerId]) -> dict[TopicPartition, int]:
        """Next offset of each partition, from its leader."""
        return self._offsets(leaders, OffsetSpec.LATEST)

    def _offsets(
        self, leaders: Mapping[TopicPartition, BrokerId], spec: OffsetSpec
    ) -> dict[TopicPartition, int]:
        found = {}
        with kafka_errors("listing offsets"):
            answers = self._brokers.ask_each(
                {
                    broker: partial(_offsets_request, led, spec)
                    for broker, led in _led(leaders).items()
                },
                "list offsets",
            )
            for answer in answers.values():
                for topic in answer.topics:
                    for p in topic.partitions:
                        if p.error_code == 0 and p.offset >= 0:
                            found[TopicPartition(topic.name, p.partition_index)] = p.offset
                        elif p.error_code != 0:
                            _raise_unless_retriable(p.error_code)
        return found

    def group_names(self) -> tuple[str, ...]:
        """Names of all consumer groups, sorted."""
        brokers = self.cluster().live
        with kafka_errors("listing groups"):
            return consumer_groups.names(self._brokers, brokers)

    def groups(self, names: Collection[str]) -> tuple[Group, ...]:
        """State and members of these groups."""
        with kafka_errors("describing groups"):
            return consumer_groups.described(self._brokers, names)

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets of these groups."""
        with kafka_errors("reading committed offsets"):
            return consumer_groups.committed(self._brokers, groups)

    def create_topic(self, topic: TopicSpec) -> bool:
        """Creates a topic and waits until all brokers know it; False if it already existed."""
        counted = {"num_partitions": topic.partitions, "replication_factor": topic.replication}
        placed = {"assignments": {number: list(held) for number, held in topic.assignment.items()}}
        wanted = {**(placed if topic.assignment else counted), "configs": dict(topic.settings)}
        with kafka_errors(f"creating topic {topic.name}"):
            try:
                self._brokers.client.create_topics({topic.name: wanted})
            except theirs.TopicAlreadyExistsError:
                self._wait_until_known(topic.name)  # it may have been created just now
                return False
            self._wait_until_known(topic.name, partitions=topic.partitions)
        return True

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """All settings of a topic, defaults included; None if the topic does not exist."""
        with kafka_errors(f"reading the settings of topic {name}"):
            return topic_facts.settings(self._brokers.ask_any, name)

    def topic_ids(self, names: Collection[str]) -> dict[str, str]:
        """The id of each topic; one that is created again gets another. Others are left out."""
        with kafka_errors("listing topics"):
            answer = self._brokers.ask_any(_metadata_request(names))
            return {
                topic.name: str(topic.topic_id)
                for topic in answer.topics
                if error_of(topic.error_code) is None
            }

    def min_insync(self, names: Collection[str]) -> dict[str, int]:
        """min.insync.replicas by topic; topics that do not exist are left out."""
        with kafka_errors("reading min.insync.replicas of topics"):
            return topic_facts.min_insync(self._brokers.ask_any, names)

    def eligible(self, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Eligible leader replicas of the partitions of these topics that have any."""
        with kafka_errors("reading eligible leader replicas"):
            return topic_facts.eligible(self._brokers.ask_any, names)

    def add_partitions(
        self, topic: str, total: int, *, held_by: Sequence[Sequence[int]] = ()
    ) -> None:
        """Raises the number of partitions to `total`; `held_by` lists the new ones' replicas."""
        wanted = {"count": total, "assignments": [list(held) for held in held_by]}
        with kafka_errors(f"adding partitions to topic {topic}"):
            self._brokers.client.create_partitions({topic: wanted if held_by else total})
            self._wait_until_known(topic, partitions=total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; does nothing if it does not exist."""
        with kafka_errors(f"deleting topic {name}"):
            try:
                self._brokers.client.delete_topics([name])
            except theirs.UnknownTopicOrPartitionError:
                return
            self._wait_until_known(name, partitions=0)

    def _wait_until_known(self, topic: str, *, partitions: int | None = None) -> None:
        """Waits until every broker that answers knows the topic.

        If `partitions` is given, waits until it has that many, each with a leader.
        """
        visible_s = self._timeouts.visible_s
        everyone = dict.fromkeys(self.cluster().live, _metadata_request([topic]))
        for _ in attempts(within_s=visible_s):
            answers = self._brokers.ask_each(everyone, "show a topic")
            shown = [_placed(answer) for answer in answers.values()]
            if partitions is None and shown and all(shown):
                return
            if shown and all(sum(not p.offline for p in s) == partitions for s in shown):
                return
        raise theirs.KafkaTimeoutError(f"not all brokers knew the topic within {visible_s:g} s")


def _raise(code: int) -> None:
    error = error_of(code)
    if error is not None:
        raise error


def _raise_unless_retriable(code: int) -> None:
    error = error_of(code)
    if error is not None and not is_retriable(error):
        raise error


def _metadata_request(names: Collection[str] | None) -> Callable[[], Any]:
    topic = MetadataRequest.MetadataRequestTopic
    return lambda: MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in sorted(set(names))],
        allow_auto_topic_creation=False,
    )


def _placed(answer: Any) -> tuple[Replicas, ...]:
    found: list[Replicas] = []
    for topic in sorted(answer.topics, key=lambda topic: topic.name):
        error = error_of(topic.error_code)
        if isinstance(error, theirs.UnknownTopicOrPartitionError):
            continue
        if error is not None and not is_retriable(error):
            raise error
        partitions = sorted(topic.partitions, key=lambda p: p.partition_index)
        found += [_replicas(topic.name, p) for p in partitions]
    return tuple(found)


def _replicas(topic: str, found: Any) -> Replicas:
    return Replicas(
        topic=topic,
        partition=found.partition_index,
        leader=BrokerId(found.leader_id),
        replicas=tuple(map(BrokerId, found.replica_nodes)),
        isr=tuple(map(BrokerId, found.isr_nodes)),
    )


def _led(
    leaders: Mapping[TopicPartition, BrokerId],
) -> dict[BrokerId, dict[str, list[int]]]:
    """The partitions that each broker leads, by topic."""
    led: defaultdict[BrokerId, dict[str, list[int]]] = defaultdict(dict)
    for (topic, partition), leader in leaders.items():
        if leader >= 0:
            led[leader].setdefault(topic, []).append(partition)
    return led


def _log_dirs_request(led: Mapping[str, list[int]]) -> Any:
    kind = DescribeLogDirsRequest.DescribableLogDirTopic
    return DescribeLogDirsRequest(
        topics=[kind(topic=topic, partitions=numbers) for topic, numbers in led.items()]
    )


def _offsets_request(led: Mapping[str, list[int]], spec: OffsetSpec) -> Any:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition, time = topic.ListOffsetsPartition, int(spec)
    return ListOffsetsRequest(
        isolation_level=0,
        topics=[
            topic(
                name=name,
                partitions=[partition(partition_index=n, timestamp=time) for n in numbers],
            )
            for name, numbers in led.items()
        ],
    )
