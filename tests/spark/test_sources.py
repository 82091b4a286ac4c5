"""Sources: telemetry that parses and telemetry that does not, files, the generator."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from tests.spark.frames import events_frame
from trimtab.errors import BadFile, SchemaMismatch
from trimtab.measure.spark.spans import MeasureQuery, from_files, wanted_samples
from trimtab.measure.topic_samples import BadSample, read_any_sample
from trimtab.model.cluster import BrokerId, Replicas
from trimtab.model.codec import dumps
from trimtab.model.telemetry import MOST_PARTITIONS, TelemetrySample, telemetry_records
from trimtab.spark import sources
from trimtab.spark.telemetry_records import telemetry
from trimtab.workload.key_streams import ZipfMandelbrot
from trimtab_lab.benchmarks.spark.generated import generated_events

OLDER = Path(__file__).parents[1] / "golden" / "older"
GOOD: dict[str, Any] = {
    "v": 1,
    "sample_id": "s",
    "ts": 1_000_001,
    "cluster": "c",
    "topic": "t",
    "partition": 0,
    "leader": 1,
    "replicas": [1],
    "isr": [1],
    "log_bytes": 5,
    "begin_offset": 0,
    "end_offset": 7,
    "committed": {"g": 3, "h": None},
}
COLUMNS: dict[str, Any] = GOOD | {
    "v": 2,
    "partition": [0, 1, 2],
    "leader": [1, 2, -1],
    "replicas": [[1], [2, 1], [3]],
    "isr": [[1], [2], []],
    "log_bytes": [5, 6, None],
    "begin_offset": [0, 1, None],
    "end_offset": [7, 8, None],
    "committed": {"g": [3, None, 4], "h": [None, None, None], "other": [None, 2, None]},
    "named": ["g", "h"],
}


def _parsed(spark: SparkSession, values: list[bytes | None]):
    raw = spark.createDataFrame([(v,) for v in values], "value binary")
    return raw.withColumn("timestamp", F.timestamp_seconds(F.lit(1))).transform(telemetry)


def test_a_record_of_version_1_is_one_row(spark: SparkSession) -> None:
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


def test_a_record_in_columns_gives_the_rows_of_a_record_per_partition(spark: SparkSession) -> None:
    """Null stays where a named group has no offset; any other group is absent there."""
    committed = [{"g": 3, "h": None}, {"g": None, "h": None, "other": 2}, {"g": 4, "h": None}]
    each = [
        GOOD
        | {name: COLUMNS[name][at] for name in GOOD if isinstance(COLUMNS[name], list)}
        | {"committed": committed[at]}
        for at in range(3)
    ]
    before = sources.samples(_parsed(spark, [dumps(r).encode() for r in each])).collect()

    now = sources.samples(_parsed(spark, [dumps(COLUMNS).encode()])).collect()

    assert [row.partition for row in now] == [0, 1, 2]
    assert now == before


def test_what_the_monitor_writes_is_read_back_whole(spark: SparkSession) -> None:
    """In two records, because brokers refuse what is too long."""
    brokers = (BrokerId(2), BrokerId(1))
    placed = tuple(
        Replicas(topic="t", partition=n, leader=brokers[0], replicas=brokers, isr=brokers)
        for n in range(MOST_PARTITIONS + 1)
    )
    sample = TelemetrySample(
        id="s", ts=7, cluster=None, partitions=placed, committed={"g": {placed[-1].name: 9}}
    )
    records = [value for _, value in telemetry_records(sample)]

    rows = sources.samples(_parsed(spark, [*records, dumps(GOOD).encode()])).collect()

    assert len(records) == 2
    assert [r.partition for r in rows] == [*range(MOST_PARTITIONS + 1), 0]
    assert {(r.leader, *r.replicas) for r in rows[:-1]} == {(2, 2, 1)}
    assert [r.committed for r in rows[:-1] if r.committed] == [{"g": 9}]


def test_records_that_an_older_version_wrote_are_still_read(spark: SparkSession) -> None:
    values = [(OLDER / f"{name}.json").read_bytes() for name in _OLDER]

    rows = sources.samples(_parsed(spark, list(values))).collect()

    assert [(r.partition, r.leader, r.isr, r.log_bytes, r.committed) for r in rows] == [
        (0, 1, [1], 7, {"g": 5, "h": None}),
        (1, -1, [], None, {}),
    ]


_OLDER = ("telemetry-v1", "telemetry-v1-unknown")


def test_the_version_is_found_wherever_it_is_in_a_record(spark: SparkSession) -> None:
    last = {**{k: v for k, v in COLUMNS.items() if k != "v"}, "v": 2}
    group_called_v = GOOD | {"committed": {"v": 2}}

    rows = sources.samples(
        _parsed(spark, [dumps(last).encode(), dumps(group_called_v).encode()])
    ).collect()

    assert [(r.partition, (r.committed or {}).get("v")) for r in rows] == [
        *((0, None), (1, None), (2, None)),
        (0, 2),
    ]


def test_a_filter_on_valid_rows_parses_no_record_twice(spark: SparkSession) -> None:
    """One parser for each of the two versions, whatever Spark moves where."""
    good = sources.samples(_parsed(spark, [dumps(COLUMNS).encode()])).where("partition > 0")

    plan = good._jdf.queryExecution().executedPlan().toString()

    assert plan.count("from_json") == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"partition": []}, "no partition"),
        ({"partition": None}, "no partition"),
        ({"leader": None}, "no leader"),
        ({"topic": None}, "no topic"),
        ({"ts": -1}, "ts is negative"),
        ({"ts": 10**18}, "ts lies in the future"),
        ({"leader": [1, 2]}, "leader is not as long as partition"),
        ({"isr": [[1], [2], [], []]}, "isr is not as long as partition"),
        ({"log_bytes": [1, 2]}, "log_bytes is not as long as partition"),
        ({"committed": {"g": [1, 2]}}, "committed is not as long as partition"),
        ({"committed": {"g": None}}, "committed is not as long as partition"),
        ({"leader": [1, None, 2]}, "leader has an unknown value"),
        ({"partition": [0, None, 2]}, "partition has an unknown value"),
        ({"partition": [0, -1, 2]}, "partition is negative"),
        ({"end_offset": [0, None, -2]}, "end_offset is negative"),
        ({"committed": {"g": [None, -1, 2]}}, "committed is negative"),
        ({"log_bytes": [0, "x", 2]}, "another type"),
        ({"log_bytes": 5}, "another type"),
        ({"replicas": [1, 2, 3]}, "another type"),
        ({"committed": {"g": 5}}, "another type"),
    ],
)
def test_malformed_columns_are_rejected_as_a_whole_with_their_reason(
    spark: SparkSession, change: dict[str, Any], reason: str
) -> None:
    value = dumps(COLUMNS | change)

    parsed = _parsed(spark, [value.encode(), dumps(COLUMNS).encode()])

    bad = sources.rejects(parsed, source="trimtab.telemetry").collect()
    assert [(reason in row.reason, row.raw) for row in bad] == [(True, value)]
    assert sources.samples(parsed).count() == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "no value"),
        (b"", "no value"),
        (b"{nonsense", "not JSON"),
        (b"[1]", "not JSON|no version"),
        (b"\xff\xfe", "not JSON"),
        (dumps(GOOD | {"v": 2}).encode(), "another type"),
        (dumps(COLUMNS | {"v": 3}).encode(), "unknown version 3"),
        (dumps(COLUMNS | {"v": 1}).encode(), "another type"),
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


ODD: tuple[Any, ...] = (
    *(None, True, 0, 5, -5, 1.7, 1.0, 10**18, 2**63, "5", "x", "", {}, []),
    *([None], [1], [1, 2, 3], [1, 2, None], [1, 2, 1.7], [1, 2, "5"], [1, 2, True], [1, 2, [3]]),
    *([0, 1, 1], [0, 1, -1], [0, 1, -2], [0, 1, 10**6], [0, 1, 2**31], [0, 1, 2**63]),
    *([[1], [2], None], [[1], [2], [None]], [[1], [2], ["3"]], [[1], [2], 3], [[1], [2], [2**31]]),
    *({"g": [1, 2, 3]}, {"g": [1, 2]}, {"g": [1, 2, -3]}, {"g": [1, 2, 1.7]}, {"g": [1, 2, True]}),
    *({"g": None}, {"g": 5}, {"g": -5}, {"g": 1.7}, {"g": "5"}, {"g": True}, ["g"], ["g", 5]),
)
PLAIN = json.dumps(COLUMNS)


def test_both_readers_of_telemetry_reject_the_same_records_for_the_same_reasons(
    spark: SparkSession,
) -> None:
    """Tables are written from what Spark reads, rates from what plain Python does."""
    changed = [
        json.dumps({"v": base["v"], "case": number} | base | {name: value}).encode()
        for number, base in enumerate((GOOD, COLUMNS))
        for name in (*COLUMNS, "part", "of")
        for value in ODD
    ]
    absent = [
        json.dumps({k: v for k, v in base.items() if k != name}).encode()
        for base in (GOOD, COLUMNS)
        for name in base
    ]
    odd = [
        *(b" ", b"null", b"5", b"{nonsense", f"[{PLAIN}]".encode(), f"[{dumps(GOOD)}]".encode()),
        *(f"{PLAIN} x".encode(), f"\n {PLAIN} \n".encode()),
        *(
            PLAIN.replace('"', "'").encode(),
            PLAIN.encode("utf-16"),
            b"\xef\xbb\xbf" + PLAIN.encode(),
        ),
        *(PLAIN.replace('"t"', '"t\xff"').encode("latin1"), PLAIN.replace('"t"', '"t\n"').encode()),
        *(PLAIN.replace("1000001", n).encode() for n in ("1e6", "01", "-0", "NaN", "1" * 30)),
    ]
    records = dict.fromkeys([*changed, *absent, *odd])

    rows = _parsed(spark, [*records]).select("raw", "reason").distinct().collect()

    by_spark = {row.raw: row.reason for row in rows if row.reason is not None}
    by_python = {}
    for record in records:
        try:
            read_any_sample(record, arrived_ts=1_000_000)
        except BadSample as error:
            by_python[record.decode(errors="replace")] = str(error)
    assert len(by_python) > 1000
    differ = [text for text in by_spark | by_python if by_spark.get(text) != by_python.get(text)]
    # Without a version Spark reads a record as one of the first, which columns are not.
    assert [text for text in differ if by_python.get(text) != "no version"] == []
    assert {by_spark.get(text) for text in differ} == {sources.OTHER_TYPE}


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


def test_samples_have_the_topics_groups_and_span_that_were_asked_for(spark: SparkSession) -> None:
    later = GOOD | {"ts": 1_500_000}
    other, own = GOOD | {"topic": "u"}, GOOD | {"topic": "trimtab.rates"}
    parsed = _parsed(spark, [dumps(r).encode() for r in (GOOD, later, other, own)])

    def found(asked: MeasureQuery) -> list[tuple[str, dict[str, int | None]]]:
        return [(r.topic, r.committed) for r in wanted_samples(parsed, asked, "trimtab.").collect()]

    everything = MeasureQuery(from_ts=0, to_ts=1_400_000)
    assert sorted(t for t, _ in found(everything)) == ["t", "u"]
    asked = replace(everything, topics=frozenset({"t"}), groups=frozenset({"g"}))
    assert found(asked) == [("t", {"g": 3})]


def test_markers_of_a_keyed_topic_are_no_events(spark: SparkSession) -> None:
    schema = (
        "topic string, partition int, offset long, timestamp timestamp, key binary, value binary, "
        "headers array<struct<key string, value binary>>"
    )
    data: list[Any] = [[("tt-seq", bytes(8))], [], None]
    marker = [("tt-shard", bytes(8)), ("tt-kind", b"\x01")]
    raw = spark.createDataFrame(
        [
            ("t", 0, offset, datetime(2026, 1, 1, tzinfo=UTC), b"k", b"v", headers)
            for offset, headers in enumerate([*data, marker])
        ],
        schema,
    )

    assert [row.offset for row in sources.events(raw).collect()] == [0, 1, 2]
    assert sources.events(raw.drop("headers")).count() == 4
