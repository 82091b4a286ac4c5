"""Measures rates, heavy keys and lag with Spark: from files, over a span, or continuously."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.measure.counters import Share, Threshold
from trimtab.measure.sample_interval import is_sampled
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps, hot_keys_to, rates_records, rates_to
from trimtab.services.monitor import open_sampling
from trimtab.services.progress import NO_LISTENER, ProgressListener
from trimtab.settings import MeasureSettings

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin
    from trimtab.kafka.cluster import Cluster
    from trimtab.kafka.publisher import RecordPublisher
    from trimtab.measure.kafka.monitor import MonitorScope
    from trimtab.measure.spark.continuous import JobIntervals, Results
    from trimtab.measure.spark.hot_keys import CountingMode
    from trimtab.measure.spark.live_keys import KeyCounting
    from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod
    from trimtab.measure.spark.measure_result import MeasureResult
    from trimtab.measure.spark.spans import MeasureQuery
    from trimtab.measure.spark.streaming_queries import SupervisedQuery
    from trimtab.spark.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest:
    """What to measure, and how.

    `rates_from` is auto, samples or events; `keys` is auto, none, or a counting mode.
    `key_window_s` and `epsilon` have defaults that depend on the rest.
    """

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    groups: frozenset[str] | None = None
    rates_from: str = "auto"
    window_s: float = 30.0
    keys: str = "auto"
    key_window_s: float | None = None
    live_key_window_s: float = 10.0
    threshold: Threshold = field(default_factory=lambda: Share(0.001))
    epsilon: float | None = None
    warehouse: str
    settings: MeasureSettings = field(default_factory=MeasureSettings)

    def interest(self, own_prefix: str) -> MonitorScope:
        """What our monitor samples."""
        from trimtab.measure.kafka.monitor import MonitorScope

        return MonitorScope(
            topics=self.topics,
            pattern=self.pattern,
            groups=None if self.groups is None else tuple(sorted(self.groups)),
            own_prefix=own_prefix,
        )

    def asked(
        self,
        span: tuple[int, int],
        offsets: Mapping[TopicPartition, tuple[int, int]] | None = None,
    ) -> MeasureQuery:
        """What to read from the cluster."""
        from trimtab.measure.spark.spans import MeasureQuery

        return MeasureQuery(
            topics=self.topics or frozenset(p.topic for p in offsets or ()),
            pattern=self.pattern,
            groups=self.groups,
            from_ts=span[0],
            to_ts=span[1],
            events=self.rates_from != "samples" or self.keys != "none",
            samples=self.rates_from != "events",
            only_samples=self.rates_from == "samples",
            min_span_s=self.settings.min_span_s,
            offsets=offsets,
        )

    def how(self) -> MeasureMethod:
        """The parameters of the job."""
        from trimtab.measure.spark.hot_keys import CountingMode
        from trimtab.measure.spark.measure_input import MeasureMethod

        return MeasureMethod(
            window_s=self.window_s,
            min_span_s=self.settings.min_span_s,
            key_window_s=self.key_window_s,
            threshold=None if self.keys == "none" else self.threshold,
            mode=CountingMode.TWO_PASS if self.keys in ("auto", "none") else _mode(self.keys),
            epsilon=self.epsilon,
        )

    def beat(self) -> JobIntervals:
        """The intervals and windows of the continuous jobs."""
        from trimtab.measure.spark.continuous import JobIntervals

        return JobIntervals(
            window_s=self.window_s,
            min_span_s=self.settings.min_span_s,
            trigger_s=self.settings.trigger_ms / 1000,
            rates_on=self.settings.rates_on,
        )

    def counting(self) -> KeyCounting | None:
        """How keys are counted continuously; None if they are not."""
        from trimtab.measure.spark.hot_keys import CountingMode
        from trimtab.measure.spark.live_keys import KeyCounting
        from trimtab.measure.spark.measure_input import default_epsilon

        if self.keys == "none":
            return None
        mode = CountingMode.LOSSY if self.keys == "auto" else _mode(self.keys)
        if mode not in (CountingMode.LOSSY, CountingMode.ITEMS):
            raise ConfigError(f"--continuous counts keys with lossy or items, not with {mode}.")
        return KeyCounting(
            window_s=self.key_window_s or self.live_key_window_s,
            threshold=self.threshold,
            epsilon=self.epsilon or default_epsilon(self.threshold),
            mode=mode,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpan:
    """The part of the logs to measure: a time span, the next `for_s` seconds, or `offsets`."""

    from_ts: int
    to_ts: int
    for_s: float | None = None
    offsets: Mapping[TopicPartition, tuple[int, int]] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFiles:
    """Files of events and samples instead of a cluster, whole or for a time span."""

    events: Path | None = None
    samples: Path | None = None
    from_ts: int | None = None
    to_ts: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRecords:
    """How many records were published to our topics, and how many were not acknowledged."""

    published: int
    failed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ContinuousOptions:
    """The options of a continuous measurement.

    Without `outcomes` receipts are not evaluated; `sla_s` adds the share within the SLA.
    """

    checkpoint: str
    monitor: bool = True
    outcomes: bool = True
    sla_s: float | None = None


def measure_files(
    request: MeasureRequest,
    files: MeasuredFiles,
    *,
    start_spark: Callable[[], Session],
    listener: ProgressListener = NO_LISTENER,
) -> MeasureResult:
    """Measures files; unreadable files raise before Spark is started."""
    from trimtab.measure.spark.spans import from_files
    from trimtab.spark.session import spark_errors
    from trimtab.spark.sources import is_json

    how = request.how()
    for path in filter(None, (files.events, files.samples)):
        is_json(path)
    session = start_spark()
    with spark_errors("reading files"):
        given = from_files(
            session,
            events=files.events,
            samples=files.samples,
            from_ts=files.from_ts,
            to_ts=files.to_ts,
        )
    return _measured(session, request, given, how, listener)


def measure_span(
    cluster: Cluster,
    request: MeasureRequest,
    span: MeasuredSpan,
    *,
    start_spark: Callable[[], Session],
    listener: ProgressListener = NO_LISTENER,
) -> MeasureResult:
    """Measures a part of the logs; invalid requests raise before Spark is started."""
    from trimtab.measure.spark.measure_input import check_span
    from trimtab.measure.spark.spans import check_topics, ends_now, from_kafka
    from trimtab.spark.session import spark_errors

    how = request.how()
    times = (span.from_ts, span.to_ts)
    if span.offsets is None:
        length_s = (times[1] - times[0]) / MICROS if span.for_s is None else span.for_s
        check_span(length_s, how)
    with cluster.admin() as admin:
        placed = check_topics(admin, cluster, request.asked(times, span.offsets))
        earlier = ends_now(admin, placed)
        if span.for_s is not None:
            times = _watch(cluster, request, span.for_s, listener)
        session = start_spark()
        asked = request.asked(times, span.offsets)
        with spark_errors("reading from Kafka"):
            given = from_kafka(session, admin, cluster, asked, earlier=earlier)
        return _measured(session, request, given, how, listener)


def publish_measurement(
    cluster: Cluster, request: MeasureRequest, found: MeasureResult
) -> PublishedRecords:
    """Publishes rates and heavy keys of one measurement to Trimtab's topics."""
    from trimtab.kafka.publisher import open_publisher
    from trimtab.kafka.topics import ensure_topics
    from trimtab.measure.spark.hot_keys import CountingMode

    how, own, measured = request.how(), cluster.topics, found.measurement
    epsilon = (
        0.0 if how.mode in (CountingMode.TWO_PASS, CountingMode.GROUP_BY) else how.counting_epsilon
    )
    with cluster.admin() as admin:
        ensure_topics(admin, own)
    start, end = measured.from_ts, measured.to_ts
    with open_publisher(cluster) as publisher:
        for topic in sorted({p.topic for p in measured.partitions}):
            mine = [p for p in measured.partitions if p.topic == topic]
            rates = rates_to(topic, mine, ts=end, window_start=start, window_end=end)
            for record in rates_records(rates):
                publisher.publish(own.rates, topic.encode(), dumps(record).encode())
            keys = [k for k in measured.keys if k.topic == topic]
            if keys:
                n = round(keys[0].lower / keys[0].share)
                first, last = found.key_span or (start, end)
                value = hot_keys_to(
                    topic, keys, window_start=first, window_end=last, n=n, epsilon=epsilon
                )
                publisher.publish(own.hotkeys, topic.encode(), dumps(value).encode())
    return _published(publisher)


