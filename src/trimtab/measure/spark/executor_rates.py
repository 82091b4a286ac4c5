"""Rates on executors: each task reads one partition of the telemetry log and writes its rates.

Why      The driver's ring is one Python thread; on a large cluster it falls behind.
Promise  One record per topic and trigger, with all its partitions. The log is the only truth: a
         task that finds no ring on its executor, or one that has missed records, reads the last
         window from the log again. So a lost executor or driver loses nothing.
Cost     Some ten microseconds per partition and sample; the driver only starts the batches.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import structlog
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trimtab.kafka.cluster import Cluster
from trimtab.measure.column_ring import ColumnRing
from trimtab.measure.kafka.telemetry_log import LogRecord, read_log
from trimtab.measure.rate_text import rates_texts
from trimtab.measure.ring_files import RingFiles
from trimtab.measure.spark.streaming_queries import pattern_of
from trimtab.measure.topic_filter import TopicFilter
from trimtab.measure.topic_samples import BadSample, TopicSample, read_sample
from trimtab.measure.windows import MICROS
from trimtab.spark import sources
from trimtab.spark.warehouse import Folder
from trimtab.spark.workers import forget_zip_importers

log = structlog.get_logger()

_SCHEMA = "key binary, value binary"
_ARROW = pa.schema([("key", pa.binary()), ("value", pa.binary())])

_TELL_EVERY_S = 60.0
_told_at = [-math.inf]

MOST_RECORDS_PER_TRIGGER = 50_000
"""Bounds the memory of a task when a query has fallen behind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatesTask:
    """What a task does with its part of the log; a value that Spark sends to the executors."""

    cluster: Cluster
    window_s: float
    min_span_s: float
    topics: TopicFilter
    groups: frozenset[str] | None
    identity: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Records of the log → records of `trimtab.rates`."""
        by_partition: dict[int, list[LogRecord]] = {}
        for batch in batches:
            columns = (batch.column(name).to_pylist() for name in ("offset", "arrived", "value"))
            records = (LogRecord(*row) for row in zip(*columns, strict=True))
            for number, record in zip(batch.column("partition").to_pylist(), records, strict=True):
                by_partition.setdefault(number, []).append(record)
        for number, mine in by_partition.items():
            yield self._rates(number, mine)
        forget_zip_importers()

    def _rates(self, log_partition: int, records: list[LogRecord]) -> pa.RecordBatch:
        records.sort()
        files = RingFiles(_folder() / self.identity)
        ring = self._ring(files, log_partition, records[0])
        topics = self._add(ring, records)
        try:
            files.save(log_partition, ring, records[-1].offset + 1)
        except OSError as error:  # the next task reads from the log what is missing
            _tell_not_stored(error)
        keys, values = [], []
        for rates in ring.rates(topics):
            for text in rates_texts(rates):
                keys.append(rates.topic.encode())
                values.append(text)
        return pa.RecordBatch.from_arrays(
            [pa.array(keys, pa.binary()), pa.array(values, pa.binary())], schema=_ARROW
        )

    def _ring(self, files: RingFiles, log_partition: int, first: LogRecord) -> ColumnRing:
        """The ring with all samples of the window before this record."""
        ring, next_offset = files.load(log_partition) or (self._empty(), 0)
        if next_offset < first.offset:
            missed = read_log(
                self.cluster,
                log_partition,
                from_ts=first.arrived_ts - round(self.window_s * MICROS),
                least_offset=next_offset,
                until_offset=first.offset,
            )
            self._add(ring, missed)
        return ring

    def _add(self, ring: ColumnRing, records: Iterable[LogRecord]) -> Collection[str]:
        """Adds samples; returns the topics whose newest sample is complete."""
        topics: dict[str, None] = {}
        for record in records:
            sample = self._sample(record)
            if sample is None:
                continue
            ring.add(sample)
            if sample.is_last_part:
                topics[sample.topic] = None
            else:
                topics.pop(sample.topic, None)
        return topics

    def _empty(self) -> ColumnRing:
        return ColumnRing(window_s=self.window_s, min_span_s=self.min_span_s)

    def _sample(self, record: LogRecord) -> TopicSample | None:
        """The sample of a wanted topic; rejected records are counted where tables are written."""
        try:
            sample = read_sample(record.value, arrived_ts=record.arrived_ts, groups=self.groups)
        except BadSample:
            return None
        return sample if self.topics.wants(sample.topic) else None


def start_executor_rates(
    session: SparkSession, task: RatesTask, *, folder: str, trigger_s: float
) -> StreamingQuery:
    """Starts the query at the end of the log: tasks read the window before it by themselves.

    Spark needs a checkpoint, but only the current rates depend on it, so each start has a new one.
    """
    own, checkpoints = task.cluster.topics, Folder(folder)
    for old in checkpoints.names(session):
        checkpoints.delete(session, old)
    raw = sources.read_stream(
        session,
        task.cluster,
        pattern_of([own.telemetry]),
        starting="latest",
        max_records=MOST_RECORDS_PER_TRIGGER,
    )
    return (
        raw.transform(sources.log_records)
        .mapInArrow(task, _SCHEMA)
        .writeStream.queryName("rates")
        .format("kafka")
        .option("topic", own.rates)
        .option("checkpointLocation", checkpoints.path(uuid.uuid4().hex))
        .options(**task.cluster.for_spark())
        .option("kafka.compression.type", "lz4")
        .trigger(processingTime=f"{round(trigger_s * 1000)} milliseconds")
        .start()
    )


def _tell_not_stored(error: OSError) -> None:
    """Warns that rings are not kept, once in a while: a disk that is full is often the log's."""
    now = time.monotonic()
    if now - _told_at[0] >= _TELL_EVERY_S:
        _told_at[0] = now
        log.warning("ring_not_stored", why=str(error), hint="Samples are read again instead.")


def _folder() -> Path:
    """A folder that Spark removes when the application ends."""
    local = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return Path(local or tempfile.gettempdir()) / "trimtab-rates"
