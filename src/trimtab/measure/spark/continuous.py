"""`measure --continuous`: runs the streaming queries and restarts them until stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import structlog
from pyspark.sql import DataFrame, SparkSession

from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.lag import lag
from trimtab.measure.spark.live_keys import KeyCounting, KeysQuery
from trimtab.measure.spark.live_rates import RatesQuery, telemetry_rows
from trimtab.measure.spark.rates import rates_from_samples
from trimtab.measure.spark.spans import MeasureQuery, telemetry_between
from trimtab.measure.spark.streaming_queries import (
    QueryOutput,
    ResultPublisher,
    Stream,
    SupervisedQuery,
    pattern_of,
)
from trimtab.measure.windows import MICROS
from trimtab.model.codec import short_hash
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.session import storage_path
from trimtab.spark.warehouse import Warehouse

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIntervals:
    """Trigger, window and minimum span of the continuous jobs."""

    window_s: float
    min_span_s: float
    trigger_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where results go, and where the queries keep their checkpoints."""

    outlet: ResultPublisher
    warehouse: Warehouse
    checkpoint: str


def run_continuously(  # noqa: PLR0913 - independent options
    session: SparkSession,
    admin: Admin,
    cluster: Cluster,
    asked: MeasureQuery,
    *,
    beat: JobIntervals,
    keys: KeyCounting | None,
    results: Results,
    stop: threading.Event,
    more: Sequence[SupervisedQuery] = (),
) -> None:
    """Runs these queries and `more` until `stop` is set; a failed query is restarted."""
    job = _Job(session, admin, cluster, asked, results)
    queries = [job.rates(beat), *more]
    if keys is not None:
        queries.append(job.keys(keys))
    try:
        while not stop.wait(1.0):
            for query in queries:
                query.tick()
    finally:
        for query in queries:
            query.stop()


@dataclass(frozen=True, slots=True)
class _Job:
    """One measurement of one cluster; each query's folder name has a hash of its settings."""

    session: SparkSession
    admin: Admin
    cluster: Cluster
    asked: MeasureQuery
    results: Results

    def rates(self, beat: JobIntervals) -> SupervisedQuery:
        """The telemetry query, with its ring filled."""
        identity = self._identity(window_s=beat.window_s, groups=self.asked.groups)
        query = RatesQuery(
            SampleRing(window_s=beat.window_s, min_span_s=beat.min_span_s),
            self._ends("rates", identity, self.cluster.topics.rates),
            source=self.cluster.topics.telemetry,
            wanted=lambda topic: self.asked.wants(topic, self.cluster.topics.prefix),
            groups=self.asked.groups,
        )
        self._refill(query)
        pattern = pattern_of([self.cluster.topics.telemetry])
        stream = self._stream("rates", identity, pattern, telemetry_rows, beat.trigger_s)
        return SupervisedQuery(self.session, stream, query.on_batch, on_stop=query.finish)

    def keys(self, how: KeyCounting) -> SupervisedQuery:
        """The query of the data topics, with the counts of the previous driver."""
        identity = self._identity(
            window_s=how.window_s,
            epsilon=how.epsilon,
            mode=str(how.mode),
            threshold=repr(how.threshold),
        )
        ends = self._ends("keys", identity, self.cluster.topics.hotkeys)
        query = KeysQuery(how, ends, admin=self.admin)
        query.resume(self.session)
        stream = self._stream("keys", identity, self._data_pattern(), sources.events, how.window_s)
        caught_up = partial(query.caught_up, self.session)
        return SupervisedQuery(self.session, stream, query.on_batch, on_idle=caught_up)

    def _identity(self, **how: object) -> str:
        pattern = self.asked.pattern.pattern if self.asked.pattern is not None else None
        return short_hash(
            {
                "cluster": self.admin.cluster().cluster,
                "topics": sorted(self.asked.topics),
                "pattern": pattern,
                "how": {name: repr(value) for name, value in how.items()},
            }
        )

    def _ends(self, name: str, identity: str, sink: str) -> QueryOutput:
        return QueryOutput(
            outlet=self.results.outlet,
            sink=sink,
            warehouse=self.results.warehouse,
            run=f"live-{name}-{identity}",
            folder=self._folder(name, identity),
        )

    def _folder(self, name: str, identity: str) -> str:
        return f"{storage_path(self.results.checkpoint)}/{name}-{identity}"

    def _stream(
        self,
        name: str,
        identity: str,
        pattern: str,
        shape: Callable[[DataFrame], DataFrame],
        trigger_s: float,
    ) -> Stream:
        return Stream(
            name=name,
            cluster=self.cluster,
            pattern=pattern,
            shape=shape,
            folder=self._folder(name, identity),
            trigger_s=trigger_s,
        )

    def _data_pattern(self) -> str:
        """The requested topics as a Java pattern; internal topics only if named."""
        named = [pattern_of(self.asked.topics)] if self.asked.topics else []
        if self.asked.pattern is not None or not named:
            wanted = self.asked.pattern.pattern if self.asked.pattern is not None else ".*"
            prefix = self.cluster.topics.prefix.replace(".", "\\.")
            named.append(f"^(?!__)(?!{prefix})(?:{wanted})$")
        return "|".join(named)

    def _refill(self, query: RatesQuery) -> None:
        """Restores the ring to its state when the last driver ended.

        The first start begins with the current window. After a long time without a driver, the
        missed windows are computed together by the batch step, so that new rates are not delayed.
        """
        placed = [
            p.name for p in self.admin.topics([self.cluster.topics.telemetry]) if not p.offline
        ]
        if not placed:
            return
        width, now = round(query.ring.window_s * MICROS), wall_clock_us()
        recent = now // width * width
        closed = query.closed_until(self.session)
        if not closed:
            closed = recent
            query.marks.mark(self.session, str(closed))
        read = partial(telemetry_between, self.session, self.cluster, placed)
        if closed < recent - width:
            recent -= width
            parsed = read(from_ts=closed, to_ts=recent).transform(sources.telemetry)
            wanted = parsed.transform(sources.samples).where(
                sources.between("ts", closed, recent)
                & self.asked.named("topic", self.cluster.topics.prefix)
            )
            rates = wanted.transform(
                rates_from_samples,
                window_s=query.ring.window_s,
                min_span_s=query.ring.min_span_s,
                max_gap_s=query.ring.window_s / 3,
            )
            run = f"{query.ends.run}-{closed}-{recent}"
            query.ends.warehouse.write(wanted.transform(lag), "lag", run=run)
            query.ends.warehouse.write(rates, "partition_rates", run=run)
            query.marks.mark(self.session, str(recent))
            log.info("missed_windows_written", windows=(recent - closed) // width)
            closed = recent
        query.ring.closed_until = closed
        query.refill(read(from_ts=min(closed, now - width), to_ts=now))
