"""Receipts → the outcome of a run: latency, the share within the SLA, replica-minutes, moves.

Latency is from a record's event time to the end of its first processing; repeats are not counted
again. Quantiles are exact. Windows are integers (`micros div W`) of event time. Replicas are
weighted spans: an incarnation counts as one from its first report on the control topic to its last,
or from the first record that it started to the last that it finished; a row of a timeline, such as
a decision, is valid until the next.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.evaluate.spark.order_audit import holds
from trimtab.measure.spark.rates import window_number, with_window_times
from trimtab.measure.windows import MICROS
from trimtab.spark.schemas import OUTCOMES

QUANTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999}


def first_receipts(receipts: DataFrame) -> DataFrame:
    """One row per record: its first processing, with `latency_ms`."""
    first = F.min(F.struct("started_ts", "finished_ts", "incarnation", "consumer"))
    return (
        receipts.groupBy("topic", "partition", "offset")
        .agg(F.min("event_ts").alias("event_ts"), first.alias("first"))
        .select("topic", "partition", "offset", "event_ts", "first.*")
        .withColumn("latency_ms", _micros("finished_ts", "event_ts") / 1000)
    )


def latencies(records: DataFrame, *, sla_s: float | None, by: tuple[str, ...] = ()) -> DataFrame:
    """Exact quantiles and the share within the SLA, if given, over all or per column."""
    level = F.percentile("latency_ms", list(QUANTILES.values()))
    in_time = F.lit(None) if sla_s is None else F.col("latency_ms") <= sla_s * 1000
    counted = records.groupBy(*by).agg(
        F.count("*").alias("events"),
        level.alias("levels"),
        F.max("latency_ms").alias("max_ms"),
        F.avg(in_time.cast("double")).alias("within_sla"),
    )
    named = {name: F.col("levels")[at] for at, name in enumerate(QUANTILES)}
    return counted.withColumns({**named, "sla_s": F.lit(sla_s).cast("double")}).drop("levels")


def outcomes(
    receipts: DataFrame,
    replicas: DataFrame,
    *,
    run: str,
    group: str,
    sla_s: float | None,
    window_s: float,
    timed_by: str = "event_ts",
) -> DataFrame:
    """One row per window of event time; `replicas` are spans from the functions below.

    With `timed_by` the windows are of another time of receipts. `replicas` of a window is the mean
    while there were any, `busiest_share` the share of all processing time of the busiest consumer.
    """
    worked = "started_ts" if timed_by == "event_ts" else timed_by
    records = receipts.transform(first_receipts).withColumn(
        "window", window_number(timed_by, window_s)
    )
    judged = latencies(records, sla_s=sla_s, by=("window",))
    counted = judged.join(_replicas_by_window(replicas, window_s=window_s), "window", "left").join(
        _busiest_by_window(receipts, window_s=window_s, timed_by=worked), "window", "left"
    )
    return (
        with_window_times(counted, window_s=window_s)
        .withColumns({"run": F.lit(run), "group": F.lit(group)})
        .select(*OUTCOMES.names)
    )


def _micros(later: str, earlier: str) -> Column:
    return F.unix_micros(later) - F.unix_micros(earlier)


# ---------------------------------------------------------------- replicas


def replicas_from_receipts(receipts: DataFrame) -> DataFrame:
    """Spans (from_ts, to_ts, replicas) of the incarnations: from first start to last finish."""
    return (
        receipts.groupBy("incarnation")
        .agg(F.min("started_ts").alias("from_ts"), F.max("finished_ts").alias("to_ts"))
        .select("from_ts", "to_ts", F.lit(1).alias("replicas"))
    )


def replicas_from_control(control: DataFrame, *, from_ts: int, to_ts: int) -> DataFrame:
    """Spans of the incarnations from their first report to their last, cut to a span of time."""
    lives = control.where("incarnation is not null").groupBy("incarnation")
    spans = lives.agg(F.min("ts").alias("from_ts"), F.max("ts").alias("to_ts"))
    return _cut(spans.withColumn("replicas", F.lit(1)), from_ts, to_ts)


def replicas_from_timeline(timeline: DataFrame, *, from_ts: int, to_ts: int) -> DataFrame:
    """Spans of a timeline (ts, replicas), each row until the next, cut to a span of time."""
    in_time = Window.orderBy("ts")  # one row per decision: few enough for one task to handle
    until = F.coalesce(F.lead("ts").over(in_time), F.timestamp_micros(F.lit(to_ts)))
    spans = timeline.withColumn("to_ts", until).withColumnRenamed("ts", "from_ts")
    return _cut(spans, from_ts, to_ts)


def _cut(spans: DataFrame, from_ts: int, to_ts: int) -> DataFrame:
    start, end = F.timestamp_micros(F.lit(from_ts)), F.timestamp_micros(F.lit(to_ts))
    return spans.select(
        F.greatest("from_ts", start).alias("from_ts"),
        F.least("to_ts", end).alias("to_ts"),
        "replicas",
    ).where("from_ts < to_ts")


def timeline_of_decisions(decisions: DataFrame) -> DataFrame:
    """The number of consumers of each decision, including refusals: (ts, replicas)."""
    return decisions.select("ts", F.col("to").alias("replicas"))


def replica_minutes(replicas: DataFrame) -> DataFrame:
    """One row: `replica_minutes` of all spans."""
    return replicas.agg(
        (F.sum(F.col("replicas") * _micros("to_ts", "from_ts")) / (60 * MICROS)).alias(
            "replica_minutes"
        )
    )


def _replicas_by_window(replicas: DataFrame, *, window_s: float) -> DataFrame:
    width = round(window_s * MICROS)
    spans = replicas.select(
        "replicas", F.unix_micros("from_ts").alias("start"), F.unix_micros("to_ts").alias("end")
    )
    cut = spans.select(
        "*", F.explode(F.expr(f"sequence(start div {width}, end div {width})")).alias("window")
    ).withColumns(
        {
            "start": F.greatest(F.col("start"), F.col("window") * width),
            "end": F.least(F.col("end"), (F.col("window") + 1) * width),
        }
    )
    # The mean is over the time from the first span in the window to the last.
    alive = F.max("end") - F.min("start")
    weight = F.sum(F.col("replicas") * (F.col("end") - F.col("start")))
    return cut.groupBy("window").agg(
        F.when(alive > 0, weight / alive).alias("replicas"),
        (weight / (60 * MICROS)).alias("replica_minutes"),
    )


# ---------------------------------------------------------------- consumers


def _busy(receipts: DataFrame) -> DataFrame:
    """Every receipt with the microseconds that it adds to its consumer's busy time.

    A batch handler processes many records at once; their time counts once.
    """
    before = (
        Window.partitionBy("incarnation")
        .orderBy("started_ts", "finished_ts", "topic", "partition", "offset")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    until = F.coalesce(F.max(F.unix_micros("finished_ts")).over(before), F.lit(0))
    fresh = F.unix_micros("finished_ts") - F.greatest(F.unix_micros("started_ts"), until)
    return receipts.withColumn("busy_us", F.greatest(fresh, F.lit(0)))


def consumers(receipts: DataFrame) -> DataFrame:
    """One row per incarnation: its records, busy time, lifetime and utilisation."""
    return (
        receipts.transform(_busy)
        .groupBy("consumer", "incarnation")
        .agg(
            F.count("*").alias("processed"),
            (F.sum("busy_us") / MICROS).alias("busy_s"),
            F.min("started_ts").alias("from_ts"),
            F.max("finished_ts").alias("to_ts"),
        )
        .withColumn("life_s", _micros("to_ts", "from_ts") / MICROS)
        .withColumn("utilisation", F.when(F.col("life_s") > 0, F.col("busy_s") / F.col("life_s")))
    )


def _busiest_by_window(receipts: DataFrame, *, window_s: float, timed_by: str) -> DataFrame:
    per_consumer = (
        receipts.transform(_busy)
        .groupBy(window_number(timed_by, window_s).alias("window"), "incarnation")
        .agg(F.sum("busy_us").alias("busy_us"))
    )
    whole = F.sum("busy_us")
    return per_consumer.groupBy("window").agg(
        F.when(whole > 0, F.max("busy_us") / whole).alias("busiest_share")
    )


# ---------------------------------------------------------------- moves


def moves(receipts: DataFrame) -> DataFrame:
    """One row per change of owner of a partition.

    `gap_s` is from the last record that the old owner finished to the first that the new one
    started; `blocked_s` is the part of it in which that record was already waiting.
    """
    in_turn = Window.partitionBy("topic", "partition").orderBy("hold")
    held = receipts.transform(holds).withColumns(
        {
            "from_consumer": F.lag("consumer").over(in_turn),
            "from_incarnation": F.lag("incarnation").over(in_turn),
            "left_ts": F.lag("finished_ts").over(in_turn),
        }
    )
    waiting = F.greatest("left_ts", "first_event_ts")
    return held.where("left_ts is not null").select(
        *("topic", "partition", "from_consumer", F.col("consumer").alias("to_consumer")),
        *("from_incarnation", F.col("incarnation").alias("to_incarnation")),
        *("left_ts", F.col("started_ts").alias("taken_ts")),
        (_micros("started_ts", "left_ts") / MICROS).alias("gap_s"),
        (F.greatest(F.unix_micros("started_ts") - F.unix_micros(waiting), F.lit(0)) / MICROS).alias(
            "blocked_s"
        ),
    )


def handovers(control: DataFrame) -> DataFrame:
    """Control messages (ts, type, topic, partition) → from each stop to the `started` after it."""
    in_time = Window.partitionBy("topic", "partition").orderBy(
        "ts", F.when(F.col("type") == "stop", 0).otherwise(1)
    )
    ends = control.where(F.col("type").isin("stop", "started"))
    # A stop that was sent again belongs to the current hand-over.
    rounds = F.coalesce(
        F.sum(F.when(F.col("type") == "started", 1).otherwise(0)).over(
            in_time.rowsBetween(Window.unboundedPreceding, -1)
        ),
        F.lit(0),
    )
    return (
        ends.withColumn("round", rounds)
        .groupBy("topic", "partition", "round")
        .agg(
            F.min(F.when(F.col("type") == "stop", F.col("ts"))).alias("stop_ts"),
            F.max(F.when(F.col("type") == "started", F.col("ts"))).alias("started_ts"),
        )
        .where("stop_ts is not null and started_ts is not null")
        .withColumn("blocked_s", _micros("started_ts", "stop_ts") / MICROS)
        .drop("round")
    )
