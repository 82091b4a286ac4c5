"""The pipeline on real brokers: its figures are those of a plain count, whatever happens."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from kafka import TopicPartition as TheirPartition
from kafka.admin import KafkaAdminClient
from pyspark.sql import SparkSession

from tests.kafka.streams import (
    Known,
    counts,
    key_counts,
    produce,
    read_all,
    stored,
    wait_until,
)
from trimtab.cli import main
from trimtab.errors import ThinData
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.publisher import open_publisher
from trimtab.kafka.topics import OwnTopics, ensure_topics
from trimtab.local.cluster import LocalCluster, SaslUser
from trimtab.measure.counters import Count
from trimtab.measure.kafka.monitor import MonitorScope, in_background, open_monitor
from trimtab.measure.spark.continuous import JobIntervals, Results, run_continuously
from trimtab.measure.spark.hot_keys import CountingMode
from trimtab.measure.spark.jobs import measure
from trimtab.measure.spark.live_keys import KeyCounting, KeysQuery
from trimtab.measure.spark.live_rates import RatesQuery
from trimtab.measure.spark.measure_input import MeasureMethod
from trimtab.measure.spark.spans import MeasureQuery, from_kafka
from trimtab.model.cluster import TopicPartition
from trimtab.model.rates_place import RatesPlace
from trimtab.spark.warehouse import Warehouse

SECOND = 1_000_000

WINDOW_S = 4
"""Of rates; four closed windows are waited for."""

BOTH_PLACES = pytest.mark.parametrize("place", [RatesPlace.DRIVER, RatesPlace.EXECUTORS])


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdmin]:
    with Cluster(cluster.bootstrap_servers).admin() as port:
        yield port


@pytest.fixture
def topic(admin: KafkaAdmin) -> Iterator[str]:
    name = f"measured-{uuid.uuid4().hex[:8]}"
    admin.create_topic(TopicSpec(name=name, partitions=3, replication=3))
    yield name
    admin.delete_topic(name)


@pytest.fixture
def own(admin: KafkaAdmin) -> Iterator[OwnTopics]:
    topics = OwnTopics(f"own-{uuid.uuid4().hex[:8]}.")
    ensure_topics(admin, topics)
    yield topics
    for made in topics.all:
        admin.delete_topic(made.name)


def _target(cluster: LocalCluster, own: OwnTopics) -> Cluster:
    return Cluster(cluster.bootstrap_servers, topics=own)


def _skewed(seed: int, records: int, *, start_ms: int, spread_ms: int) -> list[Any]:
    rng = Random(seed)
    return [
        (
            start_ms + spread_ms * i // records,
            None if rng.random() < 0.05 else str(int(rng.paretovariate(0.8))).encode(),
            rng.randrange(1, 50),
        )
        for i in range(records)
    ]


# ---------------------------------------------------------------- once


def test_rates_and_keys_of_a_span_equal_a_brute_force_count_over_the_same_offsets(
    cluster: LocalCluster, admin: KafkaAdmin, topic: str, own: OwnTopics, spark: SparkSession
) -> None:
    start = (int(time.time()) - 100) * 1000
    sent = produce(
        cluster.bootstrap_servers, topic, _skewed(1, 5000, start_ms=start, spread_ms=60_000)
    )
    assert sorted(sent) == sorted(read_all(cluster.bootstrap_servers, topic, 3))
    asked = MeasureQuery(
        topics=frozenset({topic}),
        from_ts=(start + 10_000) * 1000,
        to_ts=(start + 40_000) * 1000,
        samples=False,
    )
    given = from_kafka(spark, admin, _target(cluster, own), asked)
    found = measure(given, MeasureMethod(threshold=Count(20))).measurement
    inside = [r for r in sent if start + 10_000 <= r.ts_ms < start + 40_000]
    by_partition = counts(((r._replace(ts_ms=0)) for r in inside), 1)
    assert {
        (0, p.partition): (round((p.records_s or 0) * 30), round((p.bytes_s or 0) * 30))
        for p in found.partitions
    } == by_partition
    wanted = {k: n for (_, k), n in key_counts(inside, 10**15).items() if n >= 20}
    assert {k.key: (k.lower, k.upper) for k in found.keys} == {k: (n, n) for k, n in wanted.items()}


def test_given_offsets_are_counted_to_the_record(
    cluster: LocalCluster, topic: str, tmp_path: Path, spark: SparkSession, admin: KafkaAdmin
) -> None:
    now = int(time.time()) * 1000
    produce(
        cluster.bootstrap_servers, topic, _skewed(2, 900, start_ms=now - 60_000, spread_ms=30_000)
    )
    asked = MeasureQuery(
        topics=frozenset({topic}),
        from_ts=0,
        to_ts=0,
        offsets={TopicPartition(topic, 0): (10, 60), TopicPartition(topic, 1): (0, 5)},
    )
    given = from_kafka(spark, admin, _target(cluster, OwnTopics("nobody.")), asked)
    found = measure(given, MeasureMethod(threshold=None)).measurement
    span_s = (found.to_ts - found.from_ts) / SECOND
    assert {p.partition: p.records_s for p in found.partitions} == {
        0: pytest.approx(50 / span_s),
        1: pytest.approx(5 / span_s),
        2: None,  # nobody looked
    }


def test_markers_of_a_keyed_topic_are_neither_records_nor_keys(
    cluster: LocalCluster, admin: KafkaAdmin, topic: str, own: OwnTopics, spark: SparkSession
) -> None:
    """Headers are read only where the topic has routes beside it: see `<topic>.assign`."""
    now = int(time.time()) * 1000
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(60):
        marked = number % 3 == 0
        headers: list[Any] = [("tt-kind", b"\x01")] if marked else [("tt-seq", bytes(8))]
        key = b"moved" if marked else b"data"
        producer.produce(topic, b"v", key, 0, timestamp=now - 20_000 + number, headers=headers)
    assert producer.flush(30) == 0

    def counted() -> dict[bytes, int]:
        asked = MeasureQuery(
            topics=frozenset({topic}),
            from_ts=(now - 30_000) * 1000,
            to_ts=now * 1000,
            samples=False,
        )
        given = from_kafka(spark, admin, _target(cluster, own), asked)
        found = measure(given, MeasureMethod(threshold=Count(1))).measurement
        return {key.key: key.lower for key in found.keys}

    assert counted() == {b"data": 40, b"moved": 20}
    admin.create_topic(TopicSpec(name=f"{topic}.assign", partitions=1, replication=1))
    assert counted() == {b"data": 40}


def test_a_record_stamped_in_the_future_does_not_hide_those_behind_it(
    cluster: LocalCluster, admin: KafkaAdmin, own: OwnTopics, topic: str, spark: SparkSession
) -> None:
    now = int(time.time() * 1000)
    good = [(now - 30_000 + i, b"k", 1) for i in range(50)]
    produce(cluster.bootstrap_servers, topic, [*good[:5], (now + 3_600_000, b"k", 1), *good[5:]])
    asked = MeasureQuery(
        topics=frozenset({topic}),
        from_ts=(now - 60_000) * 1000,
        to_ts=now * 1000,
        samples=False,
    )
    given = from_kafka(spark, admin, _target(cluster, own), asked)
    found = measure(given, MeasureMethod(threshold=None)).measurement
    assert sum(round((p.records_s or 0) * 60) for p in found.partitions) == 50


def test_a_partition_whose_older_records_are_deleted_is_measured_from_where_its_log_begins(
    cluster: LocalCluster, admin: KafkaAdmin, own: OwnTopics, topic: str, spark: SparkSession
) -> None:
    #   0 ────────────────────── 40 s   10/s on each of three partitions
    #   partition 0:      ×××××× 20 ─── its first half is deleted
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for i in range(400):
        for partition in range(3):
            producer.produce(topic, b"v", partition=partition, timestamp=now - 40_000 + 100 * i)
    assert producer.flush(30) == 0
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    client.delete_records({TheirPartition(topic, 0): 200})
    client.close()
    asked = MeasureQuery(
        topics=frozenset({topic}),
        from_ts=(now - 40_000) * 1000,
        to_ts=now * 1000,
        samples=False,
    )

    found = measure(
        from_kafka(spark, admin, _target(cluster, own), asked), MeasureMethod(threshold=None)
    )

    partitions = found.measurement.partitions
    assert [p.records_s for p in partitions] == [pytest.approx(10.0, rel=0.01)] * 3
    assert [p.complete for p in partitions] == [False, True, True]
    assert [note.partition(";")[0] for note in found.notes] == [
        f"{topic}-0: older records were deleted"
    ]


def test_rates_of_samples_without_any_telemetry_are_refused(
    cluster: LocalCluster, admin: KafkaAdmin, own: OwnTopics, topic: str, spark: SparkSession
) -> None:
    now = int(time.time() * SECOND)
    asked = MeasureQuery(
        topics=frozenset({topic}), from_ts=now - 60 * SECOND, to_ts=now, events=False
    )
    with pytest.raises(ThinData, match="no telemetry"):
        from_kafka(spark, admin, _target(cluster, own), asked)


def test_the_verb_measures_over_a_sasl_listener_and_prints_no_password(
    cluster: LocalCluster,
    sasl_user: SaslUser,
    topic: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    spark: SparkSession,
) -> None:
    """Admin, span look-up and Spark all speak SASL from the same file."""
    now = int(time.time()) * 1000
    produce(
        cluster.bootstrap_servers, topic, _skewed(3, 300, start_ms=now - 20_000, spread_ms=10_000)
    )
    config = tmp_path / "client.properties"
    config.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{sasl_user.username}" password="{sasl_user.password}";\n'
    )
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("trimtab.cli.spark.spark_session", lambda *_, **__: spark)
    assert cluster.sasl_bootstrap_servers is not None
    span = ("--since", "1m", "--keys", "none", "--rates-from", "events")
    over = ("--command-config", str(config), "--bootstrap-server", cluster.sasl_bootstrap_servers)
    code = main.run(["measure", "--topic", topic, *span, *over, "--json"])
    said = capsys.readouterr()
    assert code == 0, said.err
    found = json.loads(said.out)
    span_s = (found["to_ts"] - found["from_ts"]) / SECOND
    assert round(sum(p["records_s"] for p in found["partitions"]) * span_s) == 300
    # Records of 10 s, asked for a minute: the rate is over those, and it is said.
    assert span_s == pytest.approx(10.0, abs=0.5)
    assert not any(p["complete"] for p in found["partitions"])
    assert "its rates are over these 10.0 s, not over the requested 60 s" in said.err
    assert sasl_user.password not in said.out + said.err


# ---------------------------------------------------------------- continuously


@contextmanager
def _running(
    spark: SparkSession,
    cluster: LocalCluster,
    own: OwnTopics,
    folder: Path,
    asked: MeasureQuery,
    keys: KeyCounting | None,
    place: RatesPlace = RatesPlace.AUTO,
) -> Iterator[Future[int]]:
    """The continuous jobs in a thread; fails when they end by themselves."""
    stop = threading.Event()
    with (
        Cluster(cluster.bootstrap_servers).admin() as admin,
        open_publisher(Cluster(cluster.bootstrap_servers)) as publisher,
        ThreadPoolExecutor(1) as pool,
    ):
        running = pool.submit(
            run_continuously,
            spark,
            admin,
            _target(cluster, own),
            asked,
            beat=JobIntervals(window_s=WINDOW_S, min_span_s=1, trigger_s=0.5, rates_on=place),
            keys=keys,
            results=Results(
                outlet=publisher,
                warehouse=Warehouse(str(folder / "warehouse")),
                checkpoint=str(folder / "checkpoints"),
            ),
            stop=stop,
        )
        try:
            name = "keys" if keys else "rates"
            wait_until(lambda: _started(folder, name) or running.done(), what="the first trigger")
            yield running
        finally:
            stop.set()
            running.result(180)


def _started(folder: Path, name: str) -> bool:
    """Whether a query knows where it begins."""
    return any((folder / "checkpoints").glob(f"{name}-*/**/sources/0/0"))


def _everything(topics: set[str]) -> MeasureQuery:
    return MeasureQuery(topics=frozenset(topics), from_ts=0, to_ts=0)


def _live_counts(
    spark: SparkSession, folder: Path, topic: str, window_s: int
) -> dict[tuple[int, int], tuple[int, int]]:
    """What the table says per (window number, partition): records and bytes."""
    rows = Warehouse(str(folder / "warehouse")).read(spark, "partition_rates")
    return {
        (round(r.window_start.timestamp()) // window_s, r.partition): (
            round(r.records_s * window_s),
            round(r.bytes_s * window_s),
        )
        for r in rows.where(f"source = 'events' and topic = '{topic}'").collect()
    }


def _live_keys(spark: SparkSession, folder: Path, topic: str) -> dict[tuple[int, bytes], Any]:
    rows = Warehouse(str(folder / "warehouse")).read(spark, "hot_keys").where(f"topic = '{topic}'")
    return {
        (round(r.window_start.timestamp()) // 2, bytes(r.key)): (r.lower, r.upper)
        for r in rows.collect()
    }


EXACT_KEYS = KeyCounting(window_s=2, threshold=Count(5), epsilon=1e-6, delay_s=1)


def _live_records(folder: Path, topic: str, window_s: int) -> int:
    """How many records of a topic the table counts by now."""
    rows = stored(folder / "warehouse", "partition_rates")
    return sum(
        round(row["records_s"] * window_s)
        for row in rows
        if row["source"] == "events" and row["topic"] == topic
    )


def test_streaming_finds_what_a_plain_count_finds_and_what_batch_finds(
    cluster: LocalCluster,
    admin: KafkaAdmin,
    topic: str,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    with _running(spark, cluster, own, tmp_path, _everything({topic}), EXACT_KEYS):
        sent: list[Known] = []
        for second in range(4):
            now = int(time.time() * 1000)
            sent += produce(
                cluster.bootstrap_servers,
                topic,
                _skewed(10 + second, 400, start_ms=now - 900, spread_ms=900),
            )
        wait_until(
            lambda: _live_records(tmp_path, topic, 2) >= len(sent),
            what="the last window",
        )
    assert _live_counts(spark, tmp_path, topic, 2) == counts(sent, 2000)
    heavy = {p: (n, n) for p, n in key_counts(sent, 2000).items() if n >= 5}
    assert _live_keys(spark, tmp_path, topic) == heavy
    first, last = min(r.ts_ms for r in sent), max(r.ts_ms for r in sent)
    asked = MeasureQuery(
        topics=frozenset({topic}),
        from_ts=first // 2000 * 2000 * 1000,
        to_ts=(last // 2000 + 1) * 2000 * 1000,
        samples=False,
    )
    given = from_kafka(spark, admin, _target(cluster, own), asked)
    batch = Warehouse(str(tmp_path / "batch"))
    how = MeasureMethod(
        window_s=2,
        min_span_s=1,
        key_window_s=2,
        threshold=Count(5),
        mode=CountingMode.LOSSY,
        epsilon=1e-6,
    )
    measure(given, how, batch)
    rows = batch.read(spark, "hot_keys").collect()
    assert {
        (round(r.window_start.timestamp()) // 2, bytes(r.key)): (r.lower, r.upper) for r in rows
    } == heavy
    rates = batch.read(spark, "partition_rates").collect()
    assert {
        (round(r.window_start.timestamp()) // 2, r.partition): round(r.records_s * 2) for r in rates
    } == {place: n for place, (n, _) in counts(sent, 2000).items()}
    published = _published(cluster, own.hotkeys)
    assert {
        (v["window_start"] // (2 * SECOND), k["key"].encode()): (k["lower"], k["upper"])
        for v in published
        for k in v["keys"]
    } == heavy
    assert all(v["v"] == 1 and v["topic"] == topic and v["epsilon"] == 1e-6 for v in published)


def _published(cluster: LocalCluster, topic: str) -> list[dict[str, Any]]:
    """All values of a one-partition topic of ours."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    values = []
    while (m := consumer.poll(30)) is not None and not m.error():
        values.append(json.loads(m.value() or b""))
    consumer.close()
    return values


