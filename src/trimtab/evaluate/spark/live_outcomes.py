"""The continuous evaluation job: receipts → the outcome of every window, while a group runs.

Windows are of the time at which processing finished: they are complete shortly after they end,
while windows of event time may be hours behind. A record processed again in a later window counts
there too, and a consumer that finished a record in a window counts for the whole window.

Promise  The receipts of each micro-batch are stored under its number until their windows are
         closed, and a window's rows carry its time: work repeated after a crash overwrites itself.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import partial

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import LongType, StructType

from trimtab.evaluate.spark import outcomes as steps
from trimtab.evaluate.spark.order_audit import distinct_receipts
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.measure.spark.rates import window_number
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.spark.streaming_queries import Stream, SupervisedQuery, pattern_of
from trimtab.measure.windows import MICROS
from trimtab.model.codec import short_hash
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.schemas import RECEIPTS
from trimtab.spark.session import storage_path
from trimtab.spark.warehouse import Folder, Warehouse

log = structlog.get_logger()

_NAME = "outcomes"
_KEPT = StructType([*RECEIPTS.fields]).add("window", LongType()).add("batch", LongType())


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOutcomeOptions:
    """The parameters of the job; `delay_s` is how long a window waits for late receipts."""

    window_s: float
    sla_s: float | None = None
    asked: MeasureQuery = field(default_factory=lambda: MeasureQuery(from_ts=0, to_ts=0))
    delay_s: float = 2.0

    @property
    def width(self) -> int:
        """The width of a window, in microseconds."""
        return round(self.window_s * MICROS)


def outcomes_query(
    session: SparkSession,
    cluster: Cluster,
    how: LiveOutcomeOptions,
    *,
    cluster_id: str | None,
    warehouse: Warehouse,
    checkpoint: str,
) -> SupervisedQuery:
    """The query, with the receipts that the previous driver had not yet evaluated."""
    asked = how.asked
    identity = short_hash(
        {
            "cluster": cluster_id,
            "receipts": cluster.topics.receipts,
            "topics": sorted(asked.topics),
            "pattern": None if asked.pattern is None else asked.pattern.pattern,
            "groups": None if asked.groups is None else sorted(asked.groups),
            "how": [how.window_s, how.sla_s],
        }
    )
    folder = f"{storage_path(checkpoint)}/{_NAME}-{identity}"
    query = OutcomesQuery(
        how,
        warehouse,
        run=f"live-{_NAME}-{identity}",
        folder=folder,
        own=cluster.topics,
    )
    query.resume(session)
    stream = Stream(
        name=_NAME,
        cluster=cluster,
        pattern=pattern_of([cluster.topics.receipts]),
        shape=sources.receipt_records,
        folder=folder,
        trigger_s=how.window_s,
    )
    return SupervisedQuery(
        stream.name,
        partial(stream.start, session, query.on_batch),
        on_idle=partial(query.caught_up, session),
        folder=folder,
    )


class OutcomesQuery:
    """Receipts → the table of outcomes and the metrics, one window after another."""

    def __init__(
        self,
        how: LiveOutcomeOptions,
        warehouse: Warehouse,
        *,
        run: str,
        folder: str,
        own: OwnTopics,
    ) -> None:
        self.how, self.warehouse, self.run, self.own = how, warehouse, run, own
        self.kept = Folder(f"{folder}-receipts")
        self.marks = Folder(f"{folder}-closed")
        self.closed_until = 0  # the number of the first window that is still open
        self._open: dict[int, set[int]] = {}  # windows, and the batches that hold receipts of them
        self._newest_ts = 0
        self._lock = threading.Lock()
        metrics.measure_freshness_seconds.labels(_NAME).set_function(self.age_s)

    def age_s(self) -> float:
        """How long ago the newest closed window ended."""
        ended = self.closed_until * self.how.width
        return (wall_clock_us() - ended) / MICROS if ended else float("nan")

    def resume(self, session: SparkSession) -> None:
        """Loads the receipts that the previous driver had not yet evaluated."""
        self.closed_until = max((int(name) for name in self.marks.names(session)), default=0)
        names = self.kept.names(session)
        if names:
            held = self._receipts(session, names).select("window", "batch").distinct().collect()
            for row in held:
                if row.window >= self.closed_until:
                    self._open.setdefault(row.window, set()).add(row.batch)
        self._forget(session)

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Stores a batch of `receipt_records`, and closes windows that the watermark has passed."""
        session = batch.sparkSession
        parsed = batch.persist()
        try:
            good = parsed.transform(sources.receipts).transform(self._wanted)
            found = good.groupBy("window").agg(
                F.count("*").alias("receipts"), F.max(F.unix_micros("finished_ts")).alias("newest")
            )
            windows = {row.window: row for row in found.collect()}
            self._reject(parsed, batch_id)
            with self._lock:
                late = sum(r.receipts for w, r in windows.items() if w < self.closed_until)
                if late:
                    metrics.measure_late_total.labels(_NAME).inc(late)
                    log.warning("receipts_came_late", receipts=late, batch=batch_id)
                for batches in self._open.values():
                    batches.discard(batch_id)
                fresh = {w for w in windows if w >= self.closed_until}
                if fresh:
                    rows = good.where(F.col("window") >= self.closed_until)
                    self.kept.write(rows.withColumn("batch", F.lit(batch_id)), str(batch_id))
                for window in fresh:
                    self._open.setdefault(window, set()).add(batch_id)
                # A receipt with a time in the future must not close windows too early.
                newest = (min(r.newest, wall_clock_us()) for r in windows.values())
                self._newest_ts = max(self._newest_ts, max(newest, default=0))
                self._close(session, self._newest_ts)
        finally:
            parsed.unpersist()

    def caught_up(self, session: SparkSession, ts: int) -> None:
        """Called when all receipts up to `ts` are stored: closes the windows before it."""
        with self._lock:
            self._close(session, ts)

    def _wanted(self, receipts: DataFrame) -> DataFrame:
        windowed = receipts.withColumn("window", window_number("finished_ts", self.how.window_s))
        asked = self.how.asked
        named = windowed.where(asked.named("topic", self.own.prefix))
        return named if asked.groups is None else named.where(F.col("group").isin(*asked.groups))

    def _reject(self, parsed: DataFrame, batch_id: int) -> None:
        bad = parsed.transform(sources.rejects, source=self.own.receipts)
        if count := bad.count():
            metrics.measure_rejects_total.labels(_NAME).inc(count)
            log.warning("receipts_were_rejected", records=count)
            self.warehouse.write(bad, "rejects", run=f"{self.run}-{batch_id}")

    def _close(self, session: SparkSession, seen_ts: int) -> None:
        watermark = seen_ts - round(self.how.delay_s * MICROS)
        for number in sorted(w for w in self._open if (w + 1) * self.how.width <= watermark):
            if batches := self._open[number]:
                receipts = self._receipts(session, [str(batch) for batch in sorted(batches)])
                self._judge(receipts.where(F.col("window") == number), number)
            self.marks.mark(session, str(number + 1))
            self.closed_until = number + 1
            del self._open[number]
            self._forget(session)

    def _judge(self, receipts: DataFrame, number: int) -> None:
        run = f"{self.run}-{number * self.how.width}"
        whole = receipts.transform(distinct_receipts).persist()
        try:
            for row in whole.select("group").distinct().collect():
                mine = whole.where(F.col("group") == row.group)
                table = steps.outcomes(
                    mine,
                    self._at_work(mine, number),
                    run=run,
                    group=row.group,
                    sla_s=self.how.sla_s,
                    window_s=self.how.window_s,
                    timed_by="finished_ts",
                ).persist()
                self.warehouse.write(table, "outcomes", run=f"{run}-{row.group}")
                _show(table)
                table.unpersist()
        finally:
            whole.unpersist()

    def _at_work(self, receipts: DataFrame, number: int) -> DataFrame:
        """Every incarnation that finished a record counts for the whole window."""
        start, end = (F.timestamp_micros(F.lit(n * self.how.width)) for n in (number, number + 1))
        return (
            receipts.select("incarnation")
            .distinct()
            .select(start.alias("from_ts"), end.alias("to_ts"), F.lit(1).alias("replicas"))
        )

    def _receipts(self, session: SparkSession, batches: list[str]) -> DataFrame:
        return session.read.schema(_KEPT).parquet(*(self.kept.path(name) for name in batches))

    def _forget(self, session: SparkSession) -> None:
        """Removes the batches that no open window needs."""
        needed = {str(batch) for batches in self._open.values() for batch in batches}
        for name in self.kept.names(session):
            if name not in needed:
                self.kept.delete(session, name)


def _show(table: DataFrame) -> None:
    """Updates the Prometheus metrics with the newest window."""
    for row in table.select("group", "within_sla", "max_ms", *steps.QUANTILES).collect():
        if row.within_sla is not None:
            metrics.outcome_within_sla_ratio.labels(row.group).set(row.within_sla)
        for name, quantile in steps.QUANTILES.items():
            level = metrics.outcome_latency_seconds.labels(row.group, f"{quantile:g}")
            level.set(row[name] / 1000)
