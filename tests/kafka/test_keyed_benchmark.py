"""The benchmarks of keyed consumers on real brokers, short: both sides read everything."""

from __future__ import annotations

import uuid

from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import ensure
from trimtab.local.cluster import LocalCluster
from trimtab_lab.benchmarks.kafka.keyed import (
    consume_bare,
    consume_keyed,
    consume_plain,
    fill_changelog,
    fill_data,
    restore,
)

ROWS = 2001


def test_both_sides_handle_every_record_and_commit_it(cluster: LocalCluster) -> None:
    kafka, name = Cluster(cluster.bootstrap_servers), uuid.uuid4().hex[:8]
    with kafka.admin() as admin:
        ends = fill_data(admin, kafka, f"task-{name}", ROWS)
        ensure(admin, [t for t in kafka.topics.of_group("bench") if "receipts" in t.name])

    assert sum(ends.values()) == ROWS
    assert consume_keyed(kafka, f"task-{name}", ends, f"bench-{name}").records == ROWS
    assert consume_plain(kafka, ends).records == ROWS


def test_a_restore_finds_every_entry(cluster: LocalCluster) -> None:
    kafka, topic = Cluster(cluster.bootstrap_servers), f"state-{uuid.uuid4().hex[:8]}"
    with kafka.admin() as admin:
        admin.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
    fill_changelog(kafka, topic, ROWS)

    assert restore(kafka, topic) == ROWS
    assert consume_bare(kafka, topic) == ROWS