@BOTH_PLACES
def test_rates_are_published_from_telemetry_and_a_malformed_record_ends_in_rejects(
    cluster: LocalCluster,
    topic: str,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
    place: RatesPlace,
) -> None:
    interest = MonitorScope(topics=frozenset({topic}), own_prefix=own.prefix)
    opened = open_monitor(
        Cluster(cluster.bootstrap_servers, topics=own), interest=interest, period_s=0.5
    )
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    with opened as monitor, in_background(monitor):
        with _running(spark, cluster, own, tmp_path, _everything({topic}), None, place):
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce(own.telemetry, b"{nonsense", b"x")
            producer.produce(own.telemetry, b'{"v":9}', b"x")
            producer.produce(own.telemetry, _stamped(time.time_ns()), b"x")  # no microseconds
            assert producer.flush(30) == 0
            sent: list[Known] = []

            def two_windows_closed() -> bool:
                now = int(time.time() * 1000)
                records = _skewed(len(sent), 50, start_ms=now, spread_ms=1)
                sent.extend(produce(cluster.bootstrap_servers, topic, records))
                return len(stored(tmp_path / "warehouse", "partition_rates")) >= 6

            wait_until(two_windows_closed, every_s=0.5, what="two closed windows")
        rejects = {r.raw[:9]: r.reason for r in warehouse.read(spark, "rejects").collect()}
    assert rejects == {
        "{nonsense": "not JSON, or a field of another type",
        '{"v":9}': "unknown version 9",
        '{"v": 1, ': "ts lies in the future",
    }
    published = _published(cluster, own.rates)
    assert all(set(v["partitions"]) == {"0", "1", "2"} for v in published)
    assert [v["ts"] for v in published] == sorted(v["ts"] for v in published)
    ends = [[p["end_offset"] for p in v["partitions"].values()] for v in published]
    whole = [found for found in ends if None not in found]  # a broker may have been too slow
    assert 0 < sum(whole[-1]) <= len(sent)
    seen = max(sum(p["records_s"] or 0 for p in v["partitions"].values()) for v in published)
    assert seen > 0


