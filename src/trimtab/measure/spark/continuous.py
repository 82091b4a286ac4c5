"""`measure --continuous`: runs the streaming queries and restarts them until stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.measure.kafka.rates_follower import RatesFollower
from trimtab.measure.kafka.telemetry_log import newest_record
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.executor_rates import RatesTask, start_executor_rates
from trimtab.measure.spark.live_keys import KeyCounting, KeysQuery
from trimtab.measure.spark.live_rates import RatesQuery
from trimtab.measure.spark.rates_job import ContinuousQuery, ExecutorQuery, RatesJob
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.measure.spark.streaming_queries import (
    QueryOutput,
    ResultPublisher,
    Stream,
    SupervisedQuery,
    pattern_of,
)
from trimtab.measure.spark.window_tables import WindowTables
from trimtab.measure.topic_samples import is_older_version
from trimtab.measure.windows import MICROS
from trimtab.model.codec import short_hash
from trimtab.model.rates_place import RatesPlace
from trimtab.observe.clock import wall_clock_us
from trimtab.spark import sources
from trimtab.spark.session import storage_path
from trimtab.spark.warehouse import Warehouse


@dataclass(frozen=True, slots=True, kw_only=True)
class JobIntervals:
    """Trigger, window and minimum span of the continuous jobs."""

    window_s: float
    min_span_s: float
    trigger_s: float
    rates_on: RatesPlace = RatesPlace.AUTO


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
) -> int:
    """Runs these queries and `more` until `stop` is set; a failed query is restarted.

    Returns how many records executors have published, beside those of `results.outlet`.
    """
    job = _Job(session, admin, cluster, asked, results)
    rates = job.rates(beat)
    queries: list[ContinuousQuery] = [rates, *more]
    if keys is not None:
        queries.append(job.keys(keys))
    try:
        while not stop.wait(1.0):
            for query in queries:
                query.tick()
    finally:
        for query in queries:
            query.stop()
    return rates.published_by_executors


@dataclass(frozen=True, slots=True)
class _Job:
    """One measurement of one cluster; each query's folder name has a hash of its settings."""

    session: SparkSession
    admin: Admin
    cluster: Cluster
    asked: MeasureQuery
    results: Results

    def rates(self, beat: JobIntervals) -> RatesJob:
        """The telemetry query, on the driver or on executors."""
        groups = None if self.asked.groups is None else sorted(self.asked.groups)
        identity = self._identity(window_s=beat.window_s, groups=groups)
        output = self._ends("rates", identity, self.cluster.topics.rates)
        tables = WindowTables(
            self.session,
            self.admin,
            self.cluster,
            self.asked,
            output,
            window_s=beat.window_s,
            min_span_s=beat.min_span_s,
        )
        return RatesJob(
            wanted=beat.rates_on,
            partitions=self._partitions,
            on_driver=partial(self._rates_on_driver, beat, identity, output, tables),
            on_executors=partial(self._rates_on_executors, beat, identity, tables),
            is_old_telemetry=self._is_old_telemetry,
        )

    def _rates_on_driver(
        self, beat: JobIntervals, identity: str, output: QueryOutput, tables: WindowTables
    ) -> SupervisedQuery:
        """The telemetry query, with its ring filled."""
        query = RatesQuery(
            SampleRing(window_s=beat.window_s, min_span_s=beat.min_span_s),
            output,
            source=self.cluster.topics.telemetry,
            wanted=self.asked.filter(self.cluster.topics.prefix).wants,
            groups=self.asked.groups,
        )
        self._refill(query, tables)
        pattern = pattern_of([self.cluster.topics.telemetry])
        stream = self._stream("rates", identity, pattern, sources.log_records, beat.trigger_s)
        return SupervisedQuery(
            stream.name,
            partial(stream.start, self.session, query.on_batch),
            on_stop=query.finish,
        )

    def _rates_on_executors(
        self, beat: JobIntervals, identity: str, tables: WindowTables
    ) -> ExecutorQuery:
        task = RatesTask(
            cluster=self.cluster,
            window_s=beat.window_s,
            min_span_s=beat.min_span_s,
            topics=self.asked.filter(self.cluster.topics.prefix),
            groups=self.asked.groups,
            identity=identity,
        )
        start = partial(
            start_executor_rates,
            self.session,
            task,
            folder=self._folder("rates-executors", identity),
            trigger_s=beat.trigger_s,
        )
        follower = RatesFollower(self.cluster)
        follower.start()
        return ExecutorQuery(SupervisedQuery("rates", start), tables, follower)

    def _partitions(self) -> int:
        """The number of partitions that are measured."""
        wants = self.asked.filter(self.cluster.topics.prefix).wants
        return sum(1 for p in self.admin.topics() if wants(p.topic))

    def _is_old_telemetry(self) -> bool:
        """Whether the newest telemetry record is of a version that executors do not read."""
        placed = self.admin.topics([self.cluster.topics.telemetry])
        newest = newest_record(self.cluster, [p.partition for p in placed if not p.offline])
        return newest is not None and is_older_version(newest.value)

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
        return SupervisedQuery(
            stream.name, partial(stream.start, self.session, query.on_batch), on_idle=caught_up
        )

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

    def _refill(self, query: RatesQuery, tables: WindowTables) -> None:
        """Restores the ring to its state when the last driver ended.

        The first start begins with the current window. After a long time without a driver, the
        missed windows are computed together by the batch step, so that new rates are not delayed.
        """
        width, now = round(query.ring.window_s * MICROS), wall_clock_us()
        recent = now // width * width
        closed = tables.closed_until()
        if closed < recent - width:
            recent -= width
            tables.write(closed, recent, with_rejects=False)
            closed = recent
        query.ring.closed_until = closed
        raw = tables.telemetry(from_ts=min(closed, now - width), to_ts=now)
        if raw is not None:
            query.refill(raw)
