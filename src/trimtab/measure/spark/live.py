"""The continuous jobs: telemetry → rates and lag; data topics → heavy keys and counted rates.

Both are streaming queries with a checkpoint of their own, and both hand each micro-batch to plain
Python in the driver. What must outlive the driver is written before the batch counts as done:

* rates: nothing. The samples are in Kafka; a restart reads those of the open window again.
* keys: the summaries of each batch, under the batch's number. A batch that is repeated after a
  crash replaces its own summaries, so nothing is lost and nothing counts twice. A window is merged
  from its batches and published once the watermark has passed it.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import structlog
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from trimtab.measure.counters import Threshold, hot_keys
from trimtab.measure.lag_rules import Reading, State, verdict
from trimtab.measure.murmur2 import home
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark import ingest
from trimtab.measure.spark.hot_keys import Mode, keyed_windows, merge_summaries, summaries
from trimtab.measure.spark.jobs import as_time
from trimtab.measure.spark.rates import window_number
from trimtab.measure.spark.schemas import HOT_KEYS, LAG, PARTITION_RATES, REJECTS
from trimtab.measure.spark.tables import Warehouse, delete_folder
from trimtab.measure.windows import MICROS, Sample, lag_records, lag_seconds, speed
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import KeyLoad, Source
from trimtab.observe import metrics

log = structlog.get_logger()

Publish = Callable[[str, str, codec.Json], None]
"""Sends (topic, key, value)."""

PARTS = StructType(
    [
        StructField("batch", LongType()),
        StructField("window", LongType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),  # −1 for a summary of keys
        StructField("records", LongType()),
        StructField("bytes", LongType()),
        StructField("first", LongType()),
        StructField("last", LongType()),
        StructField("summary", BinaryType()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Where a query reads from and what it is called."""

    name: str
    bootstrap_server: str
    pattern: str
    checkpoint: str
    trigger_s: float
    options: Mapping[str, str] = field(default_factory=dict)
    starting: str = "latest"

    def start(
        self, session: SparkSession, on_batch: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        """Starts the query."""
        raw = ingest.read_stream(
            session,
            self.bootstrap_server,
            self.pattern,
            starting=self.starting,
            options=self.options,
        )
        return (
            raw.writeStream.queryName(self.name)
            .foreachBatch(on_batch)
            .option("checkpointLocation", f"{self.checkpoint}/{self.name}")
            .trigger(processingTime=f"{round(self.trigger_s * 1000)} milliseconds")
            .start()
        )


def pattern_of(topics: Iterable[str]) -> str:
    r"""A pattern that matches just these topics.

    >>> pattern_of(["a.b", "c"])
    '^(a\\.b|c)$'
    """
    return f"^({'|'.join(re.escape(topic) for topic in sorted(topics))})$"


# ---------------------------------------------------------------- rates


class RatesQuery:
    """Telemetry → `trimtab.rates` at every trigger, and the tables at every closed window."""

    def __init__(
        self,
        *,
        topic: str,
        window_s: float,
        min_span_s: float,
        publish: Publish,
        warehouse: Warehouse,
        wanted: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.topic = topic
        self.publish = publish
        self.warehouse = warehouse
        self.wanted = wanted
        self.min_span_s = min_span_s
        self.ring = SampleRing(window_s=window_s, min_span_s=min_span_s)

    def refill(self, session: SparkSession, raw: DataFrame) -> None:
        """Reads the samples of the window that was open when the last driver ended."""
        parsed = raw.transform(ingest.telemetry).where("reason is null")
        rows = parsed.withColumn("micros", F.unix_micros("ts")).orderBy("micros").collect()
        self._take(session, rows)

    def closed_until(self, session: SparkSession) -> int:
        """Where the tables end, in microseconds; 0 when there are none."""
        live = self.warehouse.read(session, "partition_rates").where(
            (F.col("source") == str(Source.LOG_DIRS)) & F.col("run").startswith("live-")
        )
        newest = live.agg(F.max(F.unix_micros("window_end"))).collect()[0][0]
        self.ring.closed_until = int(newest or 0)
        return self.ring.closed_until

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """One trigger."""
        session = batch.sparkSession
        # As a number: a collected timestamp is in local time, where an hour may stand twice.
        parsed = batch.transform(ingest.telemetry).withColumn("micros", F.unix_micros("ts"))
        rows = parsed.collect()
        bad = [r for r in rows if r.reason is not None]
        if bad:
            metrics.measure_rejects_total.labels("rates").inc(len(bad))
            log.warning("telemetry_was_rejected", records=len(bad), first=bad[0].reason)
            kept = [(r.arrived, self.topic, r.reason, r.raw) for r in bad]
            self.warehouse.write(
                session.createDataFrame(kept, REJECTS), "rejects", run=f"live-{batch_id}"
            )
        good = (r for r in rows if r.reason is None)
        self._take(session, sorted(good, key=lambda r: r.micros))
        for topic in self.ring.rates():
            value = codec.rates_to(
                topic.topic,
                topic.partitions,
                ts=topic.ts,
                window_start=topic.window_start,
                window_end=topic.ts,
                stale=topic.stale,
            )
            self.publish("rates", topic.topic, value)
        if self.ring.newest_ts:
            age = time.time() - self.ring.newest_ts / MICROS
            metrics.measure_freshness_seconds.labels("rates").set(age)

    def _take(self, session: SparkSession, rows: Iterable[Row]) -> None:
        late = self.ring.late
        for row in rows:
            if self.wanted(row.topic):
                self.ring.add(TopicPartition(row.topic, row.partition), _sample(row))
                for start, samples in self.ring.close():
                    self._keep(session, start, samples)
        metrics.measure_late_total.labels("rates").inc(self.ring.late - late)

    def _keep(
        self,
        session: SparkSession,
        start: int,
        samples: Mapping[TopicPartition, tuple[Sample, ...]],
    ) -> None:
        width = round(self.ring.window_s * MICROS)
        rates: list[tuple[Any, ...]] = []
        lags: list[tuple[Any, ...]] = []
        for name, history in sorted(samples.items()):
            found = speed(history, min_span_s=self.min_span_s, max_gap_s=self.ring.window_s / 3)
            rates.append(
                (
                    as_time(start),
                    as_time(start + width),
                    *name,
                    found.bytes_s,
                    found.records_s,
                    str(Source.LOG_DIRS),
                    found.samples,
                    found.complete,
                )
            )
            lags.extend(_lags(name, history))
        run = f"live-{start}"
        self.warehouse.write(session.createDataFrame(lags, LAG), "lag", run=run)
        # Last, since this table tells a restarted driver which windows are closed.
        self.warehouse.write(
            session.createDataFrame(rates, PARTITION_RATES), "partition_rates", run=run
        )


def _sample(row: Row) -> Sample:
    return Sample(
        ts=row.micros,
        leader=row.leader,
        log_bytes=row.log_bytes,
        end_offset=row.end_offset,
        committed=row.committed or {},
    )


def _lags(name: TopicPartition, history: tuple[Sample, ...]) -> Iterable[tuple[Any, ...]]:
    newest = history[-1]
    for group, committed in sorted(newest.committed.items()):
        state = verdict([Reading(s.end_offset, s.committed.get(group)) for s in history])
        yield (
            as_time(newest.ts),
            group,
            *name,
            lag_records(newest.end_offset, committed),
            lag_seconds(history, committed),
            str(state),
            state is not State.UNKNOWN,
        )


# ---------------------------------------------------------------- keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCounting:
    """How keys are counted; `delay_s` is how long a window waits for records that come late."""

    window_s: float
    threshold: Threshold
    epsilon: float
    delay_s: float = 2.0
    mode: Mode = Mode.LOSSY


@dataclass(slots=True)
class _OpenWindow:
    """What the batches so far have said of one window, by batch and topic."""

    parts: dict[tuple[int, str, int], Row] = field(default_factory=dict)


class KeysQuery:
    """Data topics → `trimtab.hotkeys` and the tables, one window after another."""

    def __init__(
        self,
        how: KeyCounting,
        *,
        publish: Publish,
        warehouse: Warehouse,
        checkpoint: str,
        partitions: Callable[[], Mapping[str, int]],
    ) -> None:
        self.how = how
        self.window_s = how.window_s
        self.publish = publish
        self.warehouse = warehouse
        self.folder = f"{checkpoint}/keys-parts"
        self.partitions = partitions
        self.closed_until = 0  # the number of the first window that is still open
        self._open: dict[int, _OpenWindow] = {}
        self._newest_ts = 0
        self._next: dict[TopicPartition, int] = {}
        self._gaps: set[tuple[int, TopicPartition]] = set()
        self._lock = threading.Lock()

    @property
    def _width(self) -> int:
        return round(self.window_s * MICROS)

    def resume(self, session: SparkSession) -> None:
        """Takes up what the last driver had counted and not yet published."""
        live = self.warehouse.read(session, "partition_rates").where(
            (F.col("source") == str(Source.EVENTS)) & F.col("run").startswith("live-")
        )
        newest = live.agg(F.max(F.unix_micros("window_end"))).collect()[0][0]
        self.closed_until = int(newest or 0) // self._width
        for row in _read_parts(session, self.folder):
            self._fold(row)

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Counts one batch, keeps its summaries, closes what the watermark has passed."""
        session = batch.sparkSession
        events = batch.transform(ingest.events).persist(StorageLevel.MEMORY_AND_DISK)
        try:
            rows = self._count(events, batch_id)
        finally:
            events.unpersist()
        if rows:
            parts = session.createDataFrame(rows, PARTS).coalesce(1)
            parts.write.mode("overwrite").parquet(f"{self.folder}/batch={batch_id}")
        with self._lock:
            for row in rows:
                self._fold(row)
            self._report_gaps(rows)
            self._close(session, self._newest_ts - round(self.how.delay_s * MICROS))

    def caught_up(self, session: SparkSession, ts: int) -> None:
        """All that was in Kafka at `ts` has been counted: closes the windows before it."""
        with self._lock:
            self._close(session, ts - round(self.how.delay_s * MICROS))

    def _count(self, events: DataFrame, batch_id: int) -> list[Row]:
        number = F.lit(batch_id).cast("long").alias("batch")
        counted = events.groupBy(
            window_number("ts", self.window_s).alias("window"), "topic", "partition"
        ).agg(
            F.count("*").alias("records"),
            F.sum((F.col("key_bytes") + F.col("value_bytes")).cast("long")).alias("bytes"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.max(F.unix_micros("ts")).alias("newest"),
        )
        rows = counted.collect()
        self._newest_ts = max([self._newest_ts, *(r.newest for r in rows)])
        none = F.lit(None)
        keys = (
            keyed_windows(events, window_s=self.window_s)
            .coalesce(2)
            .transform(summaries, mode=self.how.mode, epsilon=self.how.epsilon)
            .select(
                number,
                "window",
                "topic",
                (-1 - F.spark_partition_id()).alias("partition"),
                F.col("n").alias("records"),
                none.cast("long").alias("bytes"),
                none.cast("long").alias("first"),
                none.cast("long").alias("last"),
                "summary",
            )
            .collect()
        )
        named = Row(*PARTS.names)
        return [
            *(
                named(
                    batch_id,
                    r.window,
                    r.topic,
                    r.partition,
                    r.records,
                    r.bytes,
                    r.first,
                    r.last,
                    None,
                )
                for r in rows
            ),
            *keys,
        ]

    def _fold(self, row: Row) -> None:
        if row.window < self.closed_until:
            if row.partition >= 0:
                metrics.measure_late_total.labels("keys").inc(row.records)
            return
        window = self._open.setdefault(row.window, _OpenWindow())
        window.parts[row.batch, row.topic, row.partition] = row

    def _report_gaps(self, rows: Iterable[Row]) -> None:
        """Offsets that nobody handed to us: deleted, compacted, or markers of transactions."""
        seen: dict[TopicPartition, list[Row]] = {}
        for row in rows:
            if row.partition >= 0:
                seen.setdefault(TopicPartition(row.topic, row.partition), []).append(row)
        for name, parts in seen.items():
            first, last = min(r.first for r in parts), max(r.last for r in parts)
            records = sum(r.records for r in parts)
            expected = self._next.get(name, first)
            skipped = first - expected + (last - first + 1 - records)
            if first < expected:
                log.warning("topic_was_made_anew", partition=str(name), offset=first)
            elif skipped:
                metrics.measure_gaps_total.labels("keys").inc(skipped)
                log.warning("offsets_were_skipped", partition=str(name), offsets=skipped)
                self._gaps.update((r.window, name) for r in parts)
            if name not in self._next:
                log.info("partition_appeared", partition=str(name), offset=first)
            self._next[name] = last + 1

    def _close(self, session: SparkSession, watermark: int) -> None:
        for window in sorted(w for w in self._open if (w + 1) * self._width <= watermark):
            self._keep(session, window, self._open[window].parts.values())
            self.closed_until = window + 1
            done = self._open.pop(window)
            still = {batch for w in self._open.values() for batch, _, _ in w.parts}
            for batch in {b for b, _, _ in done.parts} - still:
                delete_folder(session, f"{self.folder}/batch={batch}")
            self._gaps = {gap for gap in self._gaps if gap[0] >= self.closed_until}

    def _keep(self, session: SparkSession, window: int, parts: Iterable[Row]) -> None:
        start, end = window * self._width, (window + 1) * self._width
        times = (as_time(start), as_time(end))
        partitions = self.partitions()
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
                size / self.window_s,
                records / self.window_s,
                str(Source.EVENTS),
                records,
                (window, name) not in self._gaps,
            )
            for name, (records, size) in sorted(counts.items())
        ]
        keys: list[tuple[Any, ...]] = []
        for topic, summary in sorted(packed.items()):
            whole = merge_summaries(summary)
            loads = sorted(
                (
                    KeyLoad(
                        topic=topic,
                        key=key,
                        lower=bounds.lower,
                        upper=bounds.upper,
                        share=bounds.lower / whole.n,
                        partition_home=home(key, partitions[topic]) if topic in partitions else -1,
                    )
                    for key, bounds in hot_keys(self.how.threshold, whole).items()
                ),
                key=lambda k: (-k.lower, k.key),
            )
            keys.extend(
                (*times, topic, k.key, k.lower, k.upper, k.partition_home, k.share) for k in loads
            )
            value = codec.hot_keys_to(
                topic,
                loads,
                window_start=start,
                window_end=end,
                n=whole.n,
                epsilon=self.how.epsilon,
            )
            self.publish("hotkeys", topic, value)
        run = f"live-{start}"
        if keys:
            self.warehouse.write(session.createDataFrame(keys, HOT_KEYS), "hot_keys", run=run)
        # Last, since this table tells a restarted driver which windows are closed.
        self.warehouse.write(
            session.createDataFrame(rates, PARTITION_RATES), "partition_rates", run=f"{run}-events"
        )
        metrics.measure_freshness_seconds.labels("keys").set(time.time() - end / MICROS)


def _read_parts(session: SparkSession, folder: str) -> list[Row]:
    from pyspark.errors import AnalysisException

    try:
        return session.read.schema(PARTS).parquet(f"{folder}/batch=*").collect()
    except AnalysisException:
        return []


# ---------------------------------------------------------------- keeping queries alive


@dataclass(slots=True)
class Supervised:
    """A query that is started again, with growing pauses, when it dies."""

    session: SparkSession
    stream: Stream
    on_batch: Callable[[DataFrame, int], None]
    on_idle: Callable[[int], None] | None = None
    query: StreamingQuery | None = None
    _pause_s: float = 1.0
    _again_at: float = 0.0

    def tick(self) -> None:
        """Looks after the query; to be called about once a second."""
        if self.query is None:
            if time.monotonic() >= self._again_at:
                self.query = self.stream.start(self.session, self.on_batch)
            return
        if not self.query.isActive:
            self._died()
            return
        progress = self.query.lastProgress
        if progress:
            self._pause_s = 1.0
            self._measure(dict(progress))

    def stop(self) -> None:
        """Stops the query; what it had not finished is done again at the next start."""
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
        except (Py4JError, OSError):
            log.warning("spark_was_gone", query=self.stream.name)

    def _died(self) -> None:
        error = self.query.exception() if self.query is not None else None
        why = _first_line(error) if error is not None else "stopped by somebody else"
        log.warning("query_died", query=self.stream.name, why=why, again_in_s=self._pause_s)
        metrics.measure_restarts_total.labels(self.stream.name).inc()
        self.query = None
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, 30.0)

    def _measure(self, progress: dict[str, Any]) -> None:
        name = self.stream.name
        duration = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
        metrics.measure_batch_seconds.labels(name).set(duration)
        metrics.measure_input_rows_per_second.labels(name).set(
            progress.get("inputRowsPerSecond") or 0.0
        )
        behind = sum(
            float(s.get("metrics", {}).get("maxOffsetsBehindLatest") or 0)
            for s in progress.get("sources", ())
        )
        metrics.measure_behind_rows.labels(name).set(behind)
        if self.on_idle is not None and not behind:
            asked = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
            self.on_idle(round(asked.timestamp() * MICROS))


def _first_line(error: StreamingQueryException) -> str:
    return str(error).strip().splitlines()[0]
