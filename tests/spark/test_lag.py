"""Lag in Spark."""

from __future__ import annotations

from pyspark.sql import SparkSession

from tests.spark.frames import samples_frame
from trimtab.measure.spark.lag import lag
from trimtab.measure.windows import MICROS, Sample
from trimtab.model.cluster import TopicPartition


def test_lag_is_that_of_the_newest_sample_and_unknown_is_not_zero(spark: SparkSession) -> None:
    def at(second: int, end: int | None, **committed: int | None) -> Sample:
        return Sample(
            ts=second * MICROS, leader=1, log_bytes=None, end_offset=end, committed=committed
        )

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
