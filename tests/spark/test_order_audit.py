"""The order audit in Spark says what the plain referee says."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from tests.laws.processing import FAULTS, log_of, places, run_of, steady
from tests.spark.frames import receipts_frame
from trimtab.evaluate.order import (
    Commit,
    OrderRules,
    RecordPosition,
    Violation,
    ViolationKind,
    audit,
)
from trimtab.evaluate.spark.order_audit import log_audit, order_audit
from trimtab.measure.spark.measure_input import as_time
from trimtab.model.control import Receipt

_LOG = "topic string, partition int, offset long, key binary, seq long"


def _told(row: Row) -> tuple[Any, ...]:
    key = None if row.key is None else bytes(row.key)
    return (row.kind, row.topic, row.partition, key, row.at)


def _kept(violation: Violation) -> tuple[Any, ...]:
    v = violation
    return (str(v.kind), v.topic, v.partition, v.key, v.at)


def _sorted(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def _tables(
    spark: SparkSession, expected: list[RecordPosition], commits: list[Commit]
) -> tuple[DataFrame, DataFrame]:
    rows: list[tuple[Any, ...]] = [
        (c.topic, c.partition, as_time(c.ts), c.committed) for c in commits
    ]
    return (
        spark.createDataFrame(expected or [], "topic string, partition int, offset long"),
        spark.createDataFrame(rows, "topic string, partition int, ts timestamp, committed long"),
    )


def _scenes() -> tuple[list[Receipt], list[RecordPosition], list[Commit]]:
    """Sixty small runs, each on a topic of its own: legal, spoilt, or with receipts at random."""
    receipts: list[Receipt] = []
    expected: list[RecordPosition] = []
    commits: list[Commit] = []
    for seed in range(60):
        rng = Random(seed)
        log = log_of(rng, 0, rng.randint(1, 12), turns=rng.randint(1, 2))
        made, reports = run_of(rng, log, 0)
        if seed % 3 == 1:
            made, _ = rng.choice(list(FAULTS.values()))(steady(log, 0), rng.randrange(len(log)))
        elif seed % 3 == 2:
            made = [
                replace(r, started_ts=rng.choice(made).started_ts)
                for r in made
                if rng.random() < 0.8
            ]
            made = [replace(r, finished_ts=max(r.started_ts, r.finished_ts)) for r in made]
            reports = [c._replace(ts=rng.randrange(1_100_000)) for c in reports]
        name = f"t{seed}"
        receipts += [replace(r, topic=name) for r in made]
        commits += [c._replace(topic=name) for c in reports]
        if rng.random() < 0.5:
            expected += [p._replace(topic=name) for p in places(log, 0)]
    return receipts, expected, commits


def test_spark_finds_what_the_referee_finds(spark: SparkSession) -> None:
    receipts, expected, commits = _scenes()
    frame = receipts_frame(spark, receipts).persist()
    wanted, reported = _tables(spark, expected, commits)
    for rules in (OrderRules(), OrderRules(from_first=True, clock_skew_us=1_500)):
        found = order_audit(frame, run="r", rules=rules, expected=wanted, commits=reported)

        referee = audit(receipts, expected=expected, commits=commits, rules=rules)

        assert _sorted([_told(r) for r in found.collect()]) == _sorted([_kept(v) for v in referee])
        assert {v.kind for v in referee} == set(ViolationKind)
    frame.unpersist()


def test_the_log_of_a_topic_is_audited_within_each_partition(spark: SparkSession) -> None:
    rows: list[tuple[Any, ...]] = [
        ("t", 0, 0, b"a", 1),
        ("t", 0, 1, b"a", 3),
        ("t", 0, 2, b"a", 2),  # appended after 3
        ("t", 0, 3, b"a", 5),  # 4 is nowhere
        ("t", 0, 4, b"a", 5),  # once more
        ("t", 0, 5, b"b", 2),
        ("t", 1, 0, b"b", 1),  # another partition: no order is promised
        ("t", 0, 6, None, None),  # no number: nothing to check
        ("t", 1, 1, b"c", 1),
        ("t", 1, 2, b"c", 2),
        ("t", 1, 3, b"c", 1),  # the numbers begin anew
        ("t", 1, 4, b"c", 2),
    ]
    found = log_audit(spark.createDataFrame(rows, _LOG), run="r", rules=OrderRules(from_first=True))

    assert {_told(r) for r in found.collect()} == {
        ("inversion", "t", 0, b"a", 2),
        ("lost", "t", 0, b"a", 4),
        ("repeat", "t", 0, b"a", 5),
    }


def test_an_acknowledged_record_that_the_log_lacks_is_lost(spark: SparkSession) -> None:
    rows: list[tuple[Any, ...]] = [("t", 0, 0, b"a", 1), ("t", 0, 2, b"a", 3)]
    expected, _ = _tables(
        spark, [RecordPosition("t", 0, 0), RecordPosition("t", 0, 1), RecordPosition("t", 0, 2)], []
    )

    found = log_audit(
        spark.createDataFrame(rows, _LOG), run="r", rules=OrderRules(), expected=expected
    )

    assert {_told(r) for r in found.collect()} == {("lost", "t", 0, None, 1)}
