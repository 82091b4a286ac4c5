"""Events → heavy keys per window and topic, exact or within stated bounds.

two-pass  exact; counts hash buckets first and single keys only in buckets that are heavy enough.
          The default over files and bounded Kafka spans.
group-by  exact; one plain count of every key. The reference, and the only way for `coverage`
          without a sketch.
lossy     lossy counting on Arrow columns, one summary per Spark partition and window, merged:
          memory stays bounded however many keys there are.
items     Apache DataSketches' frequent items, behind the same interface.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Any, assert_never

import pandas as pd
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from trimtab.measure.columnar_counting import ArrowLossyCounter
from trimtab.measure.counters import (
    Count,
    Coverage,
    HotKeyCounter,
    ItemsCounter,
    Share,
    Threshold,
    from_bytes,
    hot_keys,
)
from trimtab.measure.spark.rates import window_number, with_window_times
from trimtab.model.murmur2 import home
from trimtab.spark.schemas import HOT_KEYS

if TYPE_CHECKING:
    import pyarrow as pa

BUCKETS = 2**14
"""Hash buckets of the first pass: few enough for the CPU cache, and enough that with a thousand
heavy keys only one in sixteen light keys is counted needlessly."""

SUMMARIES = StructType(
    [
        StructField("window", LongType()),
        StructField("topic", StringType()),
        StructField("n", LongType()),
        StructField("summary", BinaryType()),
    ]
)


class CountingMode(StrEnum):
    """How heavy keys are found."""

    TWO_PASS = "two-pass"  # noqa: S105 - a way of counting, not a secret
    GROUP_BY = "group-by"
    LOSSY = "lossy"
    ITEMS = "items"


def heavy_keys(
    events: DataFrame,
    *,
    window_s: float,
    threshold: Threshold,
    mode: CountingMode,
    epsilon: float,
    partitions: Mapping[str, int],
    origin_ts: int = 0,
) -> DataFrame:
    """Heavy keys as rows of the table `hot_keys`; home partitions come from `partitions`."""
    keyed = keyed_windows(events, window_s=window_s, origin_ts=origin_ts)
    match mode:
        case CountingMode.TWO_PASS if not isinstance(threshold, Coverage):
            found = _two_pass(keyed, threshold)
        case CountingMode.TWO_PASS | CountingMode.GROUP_BY:
            found = _counted(keyed, threshold)
        case CountingMode.LOSSY | CountingMode.ITEMS:
            found = keyed.transform(summaries, mode=mode, epsilon=epsilon).transform(
                merged, threshold=threshold
            )
        case _:
            assert_never(mode)
    return with_window_times(
        found.transform(_homes, partitions=partitions), window_s=window_s, origin_ts=origin_ts
    ).select(*HOT_KEYS.names)


def keyed_windows(events: DataFrame, *, window_s: float, origin_ts: int = 0) -> DataFrame:
    """The keyed events, each with the number of its window."""
    window = window_number("ts", window_s, origin_ts=origin_ts).alias("window")
    return events.where("key is not null").select(window, "topic", "key")


# ---------------------------------------------------------------- exact


def _least(threshold: Count | Share, n: Column) -> Column:
    """The fewest records that make a key hot in a window of `n`."""
    match threshold:
        case Count(records=records):
            return F.lit(records)
        case Share(of_records=share):
            return F.greatest(F.ceil(F.lit(share) * n), F.lit(1))


def _two_pass(keyed: DataFrame, threshold: Count | Share) -> DataFrame:
    bucket = F.xxhash64("key").bitwiseAND(F.lit(BUCKETS - 1))
    buckets = keyed.groupBy("window", "topic", bucket.alias("bucket")).agg(
        F.count("*").alias("records")
    )
    totals = buckets.groupBy("window", "topic").agg(F.sum("records").alias("n"))
    least = F.broadcast(totals.withColumn("least", _least(threshold, F.col("n"))))
    # Spark joins by one number much faster than by three columns. If two buckets have the same
    # number, some keys are counted needlessly.
    heavy = (
        buckets.join(least, ["window", "topic"])
        .where("records >= least")
        .select(F.xxhash64("window", "topic", "bucket").alias("place"))
    )
    candidates = keyed.withColumn("place", F.xxhash64("window", "topic", bucket)).join(
        F.broadcast(heavy), "place", "left_semi"
    )
    counted = candidates.groupBy("window", "topic", "key").agg(F.count("*").alias("lower"))
    return (
        counted.join(least, ["window", "topic"])
        .where("lower >= least")
        .select("window", "topic", "key", "n", "lower", F.col("lower").alias("upper"))
    )


def _counted(keyed: DataFrame, threshold: Threshold) -> DataFrame:
    counted = keyed.groupBy("window", "topic", "key").agg(F.count("*").alias("lower"))
    span = Window.partitionBy("window", "topic")
    totalled = counted.withColumn("n", F.sum("lower").over(span))
    if isinstance(threshold, Coverage):
        ranked = span.orderBy(F.desc("lower"), "key").rowsBetween(Window.unboundedPreceding, -1)
        before = F.coalesce(F.sum("lower").over(ranked), F.lit(0))
        hot = totalled.withColumn("before", before).where(
            F.col("before") < F.lit(threshold.of_records) * F.col("n")
        )
    else:
        hot = totalled.where(F.col("lower") >= _least(threshold, F.col("n")))
    return hot.select("window", "topic", "key", "n", "lower", F.col("lower").alias("upper"))


# ---------------------------------------------------------------- sketches


def summaries(keyed: DataFrame, *, mode: CountingMode, epsilon: float) -> DataFrame:
    """One summary per Spark partition, window and topic."""
    return keyed.mapInArrow(counting(mode, epsilon), SUMMARIES)


def counting(
    mode: CountingMode, epsilon: float
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that a Python worker runs on the batches of one Spark partition."""

    def count(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        counters: dict[tuple[int, str], ArrowLossyCounter | ItemsCounter] = {}
        for batch in batches:
            for place, keys in _by_place(batch):
                if place not in counters:
                    counters[place] = _counter(mode, epsilon)
                _feed(counters[place], keys)
        rows = [
            {"window": window, "topic": topic, "n": counter.n, "summary": _packed(counter)}
            for (window, topic), counter in counters.items()
        ]
        if rows:
            yield from pa.Table.from_pylist(rows, schema=_arrow_schema()).to_batches()

    return count


def _arrow_schema() -> pa.Schema:
    import pyarrow as pa

    return pa.schema(
        [
            ("window", pa.int64()),
            ("topic", pa.string()),
            ("n", pa.int64()),
            ("summary", pa.binary()),
        ]
    )


def _counter(mode: CountingMode, epsilon: float) -> ArrowLossyCounter | ItemsCounter:
    return (
        ArrowLossyCounter(epsilon)
        if mode is CountingMode.LOSSY
        else ItemsCounter.for_epsilon(epsilon)
    )


def _packed(counter: ArrowLossyCounter | ItemsCounter) -> bytes:
    whole = counter.summary() if isinstance(counter, ArrowLossyCounter) else counter
    return whole.to_bytes()


def _feed(counter: ArrowLossyCounter | ItemsCounter, keys: pa.Array) -> None:
    if isinstance(counter, ArrowLossyCounter):
        counter.add_keys(keys)
        return
    for pair in keys.value_counts():
        counter.add(pair["values"].as_py(), pair["counts"].as_py())


def _by_place(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, str], pa.Array]]:
    """Splits a batch by window and topic; most batches have one of each and are not copied."""
    for window, of_window in _split(batch, "window"):
        for topic, of_topic in _split(of_window, "topic"):
            yield (window, topic), of_topic["key"]


