"""The narrow admin port: all that Trimtab asks of a cluster and does to it, in our own values.

`Admin` is the port, `KafkaAdmin` the door, `trimtab.testing.fakes.FakeAdmin` its in-memory twin.

Promise  Questions to several brokers go out at once, and each answer counts by itself: a dead or
         hung broker costs its own answers, at most `patience_s` of time, and nobody else's.
         What is unknown is left out of the answer. Being refused is an error, never an unknown.
         Errors of the client libraries leave this module as ours, with their cause kept.
Cost     One request per broker and question (two for offsets). Connections are reused.

kafka-python asks brokers one after the other and lets one failure spoil the whole answer; so the
questions go through its connection manager, which has no public name: `_Line`, `_Manager` and
`_Client` are the only places that know it. Members of groups come from librdkafka, which alone
knows both group protocols.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import kafka.errors as theirs
import structlog
from confluent_kafka import KafkaException as LibrdkafkaException
from confluent_kafka.admin import AdminClient as LibrdkafkaAdmin
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.net.compat import KafkaNetClient
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin import DescribeClusterRequest, DescribeLogDirsRequest, ListGroupsRequest
from kafka.protocol.consumer import ListOffsetsRequest, OffsetFetchRequest, OffsetSpec
from kafka.protocol.metadata import FindCoordinatorRequest, MetadataRequest

from trimtab.client_properties import ClientProperties
from trimtab.errors import ConfigError
from trimtab.measure.kafka import topic_facts
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.workload.kafka.errors import is_authentication, is_passing, kafka_errors, reason_of

log = structlog.get_logger()
_librdkafka_log = logging.getLogger("librdkafka")
_librdkafka_log.addHandler(logging.NullHandler())

_BACKOFF_S = 0.1
_VISIBLE_S = 30.0

for _wire in ("kafka.admin.client", "kafka.net.connection", "kafka.protocol.parser"):
    logging.getLogger(_wire).setLevel(logging.INFO)  # below it they print passwords


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterInfo:
    """Who belongs to a cluster; `live` are the brokers that serve right now."""

    cluster: str | None
    brokers: tuple[Broker, ...]
    live: frozenset[BrokerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic to be created; `assignment` says which brokers hold each partition, leader first."""

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
    """All that Trimtab asks of a cluster and does to it."""

    def cluster(self) -> ClusterInfo:
        """Who belongs to the cluster."""
        ...

    def topics(self, names: Collection[str] | None = None) -> tuple[Replicas, ...]:
        """The partitions of these topics, or of all; topics that do not exist are left out."""
        ...

    def log_dirs(
        self, brokers: Collection[BrokerId], partitions: Collection[TopicPartition]
    ) -> dict[tuple[BrokerId, TopicPartition], int]:
        """Bytes that these partitions take on these brokers; silent brokers are left out."""
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
        """Names of all consumer groups, ascending; those of silent brokers are left out."""
        ...

    def groups(self, names: Collection[str]) -> tuple[Group, ...]:
        """State and members of these groups; only groups that do not exist are left out."""
        ...

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets; a group is left out when its coordinator did not answer."""
        ...

    def create_topic(self, topic: TopicSpec) -> bool:
        """Creates a topic and waits until all see it; False when it was there already."""
        ...

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """All settings of a topic, defaults included; None when there is no such topic."""
        ...

    def min_insync(self, names: Collection[str]) -> dict[str, int]:
        """In-sync replicas that a write with acks=all needs, of all topics that exist."""
        ...

    def eligible(self, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Eligible leader replicas of the partitions of these topics that have any."""
        ...

    def add_partitions(
        self, topic: str, total: int, *, held_by: Sequence[Sequence[int]] = ()
    ) -> None:
        """Raises the number of partitions of a topic to `total`; `held_by` places each new one."""
        ...

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; harmless when it is gone."""
        ...


# ---------------------------------------------------------------- the door


@contextmanager
def connect(
    bootstrap_server: str,
    properties: ClientProperties,
    *,
    connect_within_s: float = 10.0,
    patience_s: float = 10.0,
) -> Iterator[KafkaAdmin]:
    """Opens the admin door; a broker that says nothing for `patience_s` counts as silent."""
    line = _Line(bootstrap_server, properties, connect_within_s, patience_s)
    try:
        yield KafkaAdmin(line)
    finally:
        line.close()


class _Line:
    """The wire to the brokers: one question to one broker, to any, or to many at once."""

    def __init__(
        self,
        bootstrap_server: str,
        properties: ClientProperties,
        connect_within_s: float,
        patience_s: float,
    ) -> None:
        self.servers = bootstrap_server
        self.properties = properties
        self.patience_s = patience_s
        self._owed: dict[int, Any] = {}  # answers that brokers still owe us
        self._missing: set[int] = set()  # brokers that did not answer when last asked
        opened: list[_Client] = []

        def client(**config: Any) -> _Client:
            opened.append(_Client(**config))
            return opened[-1]

        config = {
            "client_id": "trimtab-admin",
            "request_timeout_ms": max(10_000, int(patience_s * 1000)),
            "reconnect_backoff_max_ms": 1_000,
            **properties.for_kafka_python(),
            "bootstrap_servers": bootstrap_server.split(","),
            "bootstrap_timeout_ms": int(connect_within_s * 1000),
            "kafka_client": client,
        }
        with kafka_errors(f"connecting to {bootstrap_server}"):
            try:
                self.client = KafkaAdminClient(**config)
            except Exception as error:
                # A time-out says less than the failure that repeated itself until then.
                known = next((c.failure for c in opened if c.failure is not None), None)
                for half_open in opened:
                    half_open.give_up()
                if isinstance(error, ValueError):
                    raise ConfigError(
                        f"{bootstrap_server} does not name brokers.",
                        hint="--bootstrap-server takes HOST:PORT,HOST:PORT,…",
                    ) from error
                if known is not None and isinstance(error, theirs.KafkaTimeoutError):
                    raise known from error
                raise
        self._manager: Any = opened[0]._manager

    def close(self) -> None:
        self.client.close()

    def ask_any(self, request: Callable[[], Any]) -> Any:
        """Asks one broker after another until one answers."""
        deadline = time.monotonic() + self.patience_s * 2
        while True:
            node = self._manager.least_loaded_node()
            answers, failures = self._ask({} if node is None else {node: request})
            if answers:
                return answers[node]
            error = failures.get(node, theirs.KafkaConnectionError("not connected to any broker"))
            if not is_passing(error) or time.monotonic() > deadline:
                raise error
            time.sleep(_BACKOFF_S)

    def ask_each(
        self, requests: Mapping[BrokerId, Callable[[], Any]], what: str
    ) -> dict[BrokerId, Any]:
        """Asks brokers at once; those that do not answer are logged and left out."""
        answers, failures = self._ask(requests)
        for broker, error in sorted(failures.items()):
            if not is_passing(error):
                raise error
            if broker not in self._missing:  # said once, not at every question
                log.warning("broker_did_not_answer", broker=broker, to=what, why=reason_of(error))
        for broker in sorted(answers.keys() & self._missing):
            log.warning("broker_answered_again", broker=broker)
        self._missing = (self._missing | failures.keys()) - answers.keys()
        return {BrokerId(broker): answer for broker, answer in answers.items()}

    def _ask(
        self, requests: Mapping[Any, Callable[[], Any]]
    ) -> tuple[dict[Any, Any], dict[Any, Exception]]:
        return self._manager.run(self._ask_at_once, requests)  # type: ignore[no-any-return]

    async def _ask_at_once(
        self, requests: Mapping[Any, Callable[[], Any]]
    ) -> tuple[dict[Any, Any], dict[Any, Exception]]:
        answers: dict[Any, Any] = {}
        failures: dict[Any, Exception] = {}
        sent = {}
        for broker, request in requests.items():
            owed = self._owed.get(broker)
            if owed is not None and not owed.is_done:
                failures[broker] = theirs.KafkaTimeoutError("an earlier question is unanswered")
                continue
            self._owed.pop(broker, None)
            try:
                sent[broker] = self._manager.send(request(), node_id=broker)
            except theirs.KafkaError as error:
                failures[broker] = error
                # The broker may be newer than what the client knows of the cluster.
                self._manager.cluster.request_update()
        until = time.monotonic() + self.patience_s
        for broker, future in sent.items():
            left_ms = max(0.0, until - time.monotonic()) * 1000
            try:
                answers[broker] = await self._manager.wait_for(future, left_ms)
            except theirs.KafkaError as error:
                failures[broker] = error
                if not future.is_done:
                    self._owed[broker] = future
                    failures[broker] = theirs.KafkaTimeoutError(f"silent for {self.patience_s:g} s")
        return answers, failures


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Remembers why the first connections failed, and gives up at once on wrong credentials."""

    failure: Exception | None = None

    async def _build_transport(self, *arguments: Any, **options: Any) -> Any:
        transport = await super()._build_transport(*arguments, **options)
        receive = transport._sock_recv

        def last_words_first() -> tuple[bytes, Exception | None]:
            # A broker says why it refuses us and hangs up; the library would drop what it said.
            data, error = receive()
            return data, None if data else error

        transport._sock_recv = last_words_first
        return transport

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        if self.cluster.is_bootstrap(node_id):
            if self.failure is not None and is_authentication(self.failure):
                raise self.failure
            connection = super().get_connection(node_id, **options)
            connection.init_future.add_errback(self._remember)
            return connection
        return super().get_connection(node_id, **options)

    def _remember(self, error: Exception) -> None:
        self.failure = error


