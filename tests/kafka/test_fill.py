"""Topics that are filled beforehand, on real brokers: for benchmarks, and for a consumer's peak."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from trimtab.errors import TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition
from trimtab.workload.kafka.fill import FillRecord, fill
from trimtab_lab.benchmarks.kafka.filled_topic import filled_topic
from trimtab_lab.papers.live.kafka.live_site import LiveSite
from trimtab_lab.papers.live.kafka.peak import peak


def test_a_topic_for_benchmarks_holds_exactly_what_was_asked_for_and_is_filled_once(
    cluster: LocalCluster,
) -> None:
    said: list[str] = []
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        ends = [
            filled_topic(
                admin,
                Cluster(cluster.bootstrap_servers),
                rows=3001,
                partitions=3,
                value_bytes=10,
                say=said.append,
            )
            for _ in range(2)
        ]
        admin.delete_topic("bench-3001-10")

    topic = "bench-3001-10"
    assert ends[0] == {TopicPartition(topic, n): 1000 + (n == 0) for n in range(3)}
    assert ends[1] == ends[0]
    assert said == [f"filling topic {topic}"]


def test_a_consumer_s_peak_is_read_from_full_topics(cluster: LocalCluster, tmp_path: Path) -> None:
    place = LiveSite(cluster=Cluster(cluster.bootstrap_servers), folder=tmp_path)

    found = peak(place, megabytes=20.0, partitions=4, tables=2)

    assert found["median_mb_s"] > 0


def test_records_that_find_no_partition_are_an_error(cluster: LocalCluster) -> None:
    nowhere = TopicPartition(f"nowhere-{uuid.uuid4().hex[:6]}", 7)
    kafka = Cluster(cluster.bootstrap_servers)

    with pytest.raises(TrimtabError):
        fill(
            [FillRecord(nowhere, b"v")],
            kafka,
            {"message.timeout.ms": 3000},
            what="a topic that is not there",
        )
