"""The audit on real brokers: what it predicts of a failure is what happens."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.kafka.streams import wait_until
from trimtab.cli import main
from trimtab.client_properties import ClientProperties
from trimtab.measure.kafka.admin import KafkaAdmin, TopicSpec, connect
from trimtab.model.cluster import TopicPartition
from trimtab.testing.local_cluster import LocalCluster

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
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    server = cluster.bootstrap_servers

    def audited(topics: list[str]) -> Any:
        options = [word for topic in topics for word in ("--topic", topic)]
        code = main.run(["audit", "--json", "--bootstrap-server", server, *options])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    with connect(server, ClientProperties.none()) as admin:
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
            # What both replicas of a write are needed for is still held in full by broker 3.
            assert admin.eligible(topics)[TopicPartition(topics[1], 0)] == (3,)
        finally:
            cluster.start(3)
        wait_until(lambda: all(len(p.isr) == len(p.replicas) for p in admin.topics(topics)))
        for topic in topics:
            admin.delete_topic(topic)


def test_settings_of_many_topics_are_asked_for_at_once(cluster: LocalCluster) -> None:
    with connect(cluster.bootstrap_servers, ClientProperties.none()) as admin:
        name = f"settings-{uuid.uuid4().hex[:8]}"
        admin.create_topic(
            TopicSpec(name=name, partitions=1, replication=3, settings={"min.insync.replicas": "2"})
        )
        assert admin.min_insync([name, "never-was"]) == {name: 2}
        assert admin.eligible([name, "never-was"]) == {}
        admin.delete_topic(name)
