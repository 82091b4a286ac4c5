"""The demo: a real cluster, a skewed load, the control loop, and one page with the results.

A consumer group is sized as usual: for the mean load plus a margin. Keys are skewed and partitions
are assigned by count, so one consumer falls behind while the others are idle. Trimtab measures this
and plans a better assignment; then a controller runs a group on the same skew, scaled down, and
Spark evaluates the result. All figures are measured: rates, keys and lag by Spark, the capacity
from the consumers' real speed.
"""

from __future__ import annotations

import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trimtab.audit.topology import Audit
from trimtab.errors import MeasurementError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.local.jars import KAFKA, broker_jars, connector_jars
from trimtab.measure.counters import parse_threshold
from trimtab.measure.group_state import GroupSnapshot, group_state
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import ClusterSnapshot, TopicPartition
from trimtab.model.codec import dumps, measurement_to, snapshot_to
from trimtab.model.files import write_atomically
from trimtab.model.load import Measurement, Unit
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_to
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.situation import in_group, situation_of_measurement
from trimtab.report.audit_page import audit_page
from trimtab.report.page import Figure, FigureChange, JudgedRow, page
from trimtab.report.plots import RateHistory
from trimtab.report.tables import quantity
from trimtab.settings import Settings
from trimtab.workload import due
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot

if TYPE_CHECKING:
    from trimtab.kafka.admin import Admin
    from trimtab.measure.spark.jobs import MeasureResult
    from trimtab.spark.session import Session
    from trimtab.workload.kafka.load import LoadSummary
    from trimtab_lab.demo.kafka.slow_group import SlowConsumer

STEPS = 7
CLUSTER = "demo"
BROKERS = 3
PLANNER = "trim"
"""The same as the default of `plan` and `run`."""
LEAST_DURATION_S = 10.0
"""The warm-up plus enough samples to compute a rate."""

_KEYS = ZipfMandelbrot(s=1.1, v=1.0, keys=10_000)
_STABLE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """The parameters of the demo.

    `spare` is how much more than the mean load a consumer can handle. The first `warm_up_s` are
    not measured; plots use windows of `line_s`. Then a controller runs a group for `loop_s` with
    a latency target of `loop_sla_s`, on the same skew, with a total rate up to `loop_rate_s`.
    """

    duration_s: float = 30.0
    rate_s: float = 3000.0
    partitions: int = 12
    seed: int = 0
    topic: str = "orders"
    group: str = "billing"
    consumers: int = 4
    spare: float = 0.2
    value_bytes: int = 200
    keys: ZipfMandelbrot = _KEYS
    warm_up_s: float = 3.0
    window_s: float = 10.0
    line_s: float = 2.0
    loop_s: float = 40.0
    loop_rate_s: float = 150.0
    loop_sla_s: float = 5.0

    @property
    def pace_s(self) -> float:
        """How many records per second one consumer can handle."""
        return self.rate_s / self.consumers * (1 + self.spare)