def measure_continuously(
    cluster: Cluster,
    request: MeasureRequest,
    options: ContinuousOptions,
    *,
    start_spark: Callable[[], Session],
    until_stopped: AbstractContextManager[threading.Event],
    listener: ProgressListener = NO_LISTENER,
) -> PublishedRecords:
    """Measures and publishes until the event of `until_stopped` is set.

    `until_stopped` is entered after Spark has started, so Ctrl-C during the start is immediate.
    """
    from trimtab.kafka.publisher import open_publisher
    from trimtab.kafka.topics import ensure_topics
    from trimtab.measure.spark.continuous import Results, run_continuously
    from trimtab.observe.clock import wall_clock_us
    from trimtab.spark.warehouse import Warehouse

    counting = request.counting()
    with cluster.admin() as admin:
        there = {p.topic for p in admin.topics(request.topics)} if request.topics else set()
    for name in sorted(request.topics - there):
        listener.warning(f"topic {name} does not exist yet")
    session = start_spark()
    with (
        until_stopped as stop,
        cluster.admin() as admin,
        open_publisher(cluster) as publisher,
    ):
        ensure_topics(admin, cluster.topics)
        results = Results(
            outlet=publisher,
            warehouse=Warehouse(request.warehouse),
            checkpoint=options.checkpoint,
        )
        with _sampling(cluster, request, admin, wanted=options.monitor, listener=listener):
            listener.started("Measuring")
            by_executors = run_continuously(
                session,
                admin,
                cluster,
                request.asked((0, wall_clock_us())),
                beat=request.beat(),
                keys=counting,
                results=results,
                stop=stop,
                more=_outcomes(session, cluster, admin, request, options, results),
            )
    session.stop()
    return _published(publisher, by_executors=by_executors)


