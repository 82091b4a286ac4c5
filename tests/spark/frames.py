"""Small frames of our tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.windows import MICROS, PartitionSample
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Receipt
from trimtab.spark.schemas import EVENTS, RECEIPTS, SAMPLES


def events_frame(
    spark: SparkSession, rows: Iterable[tuple[float, int, bytes | None]], *, topic: str = "t"
) -> DataFrame:
    """Events of (second, partition, key), each with a value of 10 bytes."""
    made: list[tuple[Any, ...]] = [
        (topic, p, i, as_time(round(second * MICROS)), key, len(key or b""), 10)
        for i, (second, p, key) in enumerate(rows)
    ]
    return spark.createDataFrame(made, EVENTS)


def samples_frame(
    spark: SparkSession, series: Mapping[TopicPartition, Iterable[PartitionSample]]
) -> DataFrame:
    """Samples as the monitor would have taken them."""
    made: list[tuple[Any, ...]] = [
        (
            as_time(s.ts),
            "c",
            name.topic,
            name.partition,
            s.leader,
            [1, 2],
            [1, 2],
            s.log_bytes,
            0,
            s.end_offset,
            dict(s.committed),
            f"s{s.ts}",
        )
        for name, samples in series.items()
        for s in samples
    ]
    return spark.createDataFrame(made, SAMPLES)


def receipts_frame(spark: SparkSession, receipts: Iterable[Receipt]) -> DataFrame:
    """Receipts as a table."""
    made: list[tuple[Any, ...]] = [
        tuple(
            as_time(value) if name.endswith("_ts") else value
            for name, value in ((name, getattr(r, name)) for name in RECEIPTS.names)
        )
        for r in receipts
    ]
    return spark.createDataFrame(made, RECEIPTS)
