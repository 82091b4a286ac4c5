"""Our partitioners in real producers, on real brokers."""

from __future__ import annotations

import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from kafka import KafkaProducer

from tests.kafka.streams import read_all
from trimtab.apply.records.kafka.partitioner import RoutedPartitioner
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.local.cluster import LocalCluster
from trimtab.model.murmur2 import home
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions
from trimtab.plan.records.registry import partitioner_of

PLAIN = ClientProperties.none()
VALUE = b"v" * 100
EVEN = {0: [1], 1: [2]}
PAUSE = threading.Event()
UNEVEN = {0: [1], 1: [2], 2: [2]}


class Topics:
    """Makes topics where they are wanted, and counts what is in them."""

    def __init__(self, admin: KafkaAdmin) -> None:
        self.admin = admin
        self.made: list[str] = []

    def make(self, held: dict[int, list[int]], name: str | None = None) -> str:
        name = name or f"routing-{uuid.uuid4().hex[:8]}"
        replication = len(held[0])
        self.admin.create_topic(
            TopicSpec(name=name, partitions=len(held), replication=replication, assignment=held)
        )
        self.made.append(name)
        return name

    def counts(self, topic: str) -> list[int]:
        leaders = {p.name: p.leader for p in self.admin.topics([topic])}
        found = self.admin.offsets(leaders)
        return [found[place][1] for place in sorted(leaders)]


@pytest.fixture(scope="module")
def topics(cluster: LocalCluster) -> Iterator[Topics]:
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        made = Topics(admin)
        yield made
        for name in made.made:
            admin.delete_topic(name)


# ---------------------------------------------------------------- kafka-python


def python_producer(cluster: LocalCluster, partitioner: Partitioner) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers.split(","),
        partitioner=RoutedPartitioner(partitioner),
        linger_ms=5,
        metadata_max_age_ms=2_000,
        request_timeout_ms=10_000,
    )


@pytest.mark.parametrize("name", ["default", "node"])
def test_kafka_python_serves_both_partitions_alike(
    cluster: LocalCluster, topics: Topics, name: str
) -> None:
    topic = topics.make(EVEN)
    producer = python_producer(cluster, partitioner_of(name))
    for _ in range(2000):
        producer.send(topic, VALUE)
    producer.flush(60)
    producer.close()

    counts = topics.counts(topic)

    assert sum(counts) == 2000
    assert max(abs(count - 1000) for count in counts) <= 1


# ---------------------------------------------------------------- confluent-kafka


def client_of(cluster: LocalCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers}


def test_node_loads_the_brokers_of_an_uneven_topic_alike(
    cluster: LocalCluster, topics: Topics
) -> None:
    topic = topics.make(UNEVEN)
    with RoutedProducer(client_of(cluster), "node") as routed:
        for _ in range(3000):
            routed.produce(topic, VALUE)

    counts = topics.counts(topic)

    assert sum(counts) == 3000
    assert max(abs(n - w) for n, w in zip(counts, [1500, 750, 750], strict=True)) <= 1


def test_keyed_records_meet_those_of_kafka_python(cluster: LocalCluster, topics: Topics) -> None:
    topic = topics.make(UNEVEN)
    keys = [b"key-%d" % i for i in range(100)]
    config = {**client_of(cluster), "partitioner": "murmur2_random"}
    with RoutedProducer(config, "sqf") as routed:
        for key in keys:
            routed.produce(topic, VALUE, key)
    producer = python_producer(cluster, partitioner_of("sqf"))
    for key in keys:
        producer.send(topic, VALUE, key=key)
    producer.flush(60)
    producer.close()

    found = read_all(cluster.bootstrap_servers, topic, 3)

    assert Counter((r.key, r.partition) for r in found) == {(k, home(k, 3)): 2 for k in keys}


def test_a_client_stays_in_its_rack(cluster: LocalCluster, topics: Topics) -> None:
    topic = topics.make({0: [1], 1: [2], 2: [3]})
    options = RoutingOptions(rack="b", sticky_bytes=100)
    with RoutedProducer(client_of(cluster), "rack-aware", options) as routed:
        for _ in range(50):
            routed.produce(topic, VALUE)

    assert topics.counts(topic) == [0, 50, 0]


def test_a_topic_made_anew_with_fewer_partitions_does_not_stop_a_producer(
    cluster: LocalCluster, topics: Topics
) -> None:
    topic = topics.make({p: [1] for p in range(4)})
    with RoutedProducer(client_of(cluster), "default", metadata_refresh_s=1000) as routed:
        for _ in range(8):
            routed.produce(topic, VALUE)
        assert routed.flush(30) == 0
        topics.admin.delete_topic(topic)
        topics.make({0: [2]}, topic)
        acknowledged: list[bool] = []
        deadline = time.monotonic() + 180
        while acknowledged.count(True) < 20:  # what is under way while it is gone may fail
            assert time.monotonic() < deadline
            routed.produce(topic, VALUE, on_delivery=lambda e, _: acknowledged.append(e is None))
            routed.flush(10)

        assert routed.watch.snapshot.topic(topic).leader == {0: 2}
    assert topics.counts(topic) == [acknowledged.count(True)]


# ---------------------------------------------------------------- a broker stops and returns


class Choice(NamedTuple):
    """What was chosen, and what was known then."""

    topic: str
    partition: int
    snapshot: LeaderSnapshot

    @property
    def broker(self) -> int:
        return self.snapshot.topic(self.topic).leader[self.partition]

    @property
    def is_right(self) -> bool:
        return self.snapshot.topic(self.topic).takes(self.partition)


