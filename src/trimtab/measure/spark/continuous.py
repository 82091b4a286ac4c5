"""`measure --continuous`: runs the streaming queries and restarts them until stopped."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import Cluster
from trimtab.measure.kafka.rates_follower import RatesFollower
from trimtab.measure.kafka.telemetry_log import newest_record
from trimtab.measure.ring import SampleRing
from trimtab.measure.spark.driver_rates import DriverStart
from trimtab.measure.spark.executor_rates import (
    MOST_RECORDS_PER_TRIGGER,
    RatesTask,
    start_executor_rates,
)
from trimtab.measure.spark.live_keys import KeyCounting, KeysQuery
from trimtab.measure.spark.live_rates import RatesQuery
from trimtab.measure.spark.rates_job import ContinuousQuery, ExecutorQuery, RatesJob
from trimtab.measure.spark.spans import MeasureQuery, with_keyed_topics
from trimtab.measure.spark.streaming_queries import (
    QueryOutput,
    ResultPublisher,
    Stream,
    SupervisedQuery,
    pattern_of,
)
from trimtab.measure.spark.window_tables import WindowTables
from trimtab.measure.topic_samples import is_older_version
from trimtab.model.codec import short_hash
from trimtab.model.rates_place import RatesPlace
from trimtab.spark import sources
from trimtab.spark.folder_lock import used_alone
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
    with ExitStack() as locks:
        for folder in job.folders(beat, keys, more):
            locks.enter_context(used_alone(folder))
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

    def folders(
        self, beat: JobIntervals, keys: KeyCounting | None, more: Sequence[SupervisedQuery]
    ) -> list[str]:
        """The checkpoints of all queries."""
        found = [self._folder("rates", self._rates_identity(beat))]
        if keys is not None:
            found.append(self._folder("keys", self._keys_identity(keys)))
        return found + [query.folder for query in more if query.folder is not None]

    def _rates_identity(self, beat: JobIntervals) -> str:
        groups = None if self.asked.groups is None else sorted(self.asked.groups)
        return self._identity(window_s=beat.window_s, groups=groups)

    def rates(self, beat: JobIntervals) -> RatesJob:
        """The telemetry query, on the driver or on executors."""
        identity = self._rates_identity(beat)
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
            on_driver=partial(self._rates_on_driver, beat, output, tables),
            on_executors=partial(self._rates_on_executors, beat, identity, tables),
            is_old_telemetry=self._is_old_telemetry,
        )

    def _rates_on_driver(
        self, beat: JobIntervals, output: QueryOutput, tables: WindowTables
    ) -> SupervisedQuery:
        """The telemetry query, with its ring filled at its start."""
        query = RatesQuery(
            SampleRing(window_s=beat.window_s, min_span_s=beat.min_span_s),
            output,
            source=self.cluster.topics.telemetry,
            wanted=self.asked.filter(self.cluster.topics.prefix).wants,
            groups=self.asked.groups,
        )
        stream = Stream(
            name="rates",
            cluster=self.cluster,
            pattern=pattern_of([self.cluster.topics.telemetry]),
            shape=sources.log_records,
            folder=output.folder,
            trigger_s=beat.trigger_s,
            max_records=MOST_RECORDS_PER_TRIGGER,
        )
        return SupervisedQuery(
            stream.name,
            DriverStart(self.session, query, tables, stream),
            on_stop=query.finish,
        )

    def _rates_on_executors(
        self, beat: JobIntervals, identity: str, tables: WindowTables
    ) -> ExecutorQuery:
        start = partial(
            start_executor_rates,
            self.session,
            self.task(beat, identity),
            folder=self._folder("rates-executors", identity),
            trigger_s=beat.trigger_s,
        )
        follower = RatesFollower(self.cluster)
        follower.start()
        return ExecutorQuery(SupervisedQuery("rates", start), tables, follower)

    def task(self, beat: JobIntervals, identity: str) -> RatesTask:
        """What executors do; rings of another application are never used."""
        return RatesTask(
            cluster=self.cluster,
            window_s=beat.window_s,
            min_span_s=beat.min_span_s,
            topics=self.asked.filter(self.cluster.topics.prefix),
            groups=self.asked.groups,
            identity=f"{self.session.sparkContext.applicationId}-{identity}",
        )

    def _partitions(self) -> int:
        """The number of partitions that are measured."""
        placed = self.admin.topics()
        asked = with_keyed_topics(self.asked, {p.topic for p in placed})
        wants = asked.filter(self.cluster.topics.prefix).wants
        return sum(1 for p in placed if wants(p.topic))

    def _is_old_telemetry(self) -> bool:
        """Whether the newest telemetry record is of a version that executors do not read."""
        placed = self.admin.topics([self.cluster.topics.telemetry])
        newest = newest_record(self.cluster, [p.partition for p in placed if not p.offline])
        return newest is not None and is_older_version(newest.value)

    def keys(self, how: KeyCounting) -> SupervisedQuery:
        """The query of the data topics, with the counts of the previous driver."""
        identity = self._keys_identity(how)
        ends = self._ends("keys", identity, self.cluster.topics.hotkeys)
        query = KeysQuery(how, ends, admin=self.admin)
        query.resume(self.session)
        caught_up = partial(query.caught_up, self.session)

        def start() -> StreamingQuery:
            stream = self._keys_stream(ends.folder, how.window_s)
            return stream.start(self.session, query.on_batch)

        return SupervisedQuery("keys", start, on_idle=caught_up)

    def _keys_stream(self, folder: str, trigger_s: float) -> Stream:
        """The data topics; headers are read only if one of them is routed by key at the start."""
        asked = with_keyed_topics(self.asked, {p.topic for p in self.admin.topics()})
        marked = any(asked.wants(topic, self.cluster.topics.prefix) for topic in asked.keyed)
        return Stream(
            name="keys",
            cluster=self.cluster,
            pattern=data_pattern(asked, self.cluster.topics.prefix),
            shape=sources.events,
            folder=folder,
            trigger_s=trigger_s,
            options=sources.WITH_HEADERS if marked else {},
        )

    def _keys_identity(self, how: KeyCounting) -> str:
        return self._identity(
            window_s=how.window_s,
            epsilon=how.epsilon,
            mode=str(how.mode),
            threshold=repr(how.threshold),
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


def data_pattern(asked: MeasureQuery, own_prefix: str) -> str:
    """The requested topics as a Java pattern; internal topics only if named."""
    named = [pattern_of(asked.topics)] if asked.topics else []
    if asked.pattern is not None or not named:
        wanted = asked.pattern.pattern if asked.pattern is not None else ".*"
        prefix = own_prefix.replace(".", "\\.")
        own = f"(?!{pattern_of(asked.own).removeprefix('^')})" if asked.own else ""
        named.append(f"^(?!__)(?!{prefix}){own}(?:{wanted})$")
    return "|".join(named)
