"""Samples → what each group committed per second on each partition, over all samples."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by


def commits(samples: DataFrame) -> DataFrame:
    """One row per group and partition that has two samples with a committed offset.

    Columns group, topic, partition and committed_s; offsets that go back, as after a reset, are
    left out.
    """
    seen = samples.select(
        F.unix_micros("ts").alias("ts"),
        "topic",
        "partition",
        F.explode("committed").alias("group", "committed"),
    ).where(F.col("committed").isNotNull())
    span = seen.groupBy("group", "topic", "partition").agg(
        F.min("ts").alias("first_ts"),
        F.max("ts").alias("last_ts"),
        F.min_by("committed", "ts").alias("first"),
        F.max_by("committed", "ts").alias("last"),
    )
    grown = (F.col("last") - F.col("first")) * F.lit(1e6)
    return span.where(
        (F.col("last_ts") > F.col("first_ts")) & (F.col("last") >= F.col("first"))
    ).select(
        "group",
        "topic",
        "partition",
        (grown / (F.col("last_ts") - F.col("first_ts"))).alias("committed_s"),
    )