class Recording:
    """Another partitioner, whose choices are kept."""

    def __init__(self, name: str) -> None:
        self._inner = partitioner_of(name)
        self.choices: list[Choice] = []

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        chosen = self._inner.partition(topic, key, size, snapshot)
        self.choices.append(Choice(topic, chosen, snapshot))
        return chosen

    def closed(self, topic: str, partition: int, /) -> None:
        self._inner.closed(topic, partition)


class Sender:
    """Sends numbered records, one in fifty of them to a quiet topic; keeps what was taken."""

    def __init__(self, name: str, topics: Topics) -> None:
        self.recording = Recording(name)
        self.busy = topics.make({0: [1], 1: [2], 2: [3], 3: [3]})
        self.quiet = topics.make({0: [1, 2], 1: [2, 3], 2: [3, 1]})
        self.acknowledged: set[int] = set()
        self._sent = 0

    def send(self) -> None:
        self._sent += 1
        topic = self.busy if self._sent % 50 else self.quiet
        self._hand_over(topic, self._sent)

    def knows_leader(self, broker: int) -> bool:
        """Whether the newest snapshot has this broker lead anything of the busy topic."""
        return broker in self.recording.choices[-1].snapshot.topic(self.busy).brokers

    def _hand_over(self, topic: str, number: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class ConfluentSender(Sender):
    def __init__(self, name: str, topics: Topics, cluster: LocalCluster) -> None:
        super().__init__(name, topics)
        config = client_of(cluster) | {"acks": "all", "linger.ms": 5, "log_level": 0}
        self._routed = RoutedProducer(config, self.recording, metadata_refresh_s=1.0)

    def _hand_over(self, topic: str, number: int) -> None:
        def told(error: KafkaError | None, _: Any) -> None:
            if error is None:
                self.acknowledged.add(number)

        self._routed.produce(topic, number.to_bytes(100, "big"), on_delivery=told)
        self._routed.poll(0)

    def close(self) -> None:
        self._routed.close()


class PythonSender(Sender):
    def __init__(self, name: str, topics: Topics, cluster: LocalCluster) -> None:
        super().__init__(name, topics)
        self._producer = python_producer(cluster, self.recording)

    def _hand_over(self, topic: str, number: int) -> None:
        taken = self._producer.send(topic, number.to_bytes(100, "big"))
        taken.add_callback(lambda _: self.acknowledged.add(number))

    def close(self) -> None:
        self._producer.flush(60)
        self._producer.close()


def test_a_broker_that_stops_and_returns_is_left_alone_and_not_flooded(
    cluster: LocalCluster, topics: Topics
) -> None:
    senders: list[Sender] = [
        *(ConfluentSender(name, topics, cluster) for name in ("default", "node", "sqf")),
        PythonSender("node", topics, cluster),
    ]

    def send_until(arrived: Callable[[], bool], *, at_least: int = 500) -> None:
        deadline, rounds = time.monotonic() + 90, 0
        while rounds < at_least or not arrived():
            assert time.monotonic() < deadline, "the producers did not notice"
            for sender in senders:
                sender.send()
            rounds += 1
            PAUSE.wait(0.003)

    send_until(lambda: True)
    cluster.kill(1)
    try:
        send_until(lambda: not any(sender.knows_leader(1) for sender in senders))
        away = [len(sender.recording.choices) for sender in senders]
        send_until(lambda: True)
    finally:
        with ThreadPoolExecutor(1) as thread:
            starting = thread.submit(cluster.start, 1)
            send_until(starting.done)
            starting.result()
    send_until(lambda: all(sender.knows_leader(1) for sender in senders))
    send_until(lambda: True)
    for sender in senders:
        sender.close()

    for sender, since in zip(senders, away, strict=True):
        choices = sender.recording.choices
        assert all(choice.is_right for choice in choices)
        assert {1, 2, 3} == {c.broker for c in choices[:since]} == {c.broker for c in choices}
        assert sender.acknowledged <= numbers_in(cluster, sender.busy, sender.quiet)
        assert len(sender.acknowledged) > 1500
    sqf = senders[2].recording.choices
    back = next(i for i in range(away[2], len(sqf)) if 1 in sqf[i].snapshot.leading)
    assert longest_run(sqf[back:]) <= 2 * 3


def test_a_flood_and_a_wrong_choice_would_be_noticed() -> None:
    seen = LeaderSnapshot({"t": {0: 1, 1: -1, 2: 2}})

    assert longest_run([Choice("t", p, seen) for p in (2, 0, 0, 0, 2)]) == 3
    assert [Choice("t", p, seen).is_right for p in (0, 1)] == [True, False]


def longest_run(choices: list[Choice]) -> int:
    return max(len(list(run)) for _, run in groupby(choices, key=lambda c: c.broker))


def numbers_in(cluster: LocalCluster, *topics: str) -> set[int]:
    """The numbers of all records that can be read."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "routing",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = [
        TopicPartition(topic, p, 0)
        for topic in topics
        for p in consumer.list_topics(topic, 10).topics[topic].partitions
    ]
    consumer.assign(partitions)
    found: set[int] = set()
    ended = 0
    while ended < len(partitions):
        for message in consumer.consume(1000, 0.5):
            if message.error():
                ended += 1
            else:
                found.add(int.from_bytes(message.value() or b"", "big"))
    consumer.close()
    return found
