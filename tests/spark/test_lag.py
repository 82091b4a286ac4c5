"""Lag in Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.frames import samples_frame
from trimtab.measure.spark.commits import commits
from trimtab.measure.spark.lag import lag
from trimtab.measure.windows import MICROS, PartitionSample
from trimtab.model.cluster import TopicPartition


def at(second: int, end: int | None, **committed: int | None) -> PartitionSample:
    return PartitionSample(
        ts=second * MICROS, leader=1, log_bytes=None, end_offset=end, committed=committed
    )


def test_commits_per_second_are_those_of_all_samples(spark: SparkSession) -> None:
    series = {
        TopicPartition("t", 0): [at(s, 10 * s, slow=6 * s, fast=10 * s) for s in range(11)],
        TopicPartition("t", 1): [at(0, 5), at(1, 5, slow=None), at(2, 9, slow=3), at(4, 9, slow=9)],
        TopicPartition("t", 2): [at(0, 9, slow=9), at(5, 9, slow=4)],  # reset by hand
    }
    rows = commits(samples_frame(spark, series)).collect()
    assert {(r.group, r.partition): r.committed_s for r in rows} == {
        ("slow", 0): 6.0,
        ("fast", 0): 10.0,
        ("slow", 1): 3.0,
    }


def test_lag_is_that_of_the_newest_sample_and_unknown_is_not_zero(spark: SparkSession) -> None:
    series = {
        # `slow` is 40 records behind: the log's end stood at 60 six seconds ago.
        TopicPartition("t", 0): [at(s, 10 * s, slow=6 * s, fast=10 * s) for s in range(11)],
        TopicPartition("t", 1): [at(s, 5, slow=None) for s in range(11)],
        TopicPartition("t", 2): [at(0, 5, slow=3), at(1, None, slow=3)],
    }
    rows = lag(samples_frame(spark, series)).collect()
    assert {
        (r.group, r.partition): (r.lag_records, r.lag_s, r.state, r.complete) for r in rows
    } == {
        ("slow", 0): (40, 4.0, "ok", True),
        ("fast", 0): (0, 0.0, "ok", True),
        ("slow", 1): (None, None, "unknown", False),
        ("slow", 2): (None, None, "unknown", False),
    }
    assert {r.ts.timestamp() for r in rows if r.partition == 0} == {10.0}