def _stamped(ts: int) -> bytes:
    value = {"v": 1, "ts": ts, "topic": "t", "partition": 0, "leader": 1, "sample_id": "s"}
    return json.dumps(value).encode()


def _sampled(ts: int, version: int) -> bytes:
    """A sample of one partition that grows by a byte per millisecond."""
    value: dict[str, Any] = json.loads(_stamped(ts)) | {"log_bytes": ts // 1000}
    if version == 1:
        return json.dumps(value).encode()
    columns = {name: [value[name]] for name in ("partition", "leader", "log_bytes")}
    more = {"v": 2, "replicas": [[1]], "isr": [[1]], "begin_offset": [None], "end_offset": [None]}
    return json.dumps(value | columns | more | {"committed": {}}).encode()


@pytest.mark.parametrize(
    ("place", "version"),
    [(RatesPlace.DRIVER, 1), (RatesPlace.DRIVER, 2), (RatesPlace.EXECUTORS, 2)],
)
def test_rates_go_on_after_a_restart_with_the_samples_that_came_meanwhile(
    cluster: LocalCluster,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
    place: RatesPlace,
    version: int,
) -> None:
    """Two runs, and telemetry in between: every window is in the table once, and whole."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    taken: list[int] = []

    def sample_until(seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            taken.append(time.time_ns() // 1000)
            producer.produce(own.telemetry, _sampled(taken[-1], version), b"t")
            assert producer.flush(30) == 0
            threading.Event().wait(0.3)

    tables, width = tmp_path / "warehouse", WINDOW_S * SECOND
    warehouse = Warehouse(str(tables))

    def windows() -> dict[int, int]:
        rows = warehouse.read(spark, "partition_rates").where("topic = 't'").collect()
        return {round(r.window_start.timestamp()) // WINDOW_S: r.samples for r in rows}

    def rows_of_t() -> list[dict[str, Any]]:
        return [row for row in stored(tables, "partition_rates") if row["topic"] == "t"]

    with _running(spark, cluster, own, tmp_path, _everything({"t"}), None, place):
        sample_until(3)
    sample_until(11)
    with _running(spark, cluster, own, tmp_path, _everything({"t"}), None, place):
        deadline = time.monotonic() + 180
        while len({row["window_start"] for row in rows_of_t()}) < 4:
            assert time.monotonic() < deadline, f"only {windows()} came"
            sample_until(1)
    whole = Counter(ts // width for ts in taken)
    found = windows()
    assert {w: whole[w] for w in found} == found
    assert sorted(found) == list(range(min(found), max(found) + 1)), "no window is missing"
    published = _published(cluster, own.rates)
    assert {v["ts"] for v in published} <= set(taken)
    speeds = [p["bytes_s"] for v in published for p in v["partitions"].values()]
    assert speeds == pytest.approx([1000.0] * len(speeds), rel=0.05)
    assert speeds


def test_a_driver_that_returns_after_long_reads_no_old_telemetry_as_new(
    cluster: LocalCluster,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As after days of rates on executors: its checkpoint is old, and so is most of the log."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    batches: list[int] = []
    on_batch = RatesQuery.on_batch

    def counted(self: RatesQuery, batch: Any, number: int) -> None:
        batches.append(batch.count())
        on_batch(self, batch, number)

    monkeypatch.setattr(RatesQuery, "on_batch", counted)

    def sample(ts: int) -> int:
        producer.produce(own.telemetry, _sampled(ts, 2), b"t", timestamp=ts // 1000)
        return ts

    def published() -> list[int]:
        return [v["ts"] for v in _published(cluster, own.rates)]

    driver = (spark, cluster, own, tmp_path, _everything({"t"}), None, RatesPlace.DRIVER)
    with _running(*driver):
        pass
    width, now = WINDOW_S * SECOND, time.time_ns() // 1000
    hour_ago = (now // width - 900) * width
    (marks,) = (tmp_path / "checkpoints").glob("rates-*-closed")
    (mark,) = (path for path in marks.iterdir() if path.name.isdecimal())
    mark.rename(marks / str(hour_ago))
    old = {sample(hour_ago + n * SECOND) for n in range(600)}
    producer.produce(own.telemetry, b"{nonsense", b"t", timestamp=(hour_ago + width) // 1000)
    assert producer.flush(30) == 0

    with _running(*driver):

        def fed() -> bool:
            sample(time.time_ns() // 1000)
            assert producer.flush(30) == 0
            return len(published()) >= 3

        wait_until(fed, what="rates of new samples")
    assert not old & set(published())
    assert sum(batches) < 300, "the old samples did not go through the driver"
    warehouse = Warehouse(str(tmp_path / "warehouse"))
    windows = warehouse.read(spark, "partition_rates").where("topic = 't'").collect()
    kept = {round(r.window_start.timestamp()) * SECOND: r.samples for r in windows}
    assert {hour_ago + n * width: WINDOW_S for n in range(150)}.items() <= kept.items()
    assert [r.raw for r in warehouse.read(spark, "rejects").collect()] == ["{nonsense"]


def test_a_batch_that_failed_is_done_again_with_what_came_meanwhile(
    cluster: LocalCluster,
    topic: str,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The query dies in its first batch; more records of the same window come before it is back.

    A record stamped an hour ahead is among them, and closes no window before its time.
    """
    failures = [OSError("no space left on device")]
    count = KeysQuery._count

    def failing(self: KeysQuery, events: Any, batch_id: int) -> Any:
        rows = count(self, events, batch_id)
        if rows and failures:
            raise failures.pop()
        return rows

    monkeypatch.setattr(KeysQuery, "_count", failing)

    def send(seed: int) -> list[Known]:
        now = int(time.time() * 1000)
        return produce(
            cluster.bootstrap_servers, topic, _skewed(seed, 50, start_ms=now - 50, spread_ms=50)
        )

    how = KeyCounting(window_s=8, threshold=Count(5), epsilon=1e-6, delay_s=1)
    with _running(spark, cluster, own, tmp_path, _everything({topic}), how):
        sent = send(1)
        ahead = (int(time.time()) + 3600) * 1000
        produce(cluster.bootstrap_servers, topic, [(ahead, b"future", 1)])
        wait_until(lambda: not failures, what="the failure")
        sent += send(2)
        wait_until(
            lambda: _live_records(tmp_path, topic, 8) >= len(sent),
            what="all records",
        )
    assert _live_counts(spark, tmp_path, topic, 8) == counts(sent, 8000)


def test_a_topic_that_grows_is_deleted_and_made_anew_does_not_stop_the_job(
    cluster: LocalCluster,
    admin: KafkaAdmin,
    topic: str,
    own: OwnTopics,
    spark: SparkSession,
    tmp_path: Path,
) -> None:
    other = f"{topic}-steady"
    admin.create_topic(TopicSpec(name=other, partitions=2, replication=3))

    def send(name: str, seed: int) -> list[Known]:
        now = int(time.time() * 1000)
        records = _skewed(seed, 100, start_ms=now - 100, spread_ms=100)
        return produce(cluster.bootstrap_servers, name, records)

    def seen(name: str) -> int:
        return _live_records(tmp_path, name, 2)

    with _running(spark, cluster, own, tmp_path, _everything({topic, other}), EXACT_KEYS) as job:
        sent = send(topic, 1)
        admin.add_partitions(topic, 5)
        grown = send(topic, 2)
        assert {r.partition for r in grown} > {0, 1, 2}
        wait_until(lambda: seen(topic) == 200, what="the records of the new partitions")
        admin.delete_topic(topic)
        steady = send(other, 3)
        wait_until(lambda: seen(other) == 100, what="the other topic's records")
        admin.create_topic(TopicSpec(name=topic, partitions=3, replication=3))
        anew = send(topic, 4)
        steady += send(other, 5)
        wait_until(lambda: seen(other) == 200, what="the other topic's later records")
        wait_until(lambda: seen(topic) == 300, what="the records of the topic made anew")
        assert not job.done()
    admin.delete_topic(other)
    assert _live_counts(spark, tmp_path, other, 2) == counts(steady, 2000)
    assert _live_counts(spark, tmp_path, topic, 2) == counts(sent + grown + anew, 2000)


# ---------------------------------------------------------------- processes of their own


@contextmanager
def _driver(
    cluster: LocalCluster, topic: str, own: OwnTopics, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """`trimtab measure --continuous` as users run it."""
    command = [sys.executable, "-m", "trimtab.cli.main", "measure", "--continuous"]
    command += ["--topic", topic, "--no-monitor", "--no-outcomes", "--key-window", "2s"]
    command += ["--epsilon", "0.000001"]
    command += ["--threshold", "count:5", "--warehouse", str(folder / "warehouse")]
    command += ["--checkpoint", str(folder / "checkpoints"), "--master", "local[2]"]
    command += ["--bootstrap-server", cluster.bootstrap_servers]
    command += ["--conf", "spark.sql.shuffle.partitions=2"]
    environment = os.environ | {
        "TRIMTAB_HOME": str(folder / "home"),
        "TRIMTAB_TOPIC_PREFIX": own.prefix,
    }
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def test_a_driver_killed_and_started_again_neither_loses_nor_counts_twice(
    cluster: LocalCluster, topic: str, own: OwnTopics, spark: SparkSession, tmp_path: Path
) -> None:
    """Killed with -9 while records arrive and a window is open; the next driver takes over."""

    def send(seed: int) -> list[Known]:
        now = int(time.time() * 1000)
        records = _skewed(seed, 200, start_ms=now - 500, spread_ms=500)
        return produce(cluster.bootstrap_servers, topic, records)

    def batches_done() -> int:
        return len(list((tmp_path / "checkpoints").glob("keys-*/commits/[0-9]*")))

    sent: list[Known] = []
    with _driver(cluster, topic, own, tmp_path) as first:
        wait_until(
            lambda: _started(tmp_path, "keys") or first.poll() is not None,
            within_s=300,
            what="the first driver",
        )
        assert first.poll() is None, (tmp_path / "driver.log").read_text()

        def fed() -> bool:
            sent.extend(send(len(sent)))
            return batches_done() >= 1

        wait_until(fed, what="the first batch")
        sent += send(7001)
        first.kill()
        first.wait()
    sent += send(7002)  # while nobody looks
    with _driver(cluster, topic, own, tmp_path) as second:
        sent += send(7003)
        wait_until(
            lambda: _live_records(tmp_path, topic, 2) >= len(sent) or second.poll() is not None,
            within_s=300,
            what=f"all {len(sent)} records",
        )
        assert second.poll() is None, (tmp_path / "driver.log").read_text()
    assert _live_counts(spark, tmp_path, topic, 2) == counts(sent, 2000)
    heavy = {p: (n, n) for p, n in key_counts(sent, 2000).items() if n >= 5}
    assert _live_keys(spark, tmp_path, topic) == heavy
