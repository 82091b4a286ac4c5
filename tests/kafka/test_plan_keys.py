"""Plans for hot keys of a real topic, measured by Spark: live, and from a file."""

from __future__ import annotations

import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.kafka.streams import produce
from trimtab.cli import main
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.murmur2 import home

PARTITIONS = 6
HOTTEST = b"customer-1"


@pytest.fixture
def topic(cluster: LocalCluster) -> Iterator[str]:
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        yield _created(admin)


def _created(admin: KafkaAdmin) -> str:
    name = f"hot-{uuid.uuid4().hex[:8]}"
    admin.create_topic(TopicSpec(name=name, partitions=PARTITIONS, replication=1))
    return name


def _records() -> list[tuple[int, bytes, int]]:
    """Two minutes of records; four hot keys, two of them with the same home, and many others."""
    rng = Random(18)
    hottest = home(HOTTEST, PARTITIONS)
    beside = next(
        key
        for key in (b"customer-%d" % n for n in range(2, 1000))
        if home(key, PARTITIONS) == hottest
    )
    keys = [HOTTEST] * 1500 + [beside] * 900 + [b"x"] * 500 + [b"y"] * 400
    keys += [b"cold-%d" % n for n in range(2700)]
    rng.shuffle(keys)
    start_ms = (int(time.time()) - 150) * 1000
    return [(start_ms + 20 * number, key, 20) for number, key in enumerate(keys)]


def test_the_plan_for_a_live_topic_is_that_of_its_records(
    cluster: LocalCluster,
    topic: str,
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = produce(cluster.bootstrap_servers, topic, _records())
    totals = Counter(record.partition for record in sent)
    counts = Counter(record.key for record in sent)
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("trimtab.cli.spark.spark_session", lambda *_, **__: spark)
    there = ("--bootstrap-server", cluster.bootstrap_servers)

    def printed(*words: str) -> Any:
        code = main.run([*words, "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    live = printed("plan", "keys", "--topic", topic, "--since", "10m", *there)
    file = str(tmp_path / "measured.json")
    printed("measure", "--topic", topic, "--since", "10m", "-o", file, *there)
    from_file = printed("plan", "keys", "--loads", file, "--topic", topic)

    assert live["id"] == from_file["id"]
    assert live["scope"]["topics"] == [topic]
    busiest, mean = max(totals.values()), len(sent) / PARTITIONS
    assert live["before"]["imbalance"] == pytest.approx(busiest / mean, rel=0.01)
    assert live["moves"]
    for move in live["moves"]:
        key = move["key"].encode()
        assert move["from"] == home(key, PARTITIONS)
        assert move["count"] == counts[key]
        totals[move["from"]] -= counts[key]
        totals[move["to"]] += counts[key]
    assert live["after"]["imbalance"] == pytest.approx(max(totals.values()) / mean, rel=0.01)
    assert live["bound"] <= live["after"]["imbalance"] < live["before"]["imbalance"]
