"""The audit on real brokers: what it predicts of a failure is what happens."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition

from tests.kafka.streams import wait_until
from trimtab.cli import main
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition

LISTS = {
    1: [[1], [2], [3], [3]],
    2: [[3, 1], [1, 3], [2, 3], [3, 2], [1, 2]],
    3: [[3, 2, 1], [1, 2, 3], [2, 3, 1], [3, 1, 2]],
}
"""Replica lists of a topic of each replication, so that broker 3 leads some of each."""


def made(admin: KafkaAdmin, prefix: str) -> list[str]:
    """Topics on these lists, and one that the cluster places by itself."""
    specs = [
        TopicSpec(
            name=f"{prefix}-{replication}",
            partitions=len(lists),
            replication=replication,
            settings={"min.insync.replicas": str(min(replication, 2))},
            assignment=dict(enumerate(lists)),
        )
        for replication, lists in LISTS.items()
    ]
    specs.append(TopicSpec(name=f"{prefix}-own", partitions=6, replication=2))
    for spec in specs:
        assert admin.create_topic(spec)
    return [spec.name for spec in specs]


def leaders(admin: KafkaAdmin, topics: list[str]) -> dict[TopicPartition, int]:
    return {p.name: p.leader for p in admin.topics(topics)}


def test_every_leader_after_a_failure_is_as_predicted(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = cluster.bootstrap_servers

    def audited(topics: list[str], *source: str) -> Any:
        options = [word for topic in topics for word in ("--topic", topic)]
        asked = source or ("--bootstrap-server", server)
        code = main.run(["audit", "--json", *asked, *options])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    with Cluster(server).admin() as admin:
        topics = made(admin, f"audited-{uuid.uuid4().hex[:8]}")
        wait_until(lambda: all(len(p.isr) == len(p.replicas) for p in admin.topics(topics)))
        before, foretold = leaders(admin, topics), audited(topics)
        fault = next(f for f in foretold["faults"] if f["dead"] == [3])
        changes = {
            TopicPartition(topic, int(number)): leader
            for topic, of in fault["leaders"].items()
            for number, leader in of.items()
        }
        assert min(changes.values()) == -1 < max(changes.values())
        assert fault["below_min_insync"] >= 4  # two replicas, and both are needed
        cluster.kill(3)
        try:
            wait_until(lambda: 3 not in leaders(admin, topics).values(), what="the failure")
            assert leaders(admin, topics) == before | changes
            wait_until(lambda: 3 not in admin.cluster().live, what="the fence")
            found = audited(topics)
            assert found["offline_partitions"] == fault["offline_partitions"]
            assert found["below_min_insync"] == fault["below_min_insync"]
            assert {tuple(f["dead"]) for f in found["faults"]} == {(1,), (2,)}
            assert "down" in [f["kind"] for f in found["findings"]]
            file = tmp_path / "snapshot.json"
            assert main.run(["snapshot", "-o", str(file), "--bootstrap-server", server]) == 0
            capsys.readouterr()
            brokers = json.loads(file.read_text(encoding="utf-8"))["brokers"]
            assert {b["id"]: b["alive"] for b in brokers} == {1: True, 2: True, 3: False}
            of_file = audited(topics, "--snapshot", str(file), "--min-insync", "1")
            assert of_file["leaders_per_broker"] == found["leaders_per_broker"]
            assert {tuple(f["dead"]) for f in of_file["faults"]} == {(1,), (2,)}
            # What both replicas of a write are needed for is still held in full by broker 3.
            assert admin.eligible(topics)[TopicPartition(topics[1], 0)] == (3,)
        finally:
            cluster.start(3)
        wait_until(lambda: all(len(p.isr) == len(p.replicas) for p in admin.topics(topics)))
        for topic in topics:
            admin.delete_topic(topic)


def written(cluster: LocalCluster, admin: KafkaAdmin, topic: str, file: Path) -> dict[str, float]:
    """Writes records to all partitions of a new topic, and a file of loads: what they grew by."""
    where = {p.name: p.leader for p in admin.topics([topic])}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for name in where:
        for _ in range(20 + name.partition):  # nearly the same
            producer.produce(topic, b"v" * 1000, partition=name.partition)
    assert producer.flush(60) == 0
    sizes = admin.log_dirs(where)
    rates = {str(name.partition): float(sizes[name]) for name in where}
    file.write_text(json.dumps({"v": 1, "steps": [{"loads": {topic: rates}}]}), encoding="utf-8")
    return rates


def moved_by_kafka(server: str, file: Path) -> None:
    """Does what kafka-reassign-partitions and kafka-leader-election do with this file."""
    listed = json.loads(file.read_text(encoding="utf-8"))
    assert listed["version"] == 1
    moves = {
        KafkaPartition(p["topic"], p["partition"]): p["replicas"] for p in listed["partitions"]
    }
    kafka = KafkaAdminClient(bootstrap_servers=server)
    try:
        assert set(kafka.alter_partition_reassignments(moves).values()) == {None}
        wait_until(lambda: not kafka.list_partition_reassignments(list(moves)), what="the order")
        by_topic: dict[str, list[int]] = {}
        for name in moves:
            by_topic.setdefault(name.topic, []).append(name.partition)
        kafka.elect_leaders(0, by_topic)
    finally:
        kafka.close()


def test_leaders_on_one_broker_are_found_by_their_load_and_moved_as_advised(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    server = cluster.bootstrap_servers
    topic, loads = f"crowded-{uuid.uuid4().hex[:8]}", tmp_path / "loads.json"
    moves = tmp_path / "moves.json"

    def audited(*options: str) -> tuple[int, Any]:
        words = ["--bootstrap-server", server, "--topic", topic, "--fail-on", "warning"]
        code = main.run(["audit", "--json", *words, *options])
        said = capsys.readouterr()
        assert code in (0, 1), said.err
        return code, json.loads(said.out)

    with Cluster(server).admin() as admin:
        lists = {number: [1, 2, 3] for number in range(6)}
        admin.create_topic(TopicSpec(name=topic, partitions=6, replication=3, assignment=lists))
        wait_until(lambda: all(len(p.isr) == 3 for p in admin.topics([topic])))
        rates = written(cluster, admin, topic, loads)
        code, found = audited("--loads", str(loads), "--kafka-json", str(moves))
        assert code == 1
        assert found["carried"]["by_broker"] == {"1": sum(rates.values()), "2": 0.0, "3": 0.0}
        assert "peak" in [f["kind"] for f in found["findings"]]
        assert "leaders" in [f["kind"] for f in audited()[1]["findings"]]

        moved_by_kafka(server, moves)

        wait_until(
            lambda: len(set(leaders(admin, [topic]).values())) == 3,
            what="the election",
            within_s=180,
        )
        code, found = audited("--loads", str(loads))
        assert (code, found["drift"]["share"]) == (0, 0.0), found["findings"]
        assert found["carried"]["peak_to_mean"] < 1.1
        admin.delete_topic(topic)


def test_settings_of_many_topics_are_asked_for_at_once(cluster: LocalCluster) -> None:
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        name = f"settings-{uuid.uuid4().hex[:8]}"
        admin.create_topic(
            TopicSpec(name=name, partitions=1, replication=3, settings={"min.insync.replicas": "2"})
        )
        assert admin.min_insync([name, "never-was"]) == {name: 2}
        assert admin.eligible([name, "never-was"]) == {}
        admin.delete_topic(name)
