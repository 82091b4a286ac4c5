"""Sources: telemetry that parses and telemetry that does not, files, the generator."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from tests.spark.frames import events_frame
from trimtab.errors import BadFile, SchemaMismatch
from trimtab.measure.spark.spans import from_files
from trimtab.model.cluster import BrokerId, Replicas
from trimtab.model.codec import dumps, telemetry_to
from trimtab.spark import sources
from trimtab.workload.key_streams import ZipfMandelbrot
from trimtab_lab.benchmarks.spark.generated import generated_events

GOOD = telemetry_to(
    Replicas(
        topic="t",
        partition=0,
        leader=BrokerId(1),
        replicas=(BrokerId(1),),
        isr=(BrokerId(1),),
        log_bytes=5,
        begin_offset=0,
        end_offset=7,
    ),
    ts=1_000_001,
    sample_id="s",
    cluster="c",
    committed={"g": 3, "h": None},
)


def _parsed(spark: SparkSession, values: list[bytes | None]):
    raw = spark.createDataFrame([(v,) for v in values], "value binary")
    return raw.withColumn("timestamp", F.timestamp_seconds(F.lit(1))).transform(sources.telemetry)


def test_what_the_codec_writes_is_read_back_whole(spark: SparkSession) -> None:
    row = sources.samples(_parsed(spark, [dumps(GOOD).encode()])).collect()[0]
    assert round(row.ts.timestamp() * 1e6) == 1_000_001
    assert (row.topic, row.partition, row.leader, row.log_bytes, row.end_offset) == (
        "t",
        0,
        1,
        5,
        7,
    )
    assert row.committed == {"g": 3, "h": None}
    assert (row.replicas, row.isr, row.cluster, row.sample_id) == ([1], [1], "c", "s")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "no value"),
        (b"{nonsense", "not JSON"),
        (b"[1]", "not JSON|no version"),
        (b"\xff\xfe", "not JSON"),
        (dumps(GOOD | {"v": 2}).encode(), "unknown version 2"),
        (dumps({k: v for k, v in GOOD.items() if k != "v"}).encode(), "no version"),
        (dumps({k: v for k, v in GOOD.items() if k != "topic"}).encode(), "no topic"),
        (dumps(GOOD | {"partition": "zero"}).encode(), "another type"),
        (dumps(GOOD | {"log_bytes": -5}).encode(), "log_bytes is negative"),
    ],
)
def test_malformed_telemetry_is_kept_aside_with_its_reason(
    spark: SparkSession, value: bytes | None, reason: str
) -> None:
    parsed = _parsed(spark, [value, dumps(GOOD).encode()])
    bad = sources.rejects(parsed, source="trimtab.telemetry").collect()
    assert len(bad) == 1
    assert any(part in bad[0].reason for part in reason.split("|"))
    assert sources.samples(parsed).count() == 1


def test_parquet_of_events_is_measured_like_the_frame_it_came_from(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = events_frame(spark, [(1, 0, b"a"), (2, 1, None), (9, 0, b"a")])
    frame.write.parquet(str(tmp_path / "events"))
    given = from_files(spark, events=tmp_path / "events", samples=None)
    assert given.events is not None
    assert sorted(given.events.collect()) == sorted(frame.collect())
    assert (given.from_ts, given.to_ts) == (1_000_000, 9_000_001)


def test_json_lines_follow_the_contract_and_those_that_do_not_are_rejects(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Times in microseconds, keys as text or base64; what is missing or odd is kept aside."""
    line = {"topic": "t", "partition": 0, "offset": 1, "ts": 1_000_001, "value_bytes": 10}
    good = [line | {"key": "user-1"}, line | {"key_b64": "/w=="}, line]
    bad = [line | {"offset": "x"}, {k: v for k, v in line.items() if k != "partition"}]
    path = tmp_path / "events.json"
    path.write_text("\n".join([*map(json.dumps, [*good, *bad]), "{broken"]))
    given = from_files(spark, events=path, samples=None)
    assert given.events is not None
    assert given.rejects is not None
    rows = given.events.select("key", "key_bytes", "value_bytes", F.unix_micros("ts")).collect()
    assert sorted(map(tuple, rows), key=str) == sorted(
        [(b"user-1", 6, 10, 1_000_001), (b"\xff", 1, 10, 1_000_001), (None, 0, 10, 1_000_001)],
        key=str,
    )
    reasons = sorted(r.reason for r in given.rejects.collect())
    assert [reason[:8] for reason in reasons] == ["not JSON", "not JSON", "one of t"]


def test_a_table_without_a_column_is_refused_naming_it(spark: SparkSession, tmp_path: Path) -> None:
    events_frame(spark, [(1, 0, None)]).drop("key").write.parquet(str(tmp_path / "e"))
    with pytest.raises(SchemaMismatch, match="column key is missing"):
        sources.read_files(spark, tmp_path / "e", "events")


def test_a_column_of_another_type_is_refused_with_both_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    frame = events_frame(spark, [(1, 0, None)])
    frame.withColumn("partition", F.col("partition").cast("string")).write.parquet(
        str(tmp_path / "e")
    )
    with pytest.raises(SchemaMismatch, match="partition is string, expected int"):
        sources.read_files(spark, tmp_path / "e", "events")


def test_a_path_with_nothing_in_it_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadFile, match="neither Parquet nor JSON"):
        sources.read_files(spark, tmp_path, "events")


def test_the_generator_gives_the_same_events_whatever_the_number_of_tasks(
    spark: SparkSession,
) -> None:
    def made(tasks: int):
        keys = ZipfMandelbrot(keys=1000)
        frame = generated_events(spark, 300_000, seed=4, keys=keys, tasks=tasks)
        return frame.agg(
            F.sum(F.xxhash64("offset", "key", "partition", "ts") % 1_000_003)
        ).collect()

    assert made(1) == made(3)