def _outcomes(
    session: Session,
    cluster: Cluster,
    admin: Admin,
    request: MeasureRequest,
    options: ContinuousOptions,
    results: Results,
) -> list[SupervisedQuery]:
    """The query that judges receipts beside the rates, if that is wanted."""
    from trimtab.evaluate.spark.live_outcomes import LiveOutcomeOptions, outcomes_query

    if not options.outcomes:
        return []
    judged = LiveOutcomeOptions(
        window_s=request.settings.outcome_window_s,
        sla_s=options.sla_s,
        asked=request.asked((0, 0)),
    )
    return [
        outcomes_query(
            session,
            cluster,
            judged,
            cluster_id=admin.cluster().cluster,
            warehouse=results.warehouse,
            checkpoint=results.checkpoint,
        )
    ]


def _measured(
    session: Session,
    request: MeasureRequest,
    given: MeasureInput,
    how: MeasureMethod,
    listener: ProgressListener,
) -> MeasureResult:
    from trimtab.measure.spark.jobs import measure
    from trimtab.spark.session import watched
    from trimtab.spark.warehouse import Warehouse

    def on_tasks(done: int, known: int) -> None:
        listener.progress("measuring (tasks)", done, known)

    listener.progress("measuring (tasks)", 0, None)
    with watched(session, on_tasks):
        return measure(given, how, Warehouse(request.warehouse))


def _watch(
    cluster: Cluster, request: MeasureRequest, for_s: float, listener: ProgressListener
) -> tuple[int, int]:
    """Runs the monitor for `for_s` seconds, and returns the sampled span."""
    from trimtab.observe.clock import wall_clock_us

    start, beat = wall_clock_us(), threading.Event()
    with _monitor(cluster, request):
        while (passed := (wall_clock_us() - start) / MICROS) < for_s:
            listener.progress("sampling the cluster (s)", int(passed), round(for_s))
            beat.wait(min(0.5, for_s - passed))
    return start, wall_clock_us()


@contextmanager
def _sampling(
    cluster: Cluster,
    request: MeasureRequest,
    admin: Admin,
    *,
    wanted: bool,
    listener: ProgressListener,
) -> Iterator[None]:
    """Samples the cluster in the background, if requested and no other monitor runs."""
    if wanted and _is_sampled(cluster, admin, request.settings.period_s):
        listener.note("another monitor already samples this cluster; no second one is started")
        wanted = False
    with _monitor(cluster, request) if wanted else nullcontext():
        yield


@contextmanager
def _monitor(cluster: Cluster, request: MeasureRequest) -> Iterator[None]:
    """Runs our monitor in the background."""
    from trimtab.measure.kafka.monitor import in_background

    interest = request.interest(cluster.topics.prefix)
    with (
        open_sampling(
            cluster,
            interest,
            period_s=request.settings.period_s,
            window_s=request.window_s,
        ) as monitor,
        in_background(monitor),
    ):
        yield


def _is_sampled(cluster: Cluster, admin: Admin, period_s: float) -> bool:
    """Whether a monitor writes telemetry now: two monitors would disturb each other."""
    from trimtab.measure.kafka.telemetry_log import recent_sample_times
    from trimtab.observe.clock import wall_clock_us

    placed = admin.topics([cluster.topics.telemetry])
    times = recent_sample_times(cluster, [p.partition for p in placed if not p.offline])
    return is_sampled(times, wall_clock_us(), period_s=period_s)


def _mode(name: str) -> CountingMode:
    from trimtab.measure.spark.hot_keys import CountingMode

    try:
        return CountingMode(name)
    except ValueError as error:
        raise ConfigError(
            f"--keys takes auto, none, {', '.join(CountingMode)}, not {name}."
        ) from error


def _published(publisher: RecordPublisher, *, by_executors: int = 0) -> PublishedRecords:
    return PublishedRecords(published=publisher.published + by_executors, failed=publisher.failed)
