"""Streaming queries: their source, output and checkpoint; restarted when they fail.

Folders are named by a hash of cluster, topics, windows and error bound, so that a different
measurement never uses them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

import structlog
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trimtab.errors import TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.measure.windows import MICROS
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.observe import metrics
from trimtab.spark import sources
from trimtab.spark.session import cause_of
from trimtab.spark.warehouse import Folder, Warehouse

log = structlog.get_logger()

TEMPORARY_ERRORS = (TrimtabError, PySparkException, Py4JError, OSError)
"""Temporary errors of brokers, disks and Spark."""


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

    Spark plans `shape` once, but plans steps inside a batch again at every trigger. Without a
    checkpoint it starts with the `latest` or the `earliest` record. A batch has at most
    `max_records`, if that is given.
    """

    name: str
    cluster: Cluster
    pattern: str
    shape: Callable[[DataFrame], DataFrame]
    folder: str
    trigger_s: float
    starting: str = "latest"
    max_records: int | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def start(
        self, session: SparkSession, on_batch: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        """Starts the query from its checkpoint, or from `starting` if there is none."""
        raw = sources.read_stream(
            session,
            self.cluster,
            self.pattern,
            starting=self.starting,
            max_records=self.max_records,
            options=self.options,
        )
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


@dataclass(slots=True)
class SupervisedQuery:
    """A query that is restarted when it fails, with increasing pauses.

    `folder` is that of its checkpoint, if no other driver may use it.
    """

    name: str
    start: Callable[[], StreamingQuery]
    on_idle: Callable[[int], None] | None = None
    on_stop: Callable[[], None] | None = None
    folder: str | None = None
    query: StreamingQuery | None = None
    _pause_s: float = 1.0
    _again_at: float = 0.0

    def tick(self) -> None:
        """Checks the query and restarts it if necessary; call it about once a second."""
        try:
            self._tick()
        except TEMPORARY_ERRORS as error:
            log.warning("query_check_failed", query=self.name, why=cause_of(error))

    def _tick(self) -> None:
        if self.query is None:
            if time.monotonic() >= self._again_at:
                self._wait_longer()
                self.query = self.start()
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
            log.warning("spark_not_running", query=self.name)
        if self.on_stop is not None:
            self.on_stop()

    def _on_failure(self) -> None:
        error = self.query.exception() if self.query is not None else None
        why = cause_of(error) if error is not None else "stopped by another caller"
        log.warning("query_failed", query=self.name, why=why, again_in_s=self._pause_s)
        metrics.measure_restarts_total.labels(self.name).inc()
        self.query = None

    def _wait_longer(self) -> None:
        self._again_at = time.monotonic() + self._pause_s
        self._pause_s = min(self._pause_s * 2, 30.0)

    def _measure(self, progress: dict[str, Any]) -> None:
        name = self.name
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
