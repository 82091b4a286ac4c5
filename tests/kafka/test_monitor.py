"""The monitor on real brokers: what it publishes, and what it survives."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from typer.testing import CliRunner

from tests.kafka.streams import wait_until
from trimtab.cli.monitor import monitor as monitor_verb
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics, ensure_topics
from trimtab.local.cluster import LocalCluster
from trimtab.measure.kafka.monitor import MonitorScope, in_background, open_monitor
from trimtab.measure.kafka.telemetry_log import recent_sample_times
from trimtab.services.measure import _is_sampled


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@pytest.fixture
def own(admin: KafkaAdmin) -> Iterator[OwnTopics]:
    """Our topics under a prefix that no other test uses."""
    topics = OwnTopics(f"watch-{uuid.uuid4().hex[:8]}.")
    ensure_topics(admin, topics)
    yield topics
    for topic in topics.all:
        admin.delete_topic(topic.name)


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    name = f"watched-{uuid.uuid4().hex[:8]}"
    admin.create_topic(TopicSpec(name=name, partitions=3, replication=3))
    yield name
    admin.delete_topic(name)


def telemetry(cluster: LocalCluster, own: OwnTopics) -> list[dict[str, Any]]:
    """The partitions of all telemetry records, in the order of their times."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
        }
    )
    records = []
    for number in consumer.list_topics(own.telemetry).topics[own.telemetry].partitions:
        start, end = consumer.get_watermark_offsets(TopicPartition(own.telemetry, number))
        consumer.assign([TopicPartition(own.telemetry, number, start)])
        wanted = end - start
        while wanted:
            message = consumer.poll(10.0)
            assert message is not None
            assert message.error() is None
            value = json.loads(message.value() or b"")
            assert (message.key() or b"").decode() == value["topic"]
            records += _partitions(value)
            wanted -= 1
    consumer.close()
    return sorted(records, key=lambda r: (r["ts"], r["partition"]))


def _partitions(record: dict[str, Any]) -> list[dict[str, Any]]:
    """A record with columns as one value per partition."""
    columns = {name: column for name, column in record.items() if isinstance(column, list)}
    columns.pop("named", None)
    return [
        record
        | {name: column[at] for name, column in columns.items()}
        | {"committed": {group: offsets[at] for group, offsets in record["committed"].items()}}
        for at in range(len(record["partition"]))
    ]


def test_telemetry_follows_what_is_written(cluster, own, topic):
    interest = MonitorScope(topics=frozenset({topic}), groups=("nobody",))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})

    with open_monitor(
        Cluster(cluster.bootstrap_servers, topics=own), interest=interest, period_s=0.2
    ) as monitor:
        monitor.step()
        for _ in range(100):
            producer.produce(topic, b"x" * 1000, partition=1)
        producer.flush()
        monitor.step()
        report = monitor.run(threading.Event(), for_s=0.1)

    records = telemetry(cluster, own)
    assert len(records) == 3 * report.published == 3 * report.samples
    assert (report.skipped, report.failed) == (0, 0)
    samples = {r["ts"]: r["sample_id"] for r in records}
    assert len(set(samples.values())) == report.samples
    of_1 = [r for r in records if r["partition"] == 1]
    assert (of_1[0]["log_bytes"], of_1[0]["end_offset"]) == (0, 0)
    assert of_1[1]["log_bytes"] >= 100_000
    assert of_1[1]["end_offset"] == 100
    assert of_1[1]["committed"] == {"nobody": None}
    assert {r["cluster"] for r in records} == {cluster.status().cluster_id}


def test_a_deleted_topic_and_a_grown_one_do_not_end_the_monitor(cluster, admin, own, topic):
    other = f"{topic}-other"
    admin.create_topic(TopicSpec(name=other, partitions=1, replication=3))
    interest = MonitorScope(topics=frozenset({topic, other}), groups=())

    with (
        open_monitor(
            Cluster(cluster.bootstrap_servers, topics=own), interest=interest, period_s=0.1
        ) as monitor,
        in_background(monitor),
    ):
        wait_until(lambda: monitor.report.samples >= 2)
        admin.delete_topic(other)
        admin.add_partitions(topic, 4)
        changed = monitor.report.samples
        wait_until(lambda: monitor.report.samples >= changed + 20)

    last = telemetry(cluster, own)[-4:]
    assert [(r["topic"], r["partition"]) for r in last] == [(topic, n) for n in range(4)]
    assert all(r["end_offset"] == 0 for r in last)


def test_a_killed_broker_does_not_end_the_monitor_nor_lose_its_telemetry(cluster, own, topic):
    interest = MonitorScope(topics=frozenset({topic}), groups=())

    with (
        open_monitor(
            Cluster(cluster.bootstrap_servers, topics=own), interest=interest, period_s=0.2
        ) as monitor,
        in_background(monitor),
        Cluster(cluster.bootstrap_servers).admin() as admin,
    ):
        wait_until(lambda: monitor.report.samples >= 2)
        cluster.kill(3)
        try:
            wait_until(lambda: 3 not in {p.leader for p in admin.topics([topic])})
            moved = monitor.report.samples
            wait_until(lambda: monitor.report.samples >= moved + 5)
        finally:
            cluster.start(3)

    records = telemetry(cluster, own)
    assert monitor.report.failed == 0
    assert len(records) == 3 * monitor.report.published == 3 * monitor.report.samples
    assert all(r["log_bytes"] is not None for r in records[-3:])
    assert 3 not in {r["leader"] for r in records[-3:]}


def test_the_verb_samples_for_a_while_and_reports(cluster, own, topic, monkeypatch):
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", own.prefix)
    app = typer.Typer()
    app.command()(monitor_verb)

    done = CliRunner().invoke(
        app,
        [
            *("--topic", topic, "--for", "1s", "--period", "200ms", "--json"),
            *("--bootstrap-server", cluster.bootstrap_servers),
        ],
    )

    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["samples"] >= 2
    assert report["published"] == report["samples"]
    assert len(telemetry(cluster, own)) == 3 * report["samples"]


def test_a_monitor_is_found_also_if_its_interval_has_grown(
    cluster: LocalCluster, admin: KafkaAdmin, own: OwnTopics
) -> None:
    target = Cluster(cluster.bootstrap_servers, topics=own)
    partitions = [p.partition for p in admin.topics([own.telemetry])]
    assert recent_sample_times(target, partitions) == ()
    assert not _is_sampled(target, admin, 1.0)

    # Samples of ten topics every 40 s, as of a cluster that is slow to answer; then one is due.
    now = time.time_ns() // 1000
    times = [now - age_s * 1_000_000 for age_s in (60, 100, 140, 180)]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for ts in reversed(times):
        for number in range(10):
            value = json.dumps({"v": 2, "sample_id": "s", "ts": ts, "topic": f"t{number}"})
            producer.produce(own.telemetry, value, f"t{number}", timestamp=ts // 1000 + number)
    assert producer.flush(30) == 0

    assert recent_sample_times(target, partitions) == tuple(times[:3])
    assert _is_sampled(target, admin, 1.0)
