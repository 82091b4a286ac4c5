"""Judging on real brokers: receipts that come while the continuous job runs, or is stopped."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from pyspark.sql import SparkSession

from tests.kafka.streams import stored, wait_until
from trimtab.cli import main
from trimtab.evaluate.spark.live_outcomes import LiveOutcomeOptions, outcomes_query
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics, ensure
from trimtab.local.cluster import LocalCluster
from trimtab.measure.spark.streaming_queries import SupervisedQuery
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.spark.warehouse import Warehouse

PLAIN = ClientProperties.none()
HOW = LiveOutcomeOptions(window_s=2.0, sla_s=1.0, delay_s=0.5)


def send(cluster: LocalCluster, own: OwnTopics, offsets: range, *, waited_ms: int) -> None:
    """Receipts of records that were finished just now."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    refused = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            refused.append(error)

    for offset in offsets:
        now = time.time_ns() // 1000
        receipt = Receipt(
            run="r",
            group="g",
            topic="t",
            partition=0,
            offset=offset,
            key=b"k",
            seq=offset + 1,
            consumer=0,
            incarnation="i",
            event_ts=now - waited_ms * 1000,
            started_ts=now - 1000,
            finished_ts=now,
        )
        value = dumps(receipt_to(receipt)).encode()
        producer.produce(own.receipts, value, b"k", on_delivery=delivered)
    assert producer.flush(60) == 0
    assert refused == []


def total(rows: list[dict[str, Any]]) -> tuple[int, int]:
    """How many records were judged, and how many of them were in time."""
    assert {row["group"] for row in rows} <= {"g"}
    in_time = sum(row["events"] * row["within_sla"] for row in rows)
    return sum(row["events"] for row in rows), round(in_time)


def test_receipts_become_outcomes_also_when_the_job_is_stopped_meanwhile(
    cluster: LocalCluster,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    own = OwnTopics(f"own-{uuid.uuid4().hex[:8]}.")
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    target = Cluster(cluster.bootstrap_servers, topics=own)
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        ensure(admin, own.of_group("g"))
        known = admin.cluster().cluster

    @contextmanager
    def judging() -> Iterator[SupervisedQuery]:
        query = outcomes_query(
            spark,
            target,
            HOW,
            cluster_id=known,
            warehouse=warehouse,
            checkpoint=str(tmp_path / "checkpoints"),
        )
        query.tick()
        try:
            yield query
        finally:
            query.stop()

    def judged(query: SupervisedQuery) -> tuple[int, int]:
        query.tick()
        return total(stored(tmp_path / "warehouse", "outcomes"))

    with judging() as first:
        wait_until(lambda: any(tmp_path.glob("checkpoints/outcomes-*/sources/0/0")))
        send(cluster, own, range(40), waited_ms=10)
        wait_until(lambda: judged(first) == (40, 40), what="the first outcome")
    send(cluster, own, range(40, 60), waited_ms=5000)
    with judging() as second:
        wait_until(lambda: judged(second) == (60, 40), what="the missed outcome")
    kept = warehouse.read(spark, "outcomes").collect()
    assert total([row.asDict() for row in kept]) == (60, 40)

    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TRIMTAB_TOPIC_PREFIX", own.prefix)
    monkeypatch.setattr("trimtab.cli.spark.spark_session", lambda *_, **__: spark)
    capsys.readouterr()
    asked = ["--group", "g", "--sla", "1s", "--bootstrap-server", cluster.bootstrap_servers]
    assert main.run(["evaluate", "outcome", *asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["events"], found["within_sla"]) == (60, pytest.approx(40 / 60))

    with Cluster(cluster.bootstrap_servers).admin() as admin:
        for made in own.of_group("g"):
            admin.delete_topic(made.name)