class _Client(KafkaNetClient):  # type: ignore[misc]
    """The client's network side with our connection manager."""

    def __init__(self, **config: Any) -> None:
        net = NetworkSelector(**config)
        super().__init__(net=net, manager=_Manager(net, **config), **config)

    @property
    def failure(self) -> Exception | None:
        failure: Exception | None = self._manager.failure
        return failure

    def give_up(self) -> None:
        """Ends the thread that a client leaves behind when it cannot connect."""
        self._manager.close()
        self._net.stop()
        self._net.close()


class KafkaAdmin:
    """The admin port on a real cluster (Kafka 3.0 or newer)."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self._members: LibrdkafkaAdmin | None = None

    def cluster(self) -> ClusterInfo:
        """Who belongs to the cluster; brokers that are down but registered stand in it too."""
        with kafka_errors("describing the cluster"):
            answer = self._line.ask_any(lambda: DescribeClusterRequest(include_fenced_brokers=True))
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
            return _placed(self._line.ask_any(_metadata_request(names)))

    def log_dirs(
        self, brokers: Collection[BrokerId], partitions: Collection[TopicPartition]
    ) -> dict[tuple[BrokerId, TopicPartition], int]:
        """Bytes that these partitions take on these brokers."""

        def request() -> Any:
            kind = DescribeLogDirsRequest.DescribableLogDirTopic
            return DescribeLogDirsRequest(
                topics=[
                    kind(topic=topic, partitions=numbers)
                    for topic, numbers in _by_topic(partitions).items()
                ]
            )

        sizes = {}
        with kafka_errors("describing log dirs"):
            answers = self._line.ask_each(dict.fromkeys(brokers, request), "describe log dirs")
            for broker, answer in answers.items():
                _raise(getattr(answer, "error_code", 0) or 0)
                for folder in answer.results:
                    error = _error(folder.error_code)
                    if error is not None:
                        log.warning("log_dir_was_offline", broker=broker, why=reason_of(error))
                        continue
                    for topic in folder.topics:
                        for p in topic.partitions:
                            if not p.is_future_key:  # a copy on its way to another disk
                                name = TopicPartition(topic.name, p.partition_index)
                                sizes[broker, name] = p.partition_size
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
        led: defaultdict[BrokerId, list[TopicPartition]] = defaultdict(list)
        for name, leader in leaders.items():
            if leader >= 0:
                led[leader].append(name)
        found = {}
        with kafka_errors("listing offsets"):
            answers = self._line.ask_each(
                {broker: _offsets_request(names, spec) for broker, names in led.items()},
                "list offsets",
            )
            for answer in answers.values():
                for topic in answer.topics:
                    for p in topic.partitions:
                        error = _error(p.error_code)
                        if error is None and p.offset >= 0:
                            found[TopicPartition(topic.name, p.partition_index)] = p.offset
                        elif error is not None and not is_passing(error):
                            raise error
        return found

    def group_names(self) -> tuple[str, ...]:
        """Names of all consumer groups, ascending."""
        names = set()
        brokers = self.cluster().live
        with kafka_errors("listing groups"):
            answers = self._line.ask_each(
                dict.fromkeys(sorted(brokers), ListGroupsRequest), "list groups"
            )
            for answer in answers.values():
                error = _error(answer.error_code)
                if error is not None and not is_passing(error):
                    raise error
                # Offsets may be committed without a protocol: then there is no type.
                names |= {g.group_id for g in answer.groups if g.protocol_type in {"consumer", ""}}
        return tuple(sorted(names))

    def groups(self, names: Collection[str]) -> tuple[Group, ...]:
        """State and members of these groups."""
        if not names:
            return ()
        with kafka_errors("describing groups"):
            if self._members is None:
                config: dict[str, Any] = {
                    "client.id": "trimtab-admin",
                    **self._line.properties.for_confluent(),
                    "bootstrap.servers": self._line.servers,
                    "logger": _librdkafka_log,
                }
                self._members = LibrdkafkaAdmin(config)
            described = self._described(self._members, set(names))
        return tuple(
            Group(
                name=name,
                state=found.state.name,
                members=tuple(sorted((_member(m) for m in found.members), key=_by_id)),
            )
            for name, found in sorted(described.items())
            if found.state.name != "DEAD"
        )

    def _described(self, admin: LibrdkafkaAdmin, pending: set[str]) -> dict[str, Any]:
        """Groups as librdkafka describes them; coordinators not ready yet are asked again."""
        found: dict[str, Any] = {}
        deadline = time.monotonic() + self._line.patience_s
        while pending:
            answers = admin.describe_consumer_groups(
                sorted(pending), request_timeout=self._line.patience_s
            )
            for name, answer in answers.items():
                try:
                    found[name] = answer.result()
                except LibrdkafkaException as error:
                    if not is_passing(error) or time.monotonic() > deadline:
                        raise
            pending = pending - found.keys()
            if pending:
                time.sleep(_BACKOFF_S)
        return found

    def committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        """Committed offsets of these groups."""
        found: dict[str, dict[TopicPartition, int]] = {}
        pending = set(groups)
        deadline = time.monotonic() + self._line.patience_s
        with kafka_errors("reading committed offsets"):
            while pending:
                answered = self._committed(pending)
                found |= answered
                pending -= answered.keys()
                # A fresh cluster has no coordinators yet, and they move when a broker dies.
                if not pending or time.monotonic() > deadline:
                    break
                time.sleep(_BACKOFF_S)
        for name in sorted(pending):
            log.warning("coordinator_did_not_answer", group=name)
        return found

    def _committed(self, groups: Collection[str]) -> dict[str, dict[TopicPartition, int]]:
        found: dict[str, dict[TopicPartition, int]] = {}
        answers = self._line.ask_each(
            {
                broker: _committed_request(names)
                for broker, names in self._coordinators(groups).items()
            },
            "read committed offsets",
        )
        for answer in answers.values():
            for group in answer.groups:
                error = _error(group.error_code)
                if isinstance(error, theirs.GroupIdNotFoundError):
                    found[group.group_id] = {}
                elif error is None:
                    found[group.group_id] = {
                        TopicPartition(topic.name, p.partition_index): p.committed_offset
                        for topic in group.topics
                        for p in topic.partitions
                        if p.error_code == 0 and p.committed_offset >= 0
                    }
                elif not is_passing(error):
                    raise error
        return found

    def _coordinators(self, groups: Collection[str]) -> dict[BrokerId, list[str]]:
        led: defaultdict[BrokerId, list[str]] = defaultdict(list)
        keys = sorted(groups)
        answer = self._line.ask_any(
            lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=keys, min_version=4)
        )
        for coordinator in answer.coordinators:
            error = _error(coordinator.error_code)
            if error is None:
                led[BrokerId(coordinator.node_id)].append(coordinator.key)
            elif not is_passing(error):
                raise error
        return dict(led)

    def create_topic(self, topic: TopicSpec) -> bool:
        """Creates a topic and waits until all see it; False when it was there already."""
        counted = {"num_partitions": topic.partitions, "replication_factor": topic.replication}
        placed = {"assignments": {number: list(held) for number, held in topic.assignment.items()}}
        wanted = {**(placed if topic.assignment else counted), "configs": dict(topic.settings)}
        with kafka_errors(f"creating topic {topic.name}"):
            try:
                self._line.client.create_topics({topic.name: wanted})
            except theirs.TopicAlreadyExistsError:
                return False
            self._wait_until_seen(topic.name, partitions=topic.partitions)
        return True

    def topic_settings(self, name: str) -> dict[str, str] | None:
        """All settings of a topic, defaults included; None when there is no such topic."""
        if not self.topics([name]):
            return None
        with kafka_errors(f"reading the settings of topic {name}"):
            asked = [ConfigResource(ConfigResourceType.TOPIC, name)]
            found = self._line.client.describe_configs(asked, config_filter="all")
        settings = found.get("topic", {}).get(name, {})
        return {key: entry["value"] or "" for key, entry in settings.items()}

    def min_insync(self, names: Collection[str]) -> dict[str, int]:
        """In-sync replicas that a write with acks=all needs, of all topics that exist."""
        with kafka_errors("reading min.insync.replicas of topics"):
            return topic_facts.min_insync(self._line.ask_any, names)

    def eligible(self, names: Collection[str]) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Eligible leader replicas of the partitions of these topics that have any."""
        with kafka_errors("reading eligible leader replicas"):
            return topic_facts.eligible(self._line.ask_any, names)

    def add_partitions(
        self, topic: str, total: int, *, held_by: Sequence[Sequence[int]] = ()
    ) -> None:
        """Raises the number of partitions of a topic to `total`; `held_by` places each new one."""
        wanted = {"count": total, "assignments": [list(held) for held in held_by]}
        with kafka_errors(f"adding partitions to topic {topic}"):
            self._line.client.create_partitions({topic: wanted if held_by else total})
            self._wait_until_seen(topic, partitions=total)

    def delete_topic(self, name: str) -> None:
        """Deletes a topic; harmless when it is gone."""
        with kafka_errors(f"deleting topic {name}"):
            try:
                self._line.client.delete_topics([name])
            except theirs.UnknownTopicOrPartitionError:
                return
            self._wait_until_seen(name, partitions=0)

    def _wait_until_seen(self, topic: str, *, partitions: int) -> None:
        """Waits until every broker that answers shows these partitions, each with a leader."""
        deadline = time.monotonic() + _VISIBLE_S
        everyone = dict.fromkeys(self.cluster().live, _metadata_request([topic]))
        while time.monotonic() < deadline:
            answers = self._line.ask_each(everyone, "show a topic")
            if answers and all(
                sum(not p.offline for p in _placed(a)) == partitions for a in answers.values()
            ):
                return
            time.sleep(_BACKOFF_S)
        raise theirs.KafkaTimeoutError(f"the brokers did not all see it within {_VISIBLE_S:g} s")


