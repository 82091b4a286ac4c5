"""Samples → lag of each group on each partition, as of the newest sample.

Lag in records is a difference of offsets, so on topics with transactions or compaction it is an
upper bound. The history of a partition is collected into a sorted array and passed to the same
plain functions that the unit tests call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.measure.lag_rules import LagState, Reading, verdict
from trimtab.measure.windows import PartitionSample, lag_records, lag_seconds
from trimtab.spark.schemas import LAG


def lag(samples: DataFrame) -> DataFrame:
    """One row per group and partition; a group without a committed offset has an unknown lag."""
    per_group = samples.select(
        "ts", "topic", "partition", "end_offset", F.explode("committed").alias("group", "committed")
    )
    look = F.struct(F.unix_micros("ts").alias("ts"), "end_offset", "committed")
    gathered = per_group.groupBy("group", "topic", "partition").agg(
        F.max("ts").alias("ts"), F.sort_array(F.collect_list(look)).alias("looks")
    )
    return gathered.mapInPandas(_computed, LAG)


def _computed(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        computed = pd.DataFrame(
            [_lag_and_state(history) for history in frame.pop("looks")],
            columns=["lag_records", "lag_s", "state"],
            index=frame.index,
        ).astype({"lag_records": "Int64", "lag_s": "float64"})
        computed["complete"] = computed["state"] != str(LagState.UNKNOWN)
        yield frame.join(computed)[LAG.names]


def _lag_and_state(history: list[dict[str, int | None]]) -> tuple[int | None, float | None, str]:
    """Lag in records, lag in seconds and state of a partition, from samples, oldest first."""
    newest = history[-1]
    samples = [
        PartitionSample(ts=look["ts"] or 0, leader=0, log_bytes=None, end_offset=look["end_offset"])
        for look in history
    ]
    readings = [Reading(look["end_offset"], look["committed"]) for look in history]
    return (
        lag_records(newest["end_offset"], newest["committed"]),
        lag_seconds(samples, newest["committed"]),
        str(verdict(readings)),
    )
