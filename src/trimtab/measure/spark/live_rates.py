"""The continuous job for rates and lag: telemetry → rates, by plain Python in the driver.

Spark only brings the records: parsing a few of them in Python is quicker than a plan that does.
Rates keep no state: a restart reads the samples of the open window from Kafka again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import structlog
from pyspark.sql import DataFrame, Row, SparkSession

from trimtab.measure.lag_rules import LagState, Reading, verdict
from trimtab.measure.rate_metrics import show_rates
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.spark.streaming_queries import TEMPORARY_ERRORS, QueryOutput
from trimtab.measure.topic_samples import BadSample, TopicSample, read_any_sample
from trimtab.measure.windows import MICROS, PartitionSample, lag_records, lag_seconds, speed
from trimtab.model import codec
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Source
from trimtab.observe import metrics
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.schemas import LAG, PARTITION_RATES, REJECTS
from trimtab.spark.session import cause_of
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
        samples, _ = self._read(raw.transform(sources.log_records).collect())
        self._take(samples, past=True)

    def on_batch(self, batch: DataFrame, _: int) -> None:
        """Processes one trigger; `batch` has `sources.log_records`."""
        session = batch.sparkSession
        samples, rejects = self._read(batch.collect())
        if rejects:
            self._reject(session, rejects)
        self._take(samples)
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

    def _read(self, rows: Iterable[Row]) -> tuple[list[TopicSample], list[_Reject]]:
        """The samples of wanted topics in order of time, and the records that are none."""
        samples: list[TopicSample] = []
        rejects: list[_Reject] = []
        for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
            value = None if row.value is None else bytes(row.value)
            try:
                sample = read_any_sample(value, arrived_ts=row.arrived, groups=self.groups)
            except BadSample as error:
                rejects.append(_Reject(row.partition, row.offset, row.arrived, str(error), value))
                continue
            if self.wanted(sample.topic):
                samples.append(sample)
        return sorted(samples, key=lambda sample: sample.ts), rejects

    def _take(self, samples: Iterable[TopicSample], *, past: bool = False) -> None:
        late = self.ring.late
        for whole in samples:
            for name, sample in whole.partitions():
                self.ring.add(name, sample, past=past)
                self._unwritten.extend(self.ring.close())
        metrics.measure_late_total.labels("rates").inc(self.ring.late - late)

    def _reject(self, session: SparkSession, rejects: Sequence[_Reject]) -> None:
        """Counts and keeps records that cannot be read."""
        metrics.measure_rejects_total.labels("rates").inc(len(rejects))
        log.warning("telemetry_rejected", records=len(rejects), first=rejects[0].reason)
        rows = [
            (
                as_time(r.arrived),
                self.source,
                r.reason,
                r.value and r.value.decode(errors="replace"),
            )
            for r in rejects
        ]
        # By the place of the first: a batch that is repeated after a crash has the same rejects.
        run = f"{self.ends.run}-{rejects[0].partition}-{rejects[0].offset}"
        self.ends.warehouse.write(session.createDataFrame(rows, REJECTS), "rejects", run=run)

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


class _Reject(NamedTuple):
    """A telemetry record that cannot be read, and why."""

    partition: int
    offset: int
    arrived: int
    reason: str
    value: bytes | None


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
