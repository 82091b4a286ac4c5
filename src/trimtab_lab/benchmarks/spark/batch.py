"""Batch steps on Parquet tables, each compared with the plain Spark aggregation it is based on.

Both sides use integer windows, read the same files in the same session, and write to a sink that
discards all rows.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.measure.counters import Share
from trimtab.measure.spark.hot_keys import CountingMode, heavy_keys
from trimtab.measure.spark.rates import rates_from_events, rates_from_samples
from trimtab.measure.windows import MICROS
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second
from trimtab_lab.benchmarks.spark import data

WINDOW_S = 30
KEY_WINDOW_S = 60
SHARE = 0.001
EPSILON = SHARE / 10


def drain(frame: DataFrame) -> None:
    """Computes all rows and discards them."""
    frame.write.format("noop").mode("overwrite").save()


def span_us(rows: int) -> int:
    """The time span that the generated events cover."""
    return rows * MICROS // data.EVENTS_S


def our_rates(events: DataFrame, rows: int) -> DataFrame:
    """The step as `measure` calls it."""
    return rates_from_events(events, window_s=WINDOW_S, from_ts=0, to_ts=span_us(rows))


def our_keys(events: DataFrame, mode: CountingMode) -> DataFrame:
    """The step as `measure` calls it."""
    return heavy_keys(
        events,
        window_s=KEY_WINDOW_S,
        threshold=Share(SHARE),
        mode=mode,
        epsilon=EPSILON,
        partitions={data.TOPIC: data.PARTITIONS},
    )


def _window(window_s: int) -> str:
    return f"unix_micros(ts) div {window_s * MICROS}"


def rates(context: BenchContext, rows: int, runs: int) -> Sides:
    """Rates from events."""
    events = data.events(context, rows)

    def plain() -> DataFrame:
        return events.groupBy("topic", "partition", F.expr(_window(WINDOW_S))).agg(
            F.count("*"), F.sum(F.col("key_bytes") + F.col("value_bytes"))
        )

    return rows_per_second(
        rows,
        alternating(
            lambda: drain(our_rates(events, rows)),
            lambda: drain(plain()),
            runs=runs,
        ),
        window_s=WINDOW_S,
        partitions=data.PARTITIONS,
    )


def rates_samples(context: BenchContext, rows: int, runs: int) -> Sides:
    """Rates from samples."""
    samples = data.samples(context, rows)

    def ours() -> DataFrame:
        return rates_from_samples(
            samples, window_s=WINDOW_S, min_span_s=3.0, max_gap_s=WINDOW_S / 3
        )

    def plain() -> DataFrame:
        return samples.groupBy("topic", "partition", F.expr(_window(WINDOW_S))).agg(
            F.min("log_bytes"), F.max("log_bytes")
        )

    return rows_per_second(
        rows,
        alternating(lambda: drain(ours()), lambda: drain(plain()), runs=runs),
        window_s=WINDOW_S,
        partitions=data.WATCHED,
    )


def hot_keys_exact(context: BenchContext, rows: int, runs: int) -> Sides:
    """The fastest exact mode."""
    return _hot_keys(data.events(context, rows), rows, runs, CountingMode.TWO_PASS)


def hot_keys_lossy(context: BenchContext, rows: int, runs: int) -> Sides:
    """The mode with bounded memory."""
    return _hot_keys(data.events(context, rows), rows, runs, CountingMode.LOSSY)


def hot_keys_distinct(context: BenchContext, rows: int, runs: int) -> Sides:
    """The mode with bounded memory, on keys for which exact counting needs much memory."""
    return _hot_keys(data.events_mostly_distinct(context, rows), rows, runs, CountingMode.LOSSY)


def _hot_keys(events: DataFrame, rows: int, runs: int, mode: CountingMode) -> Sides:
    least = max(1, round(SHARE * min(rows, KEY_WINDOW_S * data.EVENTS_S)))

    def plain() -> DataFrame:
        window = F.expr(_window(KEY_WINDOW_S)).alias("window")
        return events.groupBy(window, "key").count().filter(F.col("count") >= least)

    return rows_per_second(
        rows,
        alternating(lambda: drain(our_keys(events, mode)), lambda: drain(plain()), runs=runs),
        mode=str(mode),
        window_s=KEY_WINDOW_S,
        threshold=f"share:{SHARE:g}",
        **({"epsilon": EPSILON} if mode is CountingMode.LOSSY else {}),
    )
