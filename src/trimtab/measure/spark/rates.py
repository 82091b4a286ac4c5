"""Samples or events → bytes/s and records/s per partition and window.

Windows are integers (`micros div W`), which Spark groups by several times as fast as by `window()`.
The samples of a window are collected into a sorted array and evaluated with native expressions, so
that batch and streaming share the step; `measure.windows.speed` is the same rule in plain Python.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.measure.activity import SLOTS
from trimtab.measure.windows import MICROS, as_micros
from trimtab.model.load import Source
from trimtab.spark.schemas import PARTITION_RATES


def window_number(ts: str, window_s: float, *, origin_ts: int = 0) -> Column:
    """The number of the tumbling window that contains a time, counted from `origin_ts`."""
    return F.expr(f"(unix_micros({ts}) - {origin_ts}) div {round(window_s * MICROS)}")


def with_window_times(frame: DataFrame, *, window_s: float, origin_ts: int = 0) -> DataFrame:
    """Replaces the column `window` (a number) by `window_start` and `window_end`."""
    width = round(window_s * MICROS)
    return frame.withColumns(
        {
            "window_start": F.timestamp_micros(F.col("window") * width + origin_ts),
            "window_end": F.timestamp_micros((F.col("window") + 1) * width + origin_ts),
        }
    ).drop("window")


def rates_from_events(events: DataFrame, *, window_s: float, from_ts: int, to_ts: int) -> DataFrame:
    """Counts events; a window that is partly outside `from_ts` … `to_ts` is incomplete.

    The rate of an incomplete window is over the part of it that is inside the span.
    """
    return _counted(events, window_s).transform(
        rates_of_counts, window_s=window_s, from_ts=from_ts, to_ts=to_ts
    )


def counts_of_events(events: DataFrame, *, window_s: float) -> DataFrame:
    """Events and bytes per window, with first and last time, and a bit per time slot."""
    width = round(window_s * MICROS)
    micros = F.unix_micros("ts")
    slot = F.expr(f"cast((unix_micros(ts) % {width}) * {SLOTS} div {width} as int)")
    return _counted(
        events,
        window_s,
        F.min(micros).alias("first_ts"),
        F.max(micros).alias("last_ts"),
        F.bit_or(F.call_function("shiftleft", F.lit(1).cast("long"), slot)).alias("slots"),
    )


def _counted(events: DataFrame, window_s: float, *more: Column) -> DataFrame:
    return events.groupBy(window_number("ts", window_s).alias("window"), "topic", "partition").agg(
        F.count("*").alias("samples"),
        F.sum(F.col("key_bytes") + F.col("value_bytes")).alias("bytes"),
        *more,
    )


def rates_of_counts(counts: DataFrame, *, window_s: float, from_ts: int, to_ts: int) -> DataFrame:
    """Counts per window as rates."""
    width = round(window_s * MICROS)
    start, end = F.col("window") * width, (F.col("window") + 1) * width
    seconds = (F.least(end, F.lit(to_ts)) - F.greatest(start, F.lit(from_ts))) / MICROS
    rated = counts.withColumns(
        {
            "bytes_s": F.col("bytes") / seconds,
            "records_s": F.col("samples") / seconds,
            "source": F.lit(str(Source.EVENTS)),
            "complete": (start >= from_ts) & (end <= to_ts),
        }
    )
    return with_window_times(rated, window_s=window_s).select(*PARTITION_RATES.names)


def rates_from_samples(
    samples: DataFrame, *, window_s: float, min_span_s: float, max_gap_s: float
) -> DataFrame:
    """Differences of log sizes and end offsets, restarted after a drop or a new leader."""
    sample = F.struct(
        F.unix_micros("ts").alias("ts"), "leader", "log_bytes", F.col("end_offset").alias("end")
    )
    gathered = samples.groupBy(
        window_number("ts", window_s).alias("window"), "topic", "partition"
    ).agg(F.sort_array(F.collect_list(sample)).alias("all"))
    # Most series were never restarted, which is cheap to check; a fold over each series would cost
    # more than everything else.
    found = gathered.withColumn("f", F.when(_unbroken(), _whole()).otherwise(_last_run()))
    size_us = F.col("f.size_ts") - F.col("f.size_from_ts")
    end_us = F.col("f.end_ts") - F.col("f.end_from_ts")
    rated = found.withColumns(
        {
            "bytes_s": _per_second(F.col("f.size") - F.col("f.size_from"), size_us),
            "records_s": _per_second(F.col("f.end") - F.col("f.end_from"), end_us),
            "source": F.lit(str(Source.LOG_DIRS)),
            "samples": F.size("all").cast("long"),
            "complete": F.coalesce(
                (size_us >= max(as_micros(min_span_s), 1))
                & (_widest_gap() <= as_micros(max_gap_s)),
                F.lit(False),
            ),
        }
    )
    return with_window_times(rated, window_s=window_s).select(*PARTITION_RATES.names)


def _per_second(growth: Column, micros: Column) -> Column:
    return F.when(micros > 0, growth / (micros / MICROS))


def _widest_gap() -> Column:
    """The longest time between two successive sizes; 0 for a single size."""
    # An unbroken series has no unknown sizes, so most series do not need the filter.
    sized = F.filter("all", lambda sample: sample.log_bytes.isNotNull()).getField("ts")
    times = F.when(_unbroken(), F.col("all.ts")).otherwise(sized)
    later = F.slice(times, F.lit(2), F.size(times))  # one element shorter: the last pair is null
    gaps = F.zip_with(later, times, lambda b, a: b - a)
    return F.coalesce(F.array_max(gaps), F.lit(0))


def _unbroken() -> Column:
    """Whether all values are known, none decreased, and the leader did not change."""

    def grows(values: Column) -> Column:
        # Nulls are sorted to the front, so a known first value means that all are known.
        return values[0].isNotNull() & (values == F.sort_array(values))

    leaders = F.col("all.leader")
    one_leader = F.array_min(leaders) == F.array_max(leaders)
    return one_leader & grows(F.col("all.log_bytes")) & grows(F.col("all.end"))


_RUN = tuple(
    f"{kind}{part}" for kind in ("size", "end") for part in ("_ts", "", "_from_ts", "_from")
)
"""Start and end of the last unbroken run of both series."""


def _whole() -> Column:
    """The run of a series that was never restarted: from its first sample to its last."""
    first, last = F.col("all")[0], F.element_at("all", -1)
    return F.struct(
        *(
            value.alias(name)
            for name, value in zip(
                _RUN,
                (
                    *(last.ts, last.log_bytes, first.ts, first.log_bytes),
                    *(last.ts, last["end"], first.ts, first["end"]),
                ),
                strict=True,
            )
        )
    )


def _last_run() -> Column:
    """Goes through the sorted samples once and finds the start of the last unbroken run."""

    def step(a: Column, s: Column) -> Column:
        sized = s.log_bytes.isNotNull()
        size_restarts = sized & (
            a["size"].isNull() | (s.log_bytes < a["size"]) | (s.leader != a.leader)
        )
        ended = s["end"].isNotNull()
        end_restarts = ended & (a["end"].isNull() | (s["end"] < a["end"]))
        return F.struct(
            F.when(sized, s.ts).otherwise(a.size_ts).alias("size_ts"),
            F.when(sized, s.log_bytes).otherwise(a["size"]).alias("size"),
            F.when(size_restarts, s.ts).otherwise(a.size_from_ts).alias("size_from_ts"),
            F.when(size_restarts, s.log_bytes).otherwise(a.size_from).alias("size_from"),
            F.when(ended, s.ts).otherwise(a.end_ts).alias("end_ts"),
            F.when(ended, s["end"]).otherwise(a["end"]).alias("end"),
            F.when(end_restarts, s.ts).otherwise(a.end_from_ts).alias("end_from_ts"),
            F.when(end_restarts, s["end"]).otherwise(a.end_from).alias("end_from"),
            F.when(sized, s.leader).otherwise(a.leader).alias("leader"),
        )

    unknown = F.lit(None).cast("long")
    start = F.struct(*(unknown.alias(n) for n in _RUN), F.lit(None).cast("int").alias("leader"))
    return F.aggregate("all", start, step, lambda a: F.struct(*(a[n].alias(n) for n in _RUN)))
