"""Writes the tables of closed windows from the telemetry log, by the steps of a batch measurement.

Promise  Every window is written once, also after a restart: the end of the last one is kept in a
         folder beside the checkpoints. Rejected telemetry is written and counted with its window.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial, reduce
from operator import or_

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.spans import offsets_between
from trimtab.measure.ring import GRACE_S
from trimtab.measure.spark.lag import lag
from trimtab.measure.spark.rates import rates_from_samples
from trimtab.measure.spark.spans import MeasureQuery, telemetry_between, wanted_samples
from trimtab.measure.spark.streaming_queries import (
    TEMPORARY_ERRORS,
    QueryOutput,
    committed_offsets,
)
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.session import cause_of
from trimtab.spark.telemetry_records import telemetry
from trimtab.spark.warehouse import Folder

log = structlog.get_logger()

_POOL = "tables"
"""Spark's scheduler pool of these jobs, so that they do not delay the queries."""


NO_LEADER = "A partition of the telemetry topic has no leader."


class WindowTables:
    """The tables of the rates query: rates, lag and rejects of each window."""

    def __init__(
        self,
        session: SparkSession,
        admin: Admin,
        cluster: Cluster,
        asked: MeasureQuery,
        output: QueryOutput,
        *,
        window_s: float,
        min_span_s: float,
    ) -> None:
        self._session = session
        self._admin = admin
        self._cluster = cluster
        self._asked = asked
        self._output = output
        self._window_s = window_s
        self._min_span_s = min_span_s
        self._closed_until = 0
        self._is_first = True
        self._waits = False
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="window-tables")
        self._writing: Future[None] | None = None
        self.marks = Folder(f"{output.folder}-closed")

    @property
    def _width(self) -> int:
        return round(self._window_s * MICROS)

    @property
    def _grace(self) -> int:
        """How long after its end a window is written.

        Samples of large clusters take seconds, and arrive that much after their time. Those that
        take longer than a third of the window are too far apart for complete rates anyway.
        """
        return max(round(GRACE_S * MICROS), self._width // 3)

    def closed_until(self) -> int:
        """End of the newest window in the tables, in microseconds; the current one at first."""
        closed = max((int(name) for name in self.marks.names(self._session)), default=0)
        if not closed:
            closed = wall_clock_us() // self._width * self._width
            self.marks.mark(self._session, str(closed))
        return closed

    def write(self, start: int, end: int) -> bool:
        """Writes the windows of a span together; False if the telemetry cannot be read now."""
        raw = self.telemetry(from_ts=start, to_ts=end)
        if raw is None:
            return False
        parsed = raw.transform(telemetry)
        asked = replace(self._asked, from_ts=start, to_ts=end)
        samples = parsed.transform(wanted_samples, asked, self._cluster.topics.prefix)
        rates = samples.transform(
            rates_from_samples,
            window_s=self._window_s,
            min_span_s=self._min_span_s,
            max_gap_s=self._window_s / 3,
        )
        # By the start alone: a span that failed is written again together with later windows.
        warehouse, run = self._output.warehouse, f"{self._output.run}-{start}"
        write = partial(warehouse.write, run=run)
        # The lag is that of the end of the span, so what was written of it may be of another date.
        warehouse.forget(self._session, "lag", run=run)
        write(samples.transform(lag), "lag")
        write(rates, "partition_rates")
        rejects = (
            raw.transform(self._unjudged)
            .transform(telemetry)
            .where(sources.between("arrived", start, end))
            .transform(sources.rejects, source=self._cluster.topics.telemetry)
        )
        if found := rejects.count():
            metrics.measure_rejects_total.labels("rates").inc(found)
            log.warning("telemetry_rejected", records=found)
            write(rejects, "rejects")
        self.marks.mark(self._session, str(end))
        self._is_first = False
        log.info("windows_written", windows=(end - start) // self._width)
        return True

    def _unjudged(self, raw: DataFrame) -> DataFrame:
        """Records that a query on the driver has not read: it writes rejects as they come."""
        if not self._is_first:
            return raw
        read = committed_offsets(self._session, Folder(self._output.folder))
        if not read:
            return raw
        new = (
            (F.col("partition") == name.partition) & (F.col("offset") >= offset)
            for name, offset in read.items()
        )
        others = ~F.col("partition").isin([name.partition for name in read])
        return raw.where(reduce(or_, new, others))

    def telemetry(self, *, from_ts: int, to_ts: int) -> DataFrame | None:
        """Raw telemetry records of a span; None if they cannot all be read now."""
        names = self._readable()
        if names is None:
            return None
        return telemetry_between(self._session, self._cluster, names, from_ts=from_ts, to_ts=to_ts)

    def offsets_at(self, ts: int) -> Mapping[TopicPartition, int] | None:
        """The first telemetry record from a time on; None if the log cannot be read now."""
        names = self._readable()
        if names is None:
            return None
        return offsets_between(self._cluster, names, from_ts=ts, to_ts=wall_clock_us()).starts

    def _readable(self) -> list[TopicPartition] | None:
        """The partitions of the telemetry topic; None if one has no leader, or there are none.

        Of a topic whose samples are in that partition, windows would be empty.
        """
        placed = self._admin.topics([self._cluster.topics.telemetry])
        return [p.name for p in placed] if placed and not any(p.offline for p in placed) else None

    def tick(self) -> None:
        """Starts to write the windows that have closed; call it about once a second."""
        if self._writing is None or self._writing.done():
            self._writing = self._thread.submit(self._catch_up)

    def stop(self) -> None:
        """Waits for the windows that are being written."""
        self._thread.shutdown()

    def _write_until(self, ready: int) -> None:
        if self.write(self._closed_until, ready):
            self._closed_until, self._waits = ready, False
        elif not self._waits:
            self._waits = True
            log.warning("tables_not_written", why=NO_LEADER)

    def _catch_up(self) -> None:
        try:
            if not self._closed_until:
                self._session.sparkContext.setLocalProperty("spark.scheduler.pool", _POOL)
                self._closed_until = self.closed_until()
            ready = (wall_clock_us() - self._grace) // self._width * self._width
            if ready > self._closed_until:
                self._write_until(ready)
        except TEMPORARY_ERRORS as error:
            log.warning("tables_not_written", why=cause_of(error))
        except Exception:
            log.exception("tables_not_written")  # nobody reads the result of this thread
