"""Keyed events from a seeded generator, made on Spark's executors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession

from trimtab.model.murmur2 import homes
from trimtab.spark.schemas import EVENTS
from trimtab.workload.key_streams import ZipfMandelbrot, key_bytes


def generated_events(
    session: SparkSession,
    rows: int,
    *,
    seed: int,
    keys: ZipfMandelbrot,
    partitions: int = 12,
    rate: float = 100_000.0,
    value_bytes: int = 100,
    tasks: int = 8,
) -> DataFrame:
    """A seeded stream of keyed events, the same for every number of cores."""

    def block(frames: Iterable[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for frame in frames:
            for task, first, count in frame.itertuples(index=False):
                yield _block(int(task), int(first), int(count))

    def _block(task: int, first: int, count: int) -> pd.DataFrame:
        names = key_bytes(keys.sample(count, np.random.default_rng([seed, task])))
        order = np.arange(first, first + count)
        micros = (order / rate * 1e6).astype("int64")
        return pd.DataFrame(
            {
                "topic": "generated",
                "partition": homes(names, partitions).astype("int32"),
                "offset": order,
                "ts": pd.to_datetime(micros, unit="us", utc=True),
                "key": names,
                "key_bytes": np.fromiter(map(len, names), "int32", count),
                "value_bytes": np.full(count, value_bytes, "int32"),
            }
        )

    size = 250_000
    cuts: list[tuple[Any, ...]] = [
        (i, first, min(size, rows - first)) for i, first in enumerate(range(0, rows, size))
    ]
    plan = session.createDataFrame(cuts, "task int, first long, count long").repartition(tasks)
    return plan.mapInPandas(block, EVENTS)
