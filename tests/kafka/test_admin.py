"""The admin port on real brokers."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition

from tests.kafka.streams import wait_until
from trimtab.errors import BrokerUnavailable, ConfigError, MeasurementError
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.snapshot import take_snapshot
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import BrokerId, TopicPartition

PLAIN = ClientProperties.none()


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    """A topic of six partitions on all three brokers."""
    name = f"admin-{uuid.uuid4().hex[:8]}"
    assert admin.create_topic(TopicSpec(name=name, partitions=6, replication=3))
    yield name
    admin.delete_topic(name)


def produce(servers: str, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x" * 100, partition=partition)
    assert producer.flush(30) == 0


def test_a_snapshot_shows_what_was_made(cluster, admin, topic):
    counts = {0: 5, 1: 0, 2: 7, 3: 1, 4: 2, 5: 3}
    produce(cluster.bootstrap_servers, topic, counts)

    snapshot = take_snapshot(admin, topics=[topic], clock=lambda: 1)

    assert snapshot.cluster == cluster.status().cluster_id
    assert [(b.id, b.rack) for b in snapshot.brokers] == [(1, "a"), (2, "b"), (3, "c")]
    assert {p.partition: p.end_offset for p in snapshot.partitions} == counts
    assert all(p.leader == p.replicas[0] for p in snapshot.partitions)
    assert all(set(p.isr) == {1, 2, 3} for p in snapshot.partitions)
    assert {p.begin_offset for p in snapshot.partitions} == {0}


def test_log_sizes_are_those_on_disk(cluster, admin, topic):
    produce(cluster.bootstrap_servers, topic, dict.fromkeys(range(6), 50))

    for p in take_snapshot(admin, topics=[topic], clock=lambda: 1).partitions:
        folder = cluster.folder / f"broker-{p.leader}" / "data" / f"{topic}-{p.partition}"
        assert p.log_bytes == sum(file.stat().st_size for file in folder.glob("*.log"))
        assert (p.log_bytes or 0) >= 50 * 100


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols_have_members_and_offsets(cluster, admin, topic, protocol):
    produce(cluster.bootstrap_servers, topic, {0: 4})
    group = f"{topic}-{protocol}"
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    wait_until(lambda: consumer.poll(0.5) is not None)  # the first of four: it is a member now
    consumer.commit(asynchronous=False)

    snapshot = take_snapshot(admin, topics=[topic], groups=[group], clock=lambda: 1)

    (found,) = snapshot.groups
    assert found.state == "STABLE"
    assert [(m.client_id, m.host) for m in found.members] == [("reader", "/127.0.0.1")]
    assert found.members[0].member_id
    assert found.members[0].partitions == {TopicPartition(topic, n) for n in range(6)}
    assert found.committed[TopicPartition(topic, 0)] == 1
    assert group in admin.group_names()
    consumer.close()


def test_groups_without_members_and_unknown_ones_are_told_apart(cluster, admin, topic):
    place = TheirPartition(topic, 0, 2)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": topic})
    consumer.commit(offsets=[place], asynchronous=False)
    consumer.close()
    asked = [topic, "unknown"]

    (found,) = admin.groups(asked)

    assert (found.name, found.state, found.members) == (topic, "EMPTY", ())
    assert admin.committed(asked) == {topic: {TopicPartition(topic, 0): 2}, "unknown": {}}


def test_a_topic_that_is_gone_is_left_out(admin, topic):
    placed = {p.name: p.leader for p in admin.topics([topic])}
    admin.delete_topic(topic)

    assert admin.topics([topic, "never-was"]) == ()
    wait_until(lambda: admin.offsets(placed) == {})
    wait_until(lambda: admin.log_dirs(placed) == {})
    assert admin.topic_settings(topic) is None
    admin.delete_topic(topic)


def test_a_topic_is_created_once_with_its_settings_and_can_grow(admin, topic):
    again = TopicSpec(name=topic, partitions=1, replication=1)

    assert not admin.create_topic(again)
    assert (admin.topic_settings(topic) or {})["cleanup.policy"] == "delete"
    admin.add_partitions(topic, 7)
    assert len(admin.topics([topic])) == 7


def test_a_refused_topic_says_what_kafka_said(admin):
    with pytest.raises(MeasurementError, match=r"creating topic many.*InvalidReplicationFactor"):
        admin.create_topic(TopicSpec(name="many", partitions=1, replication=9))


def test_a_hung_broker_costs_its_own_answers_and_nobody_elses(cluster, topic):
    with Cluster(cluster.bootstrap_servers).admin(patience_s=1.0) as admin:
        leaders = {p.name: p.leader for p in admin.topics([topic])}
        assert set(leaders.values()) == {1, 2, 3}
        heard = {name for name, leader in leaders.items() if leader != BrokerId(2)}
        cluster.pause(2)
        try:
            sizes = admin.log_dirs(leaders)
            offsets = admin.offsets(leaders)
        finally:
            cluster.resume(2)
        assert sizes.keys() == offsets.keys() == heard
        wait_until(lambda: admin.offsets(leaders).keys() == leaders.keys())


def test_nobody_there_is_said_and_leaves_no_thread_behind():
    before = set(threading.enumerate())

    with (
        pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:1:"),
        Cluster("127.0.0.1:1").admin(connect_within_s=0.5),
    ):
        pytest.fail("there is nobody to connect to")

    assert set(threading.enumerate()) == before


def test_an_address_without_a_port_number_is_a_configuration_error():
    with (
        pytest.raises(ConfigError, match="Invalid bootstrap servers"),
        Cluster("broker:port").admin(),
    ):
        pytest.fail("this is no address")


def test_a_topic_stands_where_it_was_assigned_to(admin):
    name, held = f"placed-{uuid.uuid4().hex[:8]}", {0: [1, 3], 1: [2, 3], 2: [2, 1]}

    admin.create_topic(TopicSpec(name=name, partitions=3, replication=2, assignment=held))

    assert {p.partition: list(p.replicas) for p in admin.topics([name])} == held
    assert [p.leader for p in admin.topics([name])] == [1, 2, 2]
    admin.delete_topic(name)