class Audience(Protocol):
    """Receives the progress of the demo, for example to print it."""

    def step(self, number: int, title: str) -> None:
        """A new step begins."""
        ...

    def say(self, line: str) -> None:
        """Shows a line of information."""
        ...

    def warn(self, line: str) -> None:
        """Shows a warning."""
        ...

    def bar(self, title: str) -> AbstractContextManager[Callable[[int, int, str], None]]:
        """A progress bar, updated with (done, total, text) while the block runs."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEnvironment:
    """A running cluster, a Spark session that may still be starting, settings and a folder."""

    cluster: Cluster
    spark: Callable[[], Session]
    settings: Settings
    tables: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """The result of the group that a controller ran; `figures` are those of a live experiment."""

    rate_s: float
    duration_s: float
    sla_s: float
    figures: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOutcome:
    """All results of the demo."""

    measurement: Measurement
    states: Mapping[tuple[str, TopicPartition], str]
    stored_ratio: float | None
    history: RateHistory
    loads: Mapping[TopicPartition, float]
    plan: ConsumerPlan
    loop: Loop
    facts: Mapping[str, str]
    placed: ClusterSnapshot
    audit: Audit

    def page(self) -> str:
        """The report as HTML."""
        return page(
            self.measurement,
            self.history,
            self.states,
            self.plan,
            self.facts,
            loop_summary(self.loop),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Files:
    """The files in the output folder."""

    report: Path
    measurement: Path
    plan: Path
    loop: Path
    snapshot: Path
    audit: Path


def run_demo(
    script: Script,
    settings: Settings,
    audience: Audience,
    *,
    folder: Path,
    keep: bool = False,
    verbose: bool = False,
) -> tuple[DemoOutcome, Files]:
    """Runs the whole demo; stops and deletes the cluster in any case, unless `keep` is set."""
    audience.step(1, f"A Kafka cluster of {BROKERS} brokers")
    broker_jars(cache=settings.cache)
    connector_jars(cache=settings.cache)
    cluster = LocalCluster(
        CLUSTER, home=settings.home, brokers=BROKERS, cache=settings.cache, say=audience.say
    )
    with (
        _deleted_afterwards(cluster, unless=keep),
        _starting_spark(settings, verbose=verbose) as session,
    ):
        status = cluster.up()
        environment = DemoEnvironment(
            cluster=Cluster(status.bootstrap_servers, topics=OwnTopics(settings.topic_prefix)),
            spark=session.result,
            settings=settings,
            tables=folder / "tables",
        )
        outcome = run_steps(script, environment, audience)
        audience.step(7, "The report")
        files = write(outcome, folder)
    return outcome, files


def run_steps(script: Script, environment: DemoEnvironment, audience: Audience) -> DemoOutcome:
    """Runs the steps on a running cluster: load, measure, plan, run, evaluate."""
    from trimtab_lab.demo.kafka.audited_topic import audited_topic

    with environment.cluster.admin() as admin:
        audience.step(
            2, f"Topic {script.topic} ({script.partitions} partitions), group {script.group}"
        )
        _make_topics(script, environment, admin)
        environment.spark()  # wait until it has started: on two cores, starting would slow the load
        shown = _load_and_watch(script, environment, admin, audience)
        audience.step(4, "Measuring with Spark: rates, heavy keys, lag")
        found, history = _measured(script, environment, admin, audience, shown)
        placed, audited = audited_topic(
            admin, script.topic, found.measurement, clock=wall_clock_us, say=audience.say
        )
    audience.step(5, f"A plan for group {script.group}")
    audience.say(f"Capacity of a consumer: {shown.capacity_words}.")
    loads, plan = _planned(script, found, shown)
    audience.step(
        6, f"The loop for {script.loop_s:g} s: a controller runs a group on the same skew, smaller"
    )
    loop = _looped(script, environment, loads, audience)
    return DemoOutcome(
        measurement=found.measurement,
        states=found.states,
        stored_ratio=found.stored_ratio,
        history=history,
        loads=loads,
        plan=plan,
        loop=loop,
        facts=_facts(script, environment, shown),
        placed=placed,
        audit=audited,
    )


def write(outcome: DemoOutcome, folder: Path) -> Files:
    """Writes the report, and files that other commands take as input."""
    files = Files(
        report=folder / "report.html",
        measurement=folder / "measurement.json",
        plan=folder / "plan.json",
        loop=folder / "loop.json",
        snapshot=folder / "snapshot.json",
        audit=folder / "audit.html",
    )
    for path, text in (
        (files.report, outcome.page()),
        (files.measurement, dumps(measurement_to(outcome.measurement), indent=1) + "\n"),
        (files.plan, dumps(plan_to(outcome.plan), indent=2) + "\n"),
        (files.loop, dumps(dict(outcome.loop.figures), indent=1) + "\n"),
        (files.snapshot, dumps(snapshot_to(outcome.placed), indent=1) + "\n"),
        (files.audit, audit_page(outcome.audit)),
    ):
        write_atomically(path, text)
    return files


# ---------------------------------------------------------------- the stages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """Observations from the time when the load ran."""

    from_ts: int
    to_ts: int
    summary: LoadSummary
    group: GroupSnapshot
    capacity: float

    @property
    def capacity_words(self) -> str:
        return (
            f"{quantity(self.capacity, Unit.RECORDS_S)}, as measured for the slowest consumer "
            "while it was busy"
        )


def _make_topics(script: Script, environment: DemoEnvironment, admin: Admin) -> None:
    """Deletes and creates the topic, so that records of an earlier run are gone."""
    from trimtab.kafka.admin import TopicSpec
    from trimtab.kafka.topics import ensure_topics

    ensure_topics(admin, environment.cluster.topics)
    admin.delete_topic(script.topic)
    replicas = min(BROKERS, len(admin.cluster().live))
    admin.create_topic(
        TopicSpec(
            name=script.topic,
            partitions=script.partitions,
            replication=replicas,
            settings={"min.insync.replicas": str(max(1, replicas - 1))},
        )
    )


def _load_and_watch(
    script: Script, environment: DemoEnvironment, admin: Admin, audience: Audience
) -> _Shown:
    """Sends the load while the group reads it and the monitor takes samples."""
    from trimtab.measure.kafka.monitor import Interest, in_background, open_monitor
    from trimtab_lab.demo.kafka.slow_group import DemoGroup, slow_group

    group = DemoGroup(
        name=script.group, topic=script.topic, members=script.consumers, pace_s=script.pace_s
    )
    with slow_group(group, environment.cluster) as members:
        _wait_until_stable(script, admin)
        audience.say(
            f"{script.consumers} consumers, each sized for {script.pace_s:.0f} records/s: the mean "
            f"load plus {script.spare:.0%}."
        )
        audience.step(
            3, f"Skewed load: {script.rate_s:g} records/s for {script.duration_s:g} s, monitored"
        )
        with (
            open_monitor(
                environment.cluster,
                interest=Interest(
                    topics=frozenset({script.topic}),
                    groups=(script.group,),
                    own_prefix=environment.cluster.topics.prefix,
                ),
                period_s=environment.settings.measure.period_s,
            ) as monitor,
            in_background(monitor),
        ):
            from_ts = wall_clock_us() + round(script.warm_up_s * MICROS)
            summary = _send(script, environment, audience)
            to_ts = wall_clock_us()
            # Read while all members are still in the group: the plan is made for them.
            state = group_state(admin, script.group, frozenset({script.topic}))
            capacity = _slowest(members)
    return _Shown(
        from_ts=from_ts,
        to_ts=to_ts,
        summary=summary,
        group=state,
        capacity=capacity,
    )


def _wait_until_stable(script: Script, admin: Admin) -> None:
    """Returns when all members are in the group and every partition has an owner."""
    deadline = time.monotonic() + _STABLE_TIMEOUT_S
    why = ""
    while time.monotonic() < deadline:
        try:
            found = admin.groups([script.group])
        except MeasurementError as error:  # a new cluster may have no group coordinator yet
            found, why = (), f" {error.message}"
        for group in found:
            owned = [p for member in group.members for p in member.partitions]
            if (
                group.state.upper() == "STABLE"
                and len(group.members) == script.consumers
                and len(owned) == script.partitions
            ):
                return
        time.sleep(0.1)
    raise MeasurementError(
        f"Group {script.group} did not become stable within {_STABLE_TIMEOUT_S:g} s.{why}",
        hint=f"Check the brokers: trimtab cluster status --name {CLUSTER}",
    )


def _send(script: Script, environment: DemoEnvironment, audience: Audience) -> LoadSummary:
    from trimtab.workload.kafka.load import LoadProgress, send

    stream = KeyStream(rate_s=script.rate_s, seed=script.seed, distribution=script.keys)
    whole = round(script.duration_s)
    with audience.bar("sending (s)") as move:

        def show(now: LoadProgress) -> None:
            move(min(int(now.time_s), whole), whole, f"{now.acknowledged} records acknowledged")

        summary = send(
            due.keyed(stream, duration_s=script.duration_s, value_bytes=script.value_bytes),
            topic=script.topic,
            cluster=environment.cluster,
            seed=script.seed,
            duration_s=script.duration_s,
            on_progress=show,
        )
    audience.say(f"{summary.acknowledged} of {summary.asked} records acknowledged.")
    if summary.shortfall:
        audience.warn(f"the load {summary.shortfall}")
    if summary.failed:
        audience.warn(f"{summary.failed} records were not acknowledged")
    return summary


def _slowest(members: Sequence[SlowConsumer]) -> float:
    """The speed of the slowest member."""
    speeds = [member.speed_s for member in members if member.speed_s is not None]
    if not speeds:
        raise MeasurementError(
            "No consumer of the demo handled a record.",
            hint=f"Check the brokers: trimtab cluster status --name {CLUSTER}",
        )
    return min(speeds)


def _measured(
    script: Script, environment: DemoEnvironment, admin: Admin, audience: Audience, shown: _Shown
) -> tuple[MeasureResult, RateHistory]:
    from trimtab.measure.spark.jobs import MeasureMethod, measure
    from trimtab.measure.spark.spans import MeasureQuery, from_kafka
    from trimtab.spark.session import watched
    from trimtab.spark.warehouse import Warehouse
    from trimtab_lab.demo.spark.history import rate_history

    session, warehouse = environment.spark(), Warehouse(str(environment.tables))
    settings = environment.settings
    asked = MeasureQuery(
        topics=frozenset({script.topic}),
        groups=frozenset({script.group}),
        from_ts=shown.from_ts,
        to_ts=shown.to_ts,
    )
    how = MeasureMethod(
        window_s=script.window_s,
        min_span_s=settings.measure.min_span_s,
        threshold=parse_threshold(settings.keys.threshold),
    )
    with (
        audience.bar("measuring (tasks)") as move,
        watched(session, lambda done, known: move(done, known, "")),
    ):
        given = from_kafka(session, admin, environment.cluster, asked)
        found = measure(given, how, warehouse)
        return found, rate_history(given, window_s=script.line_s)


def _planned(
    script: Script, found: MeasureResult, shown: _Shown
) -> tuple[Mapping[TopicPartition, float], ConsumerPlan]:
    situation = in_group(
        situation_of_measurement(
            found.measurement,
            topics=frozenset({script.topic}),
            capacity=shown.capacity,
            unit=Unit.RECORDS_S,
        ),
        shown.group,
    )
    plan = plan_consumers(
        situation.loads,
        situation.current,
        situation.limits,
        planner=PLANNER,
        made_ts=wall_clock_us(),
        group=script.group,
    )
    return situation.loads, plan


def _looped(
    script: Script,
    environment: DemoEnvironment,
    loads: Mapping[TopicPartition, float],
    audience: Audience,
) -> Loop:
    from trimtab_lab.demo.spark.loop import keep_level
    from trimtab_lab.papers.live.kafka.live_run import LiveSite

    place = LiveSite(cluster=environment.cluster, folder=environment.tables.parent / "loop")
    whole = round(script.loop_s)
    with audience.bar("running (s)") as move:
        loop = keep_level(
            loads,
            environment.spark(),
            place,
            rate_s=script.loop_rate_s,
            duration_s=script.loop_s,
            sla_s=script.loop_sla_s,
            on_progress=lambda time_s: move(min(int(time_s), whole), whole, ""),
        )
    shown = loop_summary(loop)
    for change in shown.changes:
        audience.say(f"after {change.at}: {change.consumers} consumers, {change.reason}")
    audience.say("; ".join(f"{f.value} {f.name}" for f in shown.figures))
    return loop


def loop_summary(loop: Loop) -> JudgedRow:
    """The result of the loop, as text for the page."""
    found = loop.figures
    blocked = found["handover"] or found["blocked"]
    return JudgedRow(
        sent=f"up to {loop.rate_s:.0f} records/s for {loop.duration_s:g} s",
        figures=[
            Figure(
                f"{found['sla_share']:.1%}",
                f"within {loop.sla_s:g} s",
                f"of {found['records']} records, p99 {found['p99_s']:.2f} s",
            ),
            Figure(
                f"{found['replica_minutes']:.1f}",
                "replica-minutes",
                f"{found['most_replicas']} consumers at most",
            ),
            Figure(
                str(blocked["moves"]),
                "hand-overs",
                "" if blocked["p90_s"] is None else f"blocked p90 {blocked['p90_s']:.2f} s",
            ),
            Figure(str(found["order_findings"]), "lost or reordered records", "all audited"),
        ],
        changes=[
            FigureChange(f"{max(0.0, at_s):.1f} s", f"{before} → {after}", reason)
            for at_s, _, before, after, reason in found["changes"]
        ],
    )


def _facts(script: Script, environment: DemoEnvironment, shown: _Shown) -> dict[str, str]:
    """Rows for the last table of the report."""
    keys, sent = script.keys, shown.summary
    return {
        "load": f"{script.rate_s:g} records/s for {script.duration_s:g} s, "
        f"{script.value_bytes} bytes each, seed {script.seed}",
        "keys": f"{keys.keys}, Zipf–Mandelbrot with s = {keys.s:g}, v = {keys.v:g}",
        "sent": f"{sent.sent} records, {sent.acknowledged} acknowledged, {sent.late} late",
        "consumers": f"{script.consumers}, partitions assigned by count (range), each sized for "
        f"{script.pace_s:.0f} records/s: the mean load plus {script.spare:.0%}",
        "capacity": shown.capacity_words,
        "samples": f"every {environment.settings.measure.period_s:g} s, rates over windows of "
        f"{script.window_s:g} s; the first {script.warm_up_s:g} s are excluded",
        "heavy keys": f"threshold {environment.settings.keys.threshold}, counted exactly",
        "Trimtab": version("trimtab"),
        "Kafka": KAFKA,
        "Spark": version("pyspark"),
        "Python": platform.python_version(),
    }


# ---------------------------------------------------------------- cleaning up


@contextmanager
def _deleted_afterwards(cluster: LocalCluster, *, unless: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if not unless:
            with _ignoring_signals():
                cluster.down()


@contextmanager
def _starting_spark(settings: Settings, *, verbose: bool) -> Iterator[Future[Session]]:
    """Starts a session in the background, and stops it when the block ends."""

    def start() -> Session:
        from trimtab.spark.session import SparkOptions, build

        return build(
            SparkOptions(
                app="trimtab-demo",
                master=settings.spark.master,
                jars=connector_jars(cache=settings.cache),
                conf=settings.spark.conf,
                properties_file=settings.spark.properties_file,
                driver_memory=settings.spark.driver_memory,
                log=settings.home / "logs" / "spark.log",
                verbose=verbose,
            )
        )

    with ThreadPoolExecutor(1, thread_name_prefix="spark-start") as starter:
        session = starter.submit(start)
        try:
            yield session
        finally:
            with _ignoring_signals():
                if session.exception() is None:
                    session.result().stop()


@contextmanager
def _ignoring_signals() -> Iterator[None]:
    """Ignores further Ctrl-C while the block runs, because cleaning up takes some seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {s: signal.signal(s, signal.SIG_IGN) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