def _split(batch: pa.RecordBatch, column: str) -> Iterator[tuple[Any, pa.RecordBatch]]:
    """The rows of each value in a column; the batch itself if there is only one value."""
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    ends = pc.min_max(batch[column])
    if ends["min"] == ends["max"]:
        yield ends["min"].as_py(), batch
        return
    for value in batch[column].unique():
        yield value.as_py(), batch.filter(pc.equal(batch[column], value))


def merged(parts: DataFrame, *, threshold: Threshold) -> DataFrame:
    """Summaries of the same window and topic, merged → heavy keys with bounds."""
    schema = "window long, topic string, key binary, n long, lower long, upper long"

    def merge(place: tuple[int, str], frame: pd.DataFrame) -> pd.DataFrame:
        window, topic = place
        whole = merge_summaries(frame["summary"])
        rows = [
            (window, topic, key, whole.n, bounds.lower, bounds.upper)
            for key, bounds in hot_keys(threshold, whole).items()
        ]
        names = ["window", "topic", "key", "n", "lower", "upper"]
        return pd.DataFrame(rows, columns=names)

    return parts.groupBy("window", "topic").applyInPandas(merge, schema)


def merge_summaries(packed: Iterable[bytes]) -> HotKeyCounter:
    """Merges at least one packed summary into one counter."""
    whole, *rest = (from_bytes(bytes(part)) for part in packed)
    for part in rest:
        whole = whole.merge(part)
    return whole


# ---------------------------------------------------------------- common last step


def _homes(found: DataFrame, *, partitions: Mapping[str, int]) -> DataFrame:
    """Adds each key's home partition and its share of the window's keyed records."""
    fixed = dict(partitions)

    @F.udf(IntegerType())
    def home_of(topic: str, key: bytes) -> int | None:
        return home(bytes(key), fixed[topic]) if topic in fixed else None

    return found.withColumns(
        {"share": F.col("lower") / F.col("n"), "partition_home": home_of("topic", "key")}
    )
