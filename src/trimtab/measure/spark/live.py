"""The continuous jobs: telemetry → rates and lag; data topics → heavy keys and counted rates.

Both are streaming queries with their own checkpoints, and run plain Python in the driver for each
micro-batch. Rates keep no state: a restart reads the samples of the open window from Kafka again.
Keys keep the summaries of each batch, by batch number, so a batch that is repeated after a crash
replaces its own and nothing is lost or counted twice. When the watermark has passed a window, its
summaries are merged: tables, then topic, then a marker that it is closed, then they are deleted.
Folders are named by a hash of cluster, topics, windows and error bound, so that a different
measurement never uses them.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark import StorageLevel
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery
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
from trimtab.kafka.cluster import Cluster
from trimtab.measure.counters import Threshold, hot_keys
from trimtab.measure.lag_rules import LagState, Reading, verdict
from trimtab.measure.prometheus import show_rates
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.hot_keys import CountingMode, keyed_windows, merge_summaries, summaries
from trimtab.measure.spark.jobs import as_time
from trimtab.measure.spark.rates import window_number
from trimtab.measure.windows import MICROS, PartitionSample, lag_records, lag_seconds, speed
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import KeyLoad, Source
from trimtab.model.murmur2 import home
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.schemas import HOT_KEYS, LAG, PARTITION_RATES, REJECTS
from trimtab.spark.session import cause_of
from trimtab.spark.warehouse import Folder, Warehouse

log = structlog.get_logger()

_TEMPORARY = (TrimtabError, PySparkException, Py4JError, OSError)
"""Temporary errors of brokers, disks and Spark."""

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


class ResultPublisher(Protocol):
    """Publishes results."""

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Queues a record; never raises and never waits."""
        ...

    def flush(self) -> None:
        """Waits for records in flight."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOutput:
    """Where a query's results and progress go: `sink` is its topic, `run` the id of its rows."""

    outlet: ResultPublisher
    sink: str
    warehouse: Warehouse
    run: str
    folder: str

    def publish(self, key: str, value: codec.Json) -> None:
        """Publishes a result."""
        self.outlet.publish(self.sink, key.encode(), codec.dumps(value).encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """The source of a query, the transformation of each batch, and its checkpoint folder.

    Spark plans `shape` once, but plans steps inside a batch again at every trigger.
    """

    name: str
    cluster: Cluster
    pattern: str
    shape: Callable[[DataFrame], DataFrame]
    folder: str
    trigger_s: float

    def start(
        self, session: SparkSession, on_batch: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        """Starts the query from its checkpoint, or from now if there is none."""
        raw = sources.read_stream(session, self.cluster, self.pattern, starting="latest")
        return (
            raw.transform(self.shape)
            .writeStream.queryName(self.name)
            .foreachBatch(on_batch)
            .option("checkpointLocation", self.folder)
            .trigger(processingTime=f"{round(self.trigger_s * 1000)} milliseconds")
            .start()
        )


def pattern_of(topics: Iterable[str]) -> str:
    r"""A pattern that matches exactly these topics.

    >>> pattern_of(["a.b", "c"])
    '^(a\\.b|c)$'
    """
    return f"^({'|'.join(re.escape(topic) for topic in sorted(topics))})$"


# ---------------------------------------------------------------- rates


class RatesQuery:
    """Telemetry → the rates topic at every trigger, and the tables at every closed window."""

    def __init__(
        self,
        ring: SampleRing,
        ends: QueryOutput,
        *,
        source: str,
        wanted: Callable[[str], bool] = lambda _: True,
        groups: frozenset[str] | None = None,
    ) -> None:
        self.ring = ring
        self.ends = ends
        self.marks = Folder(f"{ends.folder}-closed")
        self.source = source
        self.wanted = wanted
        self.groups = groups
        # Writing tables takes seconds, and must not delay rates.
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="rates-tables")
        self._unwritten: deque[tuple[int, Mapping[TopicPartition, tuple[PartitionSample, ...]]]] = (
            deque()
        )
        self._writing: Future[None] | None = None
        metrics.measure_freshness_seconds.labels("rates").set_function(self.age_s)

    def age_s(self) -> float:
        """Age of the newest sample."""
        return (
            (wall_clock_us() - self.ring.newest_ts) / MICROS
            if self.ring.newest_ts
            else float("nan")
        )

    def closed_until(self, session: SparkSession) -> int:
        """End of the newest window in the tables, in microseconds; 0 if there is none."""
        return max((int(name) for name in self.marks.names(session)), default=0)

    def refill(self, raw: DataFrame) -> None:
        """Reads the samples of the windows that were open when the last driver ended."""
        rows = telemetry_rows(raw).where("reason is null").orderBy("micros").collect()
        self._take(rows, past=True)

    def on_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Processes one trigger; `batch` has `telemetry_rows`."""
        session = batch.sparkSession
        rows = batch.collect()
        bad = [r for r in rows if r.reason is not None]
        if bad:
            metrics.measure_rejects_total.labels("rates").inc(len(bad))
            log.warning("telemetry_rejected", records=len(bad), first=bad[0].reason)
            kept = [(r.arrived, self.source, r.reason, r.raw) for r in bad]
            self.ends.warehouse.write(
                session.createDataFrame(kept, REJECTS), "rejects", run=f"{self.ends.run}-{batch_id}"
            )
        good = (r for r in rows if r.reason is None)
        self._take(sorted(good, key=lambda r: r.micros))
        rates = tuple(self.ring.rates())
        show_rates(rates)
        for topic in rates:
            value = codec.rates_to(
                topic.topic,
                topic.partitions,
                ts=topic.ts,
                window_start=topic.window_start,
                window_end=topic.ts,
                stale=topic.stale,
            )
            self.ends.publish(topic.topic, value)
        if self._unwritten and (self._writing is None or self._writing.done()):
            self._writing = self._writer.submit(self._write, session)

    def finish(self) -> None:
        """Waits for the tables of the windows closed so far."""
        self._writer.shutdown()

    def _write(self, session: SparkSession) -> None:
        """Writes the closed windows, oldest first; a failed write is tried again later."""
        while self._unwritten:
            try:
                self._keep(session, *self._unwritten[0])
            except _TEMPORARY as error:
                log.warning("tables_not_written", why=cause_of(error))
                return
            self._unwritten.popleft()

    def _take(self, rows: Iterable[Row], *, past: bool = False) -> None:
        late = self.ring.late
        for row in rows:
            if self.wanted(row.topic):
                name = TopicPartition(row.topic, row.partition)
                self.ring.add(name, self._sample(row), past=past)
                self._unwritten.extend(self.ring.close())
        metrics.measure_late_total.labels("rates").inc(self.ring.late - late)

    def _sample(self, row: Row) -> PartitionSample:
        committed = row.committed or {}
        if self.groups is not None:
            committed = {g: c for g, c in committed.items() if g in self.groups}
        return PartitionSample(
            ts=row.micros,
            leader=row.leader,
            log_bytes=row.log_bytes,
            end_offset=row.end_offset,
            committed=committed,
        )

    def _keep(
        self,
        session: SparkSession,
        start: int,
        samples: Mapping[TopicPartition, tuple[PartitionSample, ...]],
    ) -> None:
        end = start + round(self.ring.window_s * MICROS)
        times = (as_time(start), as_time(end))
        rates: list[tuple[Any, ...]] = []
        lags: list[tuple[Any, ...]] = []
        for name, history in sorted(samples.items()):
            found = speed(
                history, min_span_s=self.ring.min_span_s, max_gap_s=self.ring.window_s / 3
            )
            kind = (str(Source.LOG_DIRS), found.samples, found.complete)
            rates.append((*times, *name, found.bytes_s, found.records_s, *kind))
            lags.extend(_lags(name, history))
        run = f"{self.ends.run}-{start}"
        self.ends.warehouse.write(session.createDataFrame(lags, LAG), "lag", run=run)
        self.ends.warehouse.write(
            session.createDataFrame(rates, PARTITION_RATES), "partition_rates", run=run
        )
        self.marks.mark(session, str(end))


def telemetry_rows(raw: DataFrame) -> DataFrame:
    """Telemetry records, parsed and checked; the time of a sample is `micros`."""
    # As a number: collected timestamps are in local time, in which an hour may occur twice.
    parsed = raw.transform(sources.telemetry)
    return parsed.withColumn("micros", F.unix_micros("ts")).drop("ts")


def _lags(name: TopicPartition, history: tuple[PartitionSample, ...]) -> Iterable[tuple[Any, ...]]:
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
            state is not LagState.UNKNOWN,
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


def committed_offsets(session: SparkSession, progress: Folder) -> dict[TopicPartition, int]:
    """The end offsets of a query's last finished batch, from Spark's own checkpoint."""
    done = [int(n) for n in progress.names(session, "commits") if n.isdigit()]
    if not done:
        return {}
    lines = [
        row.value for row in session.read.text(progress.path(f"offsets/{max(done)}")).collect()
    ]
    ends = json.loads(next(line for line in reversed(lines) if line.startswith("{")))
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in ends.items()
        for partition, offset in offsets.items()
    }


# ---------------------------------------------------------------- restarting queries


@dataclass(slots=True)
class SupervisedQuery:
    """A query that is restarted when it fails, with increasing pauses."""

    session: SparkSession
    stream: Stream
    on_batch: Callable[[DataFrame, int], None]
    on_idle: Callable[[int], None] | None = None
    on_stop: Callable[[], None] | None = None
    query: StreamingQuery | None = None
    _pause_s: float = 1.0
    _again_at: float = 0.0

    def tick(self) -> None:
        """Checks the query and restarts it if necessary; call it about once a second."""
        try:
            self._tick()
        except _TEMPORARY as error:
            log.warning("query_check_failed", query=self.stream.name, why=cause_of(error))

    def _tick(self) -> None:
        if self.query is None:
            if time.monotonic() >= self._again_at:
                self._wait_longer()
                self.query = self.stream.start(self.session, self.on_batch)
            return
        if not self.query.isActive:
            self._on_failure()
            return
        progress = self.query.lastProgress
        if progress:
            self._pause_s = 1.0
            self._measure(dict(progress))

    def stop(self) -> None:
        """Stops the query; unfinished work is repeated at the next start."""
        try:
            if self.query is not None and self.query.isActive:
                self.query.stop()
        except (Py4JError, OSError):
            log.warning("spark_not_running", query=self.stream.name)
        if self.on_stop is not None:
            self.on_stop()

    def _on_failure(self) -> None:
        error = self.query.exception() if self.query is not None else None
        why = cause_of(error) if error is not None else "stopped by another caller"
        log.warning("query_failed", query=self.stream.name, why=why, again_in_s=self._pause_s)
        metrics.measure_restarts_total.labels(self.stream.name).inc()
        self.query = None

    def _wait_longer(self) -> None:
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, 30.0)

    def _measure(self, progress: dict[str, Any]) -> None:
        name = self.stream.name
        duration = progress.get("durationMs", {}).get("triggerExecution", 0) / 1000
        metrics.measure_batch_seconds.labels(name).set(duration)
        metrics.measure_input_rows_per_second.labels(name).set(
            progress.get("inputRowsPerSecond") or 0.0
        )
        # A batch that is repeated after a crash does not report how far it is behind.
        found = [source.get("metrics") or {} for source in progress.get("sources", ())]
        behind = [
            float(m["maxOffsetsBehindLatest"]) for m in found if "maxOffsetsBehindLatest" in m
        ]
        metrics.measure_behind_rows.labels(name).set(sum(behind))
        if self.on_idle is not None and behind and not any(behind):
            asked = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
            self.on_idle(round(asked.timestamp() * MICROS))