def _error(code: int) -> theirs.KafkaError | None:
    """The error that a response carries as a number; None for success."""
    kind = theirs.for_code(code)
    return None if kind is theirs.NoError else kind()


def _raise(code: int) -> None:
    error = _error(code)
    if error is not None:
        raise error


def _metadata_request(names: Collection[str] | None) -> Callable[[], Any]:
    topic = MetadataRequest.MetadataRequestTopic
    return lambda: MetadataRequest(
        topics=None if names is None else [topic(name=name) for name in sorted(set(names))],
        allow_auto_topic_creation=False,
    )


def _placed(answer: Any) -> tuple[Replicas, ...]:
    found = []
    for topic in answer.topics:
        error = _error(topic.error_code)
        if isinstance(error, theirs.UnknownTopicOrPartitionError):
            continue
        if error is not None and not is_passing(error):
            raise error
        found += [_replicas(topic.name, p) for p in topic.partitions]
    return tuple(sorted(found, key=lambda p: p.name))


def _replicas(topic: str, found: Any) -> Replicas:
    return Replicas(
        topic=topic,
        partition=found.partition_index,
        leader=BrokerId(found.leader_id),
        replicas=tuple(map(BrokerId, found.replica_nodes)),
        isr=tuple(map(BrokerId, found.isr_nodes)),
    )


def _member(found: Any) -> Member:
    assigned = found.assignment.topic_partitions if found.assignment else ()
    return Member(
        member_id=found.member_id,
        client_id=found.client_id,
        host=found.host,
        partitions=frozenset(TopicPartition(p.topic, p.partition) for p in assigned),
    )


def _by_id(member: Member) -> str:
    return member.member_id


def _by_topic(names: Collection[TopicPartition]) -> dict[str, list[int]]:
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(names):
        numbers[topic].append(partition)
    return numbers


def _offsets_request(names: Collection[TopicPartition], spec: OffsetSpec) -> Callable[[], Any]:
    topic = ListOffsetsRequest.ListOffsetsTopic
    partition = topic.ListOffsetsPartition
    return lambda: ListOffsetsRequest(
        isolation_level=0,
        topics=[
            topic(
                name=name,
                partitions=[partition(partition_index=n, timestamp=int(spec)) for n in numbers],
            )
            for name, numbers in _by_topic(names).items()
        ],
    )


def _committed_request(groups: Collection[str]) -> Callable[[], Any]:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return lambda: OffsetFetchRequest(
        groups=[group(group_id=name, topics=None) for name in groups],
        min_version=8,
        max_version=8,  # later ones name topics by id
    )
