"""The continuous job for keys: data topics → heavy keys and counted rates.

Keys keep the summaries of each batch, by batch number, so a batch that is repeated after a crash
replaces its own and nothing is lost or counted twice. When the watermark has passed a window, its
summaries are merged: tables, then topic, then a marker that it is closed, then they are deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import structlog
from pyspark import StorageLevel
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from trimtab.errors import MeasurementError, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.measure.counters import Threshold, hot_keys
from trimtab.measure.spark.hot_keys import CountingMode, keyed_windows, merge_summaries, summaries
from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.spark.rates import window_number
from trimtab.measure.spark.streaming_queries import QueryOutput, committed_offsets
from trimtab.measure.windows import MICROS
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import KeyLoad, Source
from trimtab.model.murmur2 import home
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark.schemas import HOT_KEYS, PARTITION_RATES
from trimtab.spark.warehouse import Folder

log = structlog.get_logger()

PARTS = StructType(
    [
        StructField("batch", LongType()),
        StructField("window", LongType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),  # negative for a summary of keys
        StructField("records", LongType()),
        StructField("bytes", LongType()),
        StructField("first", LongType()),
        StructField("last", LongType()),
        StructField("summary", BinaryType()),
    ]
)


# ---------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounting:
    """How keys are counted; `delay_s` is how long a window waits for late records."""

    window_s: float
    threshold: Threshold
    epsilon: float
    delay_s: float = 2.0
    mode: CountingMode = CountingMode.LOSSY


@dataclass(slots=True)
class _OpenWindow:
    """The rows of the batches so far for one window, by batch, topic and partition."""

    parts: dict[tuple[int, str, int], Row] = field(default_factory=dict)


class KeysQuery:
    """Data topics → the heavy-keys topic and the tables, one window after another."""

    def __init__(
        self,
        how: KeyCounting,
        ends: QueryOutput,
        *,
        admin: Admin,
    ) -> None:
        self.how = how
        self.ends = ends
        self.admin = admin
        self.parts = Folder(f"{ends.folder}-parts")
        self.marks = Folder(f"{ends.folder}-closed")
        self.progress = Folder(ends.folder)
        self.closed_until = 0  # number of the first open window
        self._open: dict[int, _OpenWindow] = {}
        self._newest_ts = 0
        self._reported = -1  # newest batch whose gaps were reported
        self._next: dict[TopicPartition, int] = {}
        self._lost: set[tuple[int, TopicPartition]] = set()
        self._partitions: dict[str, int] = {}
        self._lock = threading.Lock()
        metrics.measure_freshness_seconds.labels("keys").set_function(self.age_s)

    @property
    def _width(self) -> int:
        return round(self.how.window_s * MICROS)

    def age_s(self) -> float:
        """How long ago the newest closed window ended."""
        ended = self.closed_until * self._width
        return (wall_clock_us() - ended) / MICROS if ended else float("nan")

    def resume(self, session: SparkSession) -> None:
        """Loads what the last driver had counted but not published."""
        marks = [int(name) for name in self.marks.names(session)]
        self.closed_until = max(marks, default=0)
        for row in self.parts.rows(session, PARTS):
            if row.window >= self.closed_until:
                self._fold(row)
        held = {batch for window in self._open.values() for batch, _, _ in window.parts}
        for name in self.parts.names(session):
            if int(name) not in held:
                self.parts.delete(session, name)
        self._next = committed_offsets(session, self.progress)

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Counts a batch of events, saves its summaries, closes windows before the watermark."""
        session = batch.sparkSession
        events = batch.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = self._count(events, batch_id)
        finally:
            events.unpersist()
        with self._lock:
            kept = [row for row in rows if row.window >= self.closed_until]
            late = sum(r.records for r in rows if r.window < self.closed_until and r.partition >= 0)
            if late:
                metrics.measure_late_total.labels("keys").inc(late)
                log.warning("records_arrived_late", records=late, batch=batch_id)
            if kept:
                self.parts.write(session.createDataFrame(kept, PARTS), str(batch_id))
            # A repeated batch may be split differently, so all its old summaries are removed.
            for window in self._open.values():
                window.parts = {k: v for k, v in window.parts.items() if k[0] != batch_id}
            for row in kept:
                self._fold(row)
            self._report_gaps(rows, batch_id)
            self._close(session, self._newest_ts - round(self.how.delay_s * MICROS))

    def caught_up(self, session: SparkSession, ts: int) -> None:
        """Closes the windows before `ts`; all records in Kafka at that time have been counted."""
        with self._lock:
            self._close(session, ts - round(self.how.delay_s * MICROS))

    def _count(self, events: DataFrame, batch_id: int) -> list[Row]:
        counted = (
            events.groupBy(
                window_number("ts", self.how.window_s).alias("window"), "topic", "partition"
            )
            .agg(
                F.count("*").alias("records"),
                F.sum((F.col("key_bytes") + F.col("value_bytes")).cast("long")).alias("bytes"),
                F.min("offset").alias("first"),
                F.max("offset").alias("last"),
                F.max(F.unix_micros("ts")).alias("newest"),
            )
            .collect()
        )
        # A record with a timestamp in the future must not close windows too early.
        seen = (min(r.newest, wall_clock_us()) for r in counted)
        self._newest_ts = max(self._newest_ts, max(seen, default=0))
        keys = (
            keyed_windows(events, window_s=self.how.window_s)
            .coalesce(2)
            .transform(summaries, mode=self.how.mode, epsilon=self.how.epsilon)
            .withColumn("piece", -1 - F.spark_partition_id())
            .collect()
        )
        row = Row(*PARTS.names)
        return [
            *(row(batch_id, *(r[name] for name in PARTS.names[1:-1]), None) for r in counted),
            *(
                row(batch_id, k.window, k.topic, k.piece, k.n, None, None, None, k.summary)
                for k in keys
            ),
        ]

    def _fold(self, row: Row) -> None:
        window = self._open.setdefault(row.window, _OpenWindow())
        window.parts[row.batch, row.topic, row.partition] = row

    def _report_gaps(self, rows: Iterable[Row], batch_id: int) -> None:
        """Logs lost offsets and recreated topics.

        Offsets may be missing for good reasons (transaction markers, compaction). Only offsets
        before the current start of the log are lost.
        """
        if batch_id <= self._reported:
            return
        self._reported = batch_id
        seen: dict[TopicPartition, list[Row]] = {}
        for row in rows:
            if row.partition >= 0:
                seen.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        for name, parts in sorted(seen.items()):
            first, last = min(r.first for r in parts), max(r.last for r in parts)
            expected = self._next.get(name)
            self._next[name] = last + 1
            if expected is None:
                log.info("partition_appeared", partition=str(name), offset=first)
            elif first < expected:
                log.warning("topic_recreated", partition=str(name), offset=first)
            elif first > expected:
                lost = min(self._begins_at(name) or expected, first) - expected
                if lost > 0:
                    metrics.measure_gaps_total.labels("keys").inc(lost)
                    log.warning("records_lost", partition=str(name), records=lost)
                    self._lost.update((r.window, name) for r in parts)

    def _begins_at(self, name: TopicPartition) -> int | None:
        try:
            placed = {p.name: p.leader for p in self.admin.topics([name.topic]) if not p.offline}
            return self.admin.offsets(placed).get(name, (None, None))[0]
        except TrimtabError:
            return None

    def _homes(self) -> dict[str, int]:
        """Partitions per topic; the last known numbers if no broker answers."""
        try:
            found: dict[str, int] = {}
            for p in self.admin.topics():
                found[p.topic] = found.get(p.topic, 0) + 1
            self._partitions |= found
        except TrimtabError as error:
            log.warning("partition_counts_stale", why=error.message)
        return self._partitions

    def _close(self, session: SparkSession, watermark: int) -> None:
        for number in sorted(w for w in self._open if (w + 1) * self._width <= watermark):
            window = self._open[number]
            self._keep(session, number, window.parts.values())
            self.marks.mark(session, str(number + 1))
            self.closed_until = number + 1
            del self._open[number]
            still = {batch for w in self._open.values() for batch, _, _ in w.parts}
            for batch in {b for b, _, _ in window.parts} - still:
                self.parts.delete(session, str(batch))
            self._lost = {gap for gap in self._lost if gap[0] >= self.closed_until}

    def _keep(self, session: SparkSession, window: int, parts: Iterable[Row]) -> None:
        start, end = window * self._width, (window + 1) * self._width
        times = (as_time(start), as_time(end))
        counts: dict[TopicPartition, tuple[int, int]] = {}
        packed: dict[str, list[bytes]] = {}
        for row in parts:
            if row.partition < 0:
                packed.setdefault(row.topic, []).append(bytes(row.summary))
            else:
                name = TopicPartition(row.topic, row.partition)
                records, size = counts.get(name, (0, 0))
                counts[name] = (records + row.records, size + row.bytes)
        rates = [
            (
                *times,
                *name,
                size / self.how.window_s,
                records / self.how.window_s,
                str(Source.EVENTS),
                records,
                (window, name) not in self._lost,
            )
            for name, (records, size) in sorted(counts.items())
        ]
        keys: list[tuple[Any, ...]] = []
        for topic, summary in sorted(packed.items()):
            n, loads = self._heavy(topic, summary)
            keys.extend(
                (*times, topic, k.key, k.lower, k.upper, k.partition_home, k.share) for k in loads
            )
            value = codec.hot_keys_to(
                topic,
                loads,
                window_start=start,
                window_end=end,
                n=n,
                epsilon=self.how.epsilon,
            )
            self.ends.publish(topic, value)
        run = f"{self.ends.run}-{start}"
        if keys:
            self.ends.warehouse.write(session.createDataFrame(keys, HOT_KEYS), "hot_keys", run=run)
        self.ends.warehouse.write(
            session.createDataFrame(rates, PARTITION_RATES), "partition_rates", run=run
        )
        self.ends.outlet.flush()

    def _heavy(self, topic: str, packed: Iterable[bytes]) -> tuple[int, list[KeyLoad]]:
        """The heavy keys of a window, heaviest first; none, with a warning, if ε is too large."""
        whole = merge_summaries(packed)
        try:
            hot = hot_keys(self.how.threshold, whole)
        except MeasurementError as error:
            log.warning("heavy_keys_unknown", topic=topic, why=error.message, hint=error.hint)
            return whole.n, []
        partitions = self._homes().get(topic)
        loads = (
            KeyLoad(
                topic=topic,
                key=key,
                lower=bounds.lower,
                upper=bounds.upper,
                share=bounds.lower / whole.n,
                partition_home=None if partitions is None else home(key, partitions),
            )
            for key, bounds in hot.items()
        )
        return whole.n, sorted(loads, key=lambda k: (-k.lower, k.key))
