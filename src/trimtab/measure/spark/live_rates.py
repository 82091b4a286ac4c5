"""The continuous job for rates and lag: telemetry → rates, by plain Python in the driver.

Rates keep no state: a restart reads the samples of the open window from Kafka again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import structlog
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.measure.lag_rules import LagState, Reading, verdict
from trimtab.measure.rate_metrics import show_rates
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.spark.streaming_queries import TEMPORARY_ERRORS, QueryOutput
from trimtab.measure.windows import MICROS, PartitionSample, lag_records, lag_seconds, speed
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Source
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark.schemas import LAG, PARTITION_RATES, REJECTS
from trimtab.spark.session import cause_of
from trimtab.spark.telemetry_records import telemetry
from trimtab.spark.warehouse import Folder

log = structlog.get_logger()


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
            for record in codec.rates_records(value):
                self.ends.publish(topic.topic, record)
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
            except TEMPORARY_ERRORS as error:
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
    parsed = raw.transform(telemetry)
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
