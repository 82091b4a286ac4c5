"""Samples → records per second that each group committed on each partition, over all samples.

As with lag, the history of a partition is collected into a sorted array and passed to the plain
function that the unit tests call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.measure.learned_capacity import CommitSample, commit_speed

_COLUMNS = "group string, topic string, partition int, committed_s double, least_lag bigint"


def commits(samples: DataFrame) -> DataFrame:
    """One row per group and partition with a known commit speed, and its lowest lag.

    Columns group, topic, partition, committed_s and least_lag.
    """
    seen = samples.select(
        "ts", "topic", "partition", "end_offset", F.explode("committed").alias("group", "committed")
    ).where(F.col("committed").isNotNull())
    sample = F.struct(F.unix_micros("ts").alias("ts"), "end_offset", "committed")
    gathered = seen.groupBy("group", "topic", "partition").agg(
        F.sort_array(F.collect_list(sample)).alias("history")
    )
    return gathered.mapInPandas(_computed, _COLUMNS)


def _computed(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    for frame in frames:
        found = [
            commit_speed([CommitSample(k["ts"], k["end_offset"], k["committed"]) for k in history])
            for history in frame.pop("history")
        ]
        frame["committed_s"] = [None if f is None else f.committed_s for f in found]
        frame["least_lag"] = [None if f is None else f.least_lag for f in found]
        typed = frame.astype({"committed_s": "float64", "least_lag": "Int64"})
        yield typed[typed["committed_s"].notna()]
