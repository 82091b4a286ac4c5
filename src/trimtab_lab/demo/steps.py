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
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.local.jars import KAFKA, broker_jars, connector_jars
from trimtab.measure.counters import parse_threshold
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Unit
from trimtab.model.plan import KeyPlan, Layer
from trimtab.observe.clock import wall_clock_us
from trimtab.plan.registry import planner_of
from trimtab.report.plots import RateHistory
from trimtab.services.measure import MeasuredSpan, MeasureRequest, measure_span
from trimtab.services.plan import PlannedGroup, PlanRequest, plan_group
from trimtab.services.plan_keys import KeyPlanRequest, PlannedKeys, plan_hot_keys
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.measure.spark.measure_result import MeasureResult
    from trimtab.spark.session import Session

from trimtab_lab.demo.outcome import DemoOutcome, Files, Loop, loop_summary, write
from trimtab_lab.demo.script import (
    BROKERS,
    CLUSTER,
    PLANNER,
    Audience,
    BarListener,
    DemoEnvironment,
    Script,
)
from trimtab_lab.demo.watched_load import WatchedLoad, load_and_watch, make_topics


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
            cluster=Cluster(
                status.bootstrap_servers,
                topics=OwnTopics(settings.topic_prefix),
                timeouts=settings.timeouts.value,
            ),
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
        make_topics(script, environment, admin)
        environment.spark()  # wait until it has started: on two cores, starting would slow the load
        shown = load_and_watch(script, environment, admin, audience)
        audience.step(4, "Measuring with Spark: rates, heavy keys, lag")
        found, history = _measured(script, environment, audience, shown)
        placed, audited = audited_topic(
            admin, script.topic, found.measurement, clock=wall_clock_us, say=audience.say
        )
    audience.step(5, f"Plans for group {script.group} and for hot keys")
    audience.say(f"Capacity of a consumer: {shown.capacity_words}.")
    planned = _planned(script, found, shown, audience)
    hot_keys = _planned_keys(script, found, audience)
    audience.step(
        6, f"The loop for {script.loop_s:g} s: a controller runs a group on the same skew, smaller"
    )
    loop = _looped(script, environment, planned.loads, audience)
    return DemoOutcome(
        measurement=found.measurement,
        states=found.states,
        stored_ratio=found.stored_ratio,
        history=history,
        loads=planned.loads,
        plan=planned.plan,
        hot_keys=hot_keys,
        loop=loop,
        facts=_facts(script, environment, shown),
        placed=placed,
        audit=audited,
    )


def _measured(
    script: Script, environment: DemoEnvironment, audience: Audience, shown: WatchedLoad
) -> tuple[MeasureResult, RateHistory]:
    from trimtab_lab.demo.spark.history import rate_history

    settings = environment.settings
    request = MeasureRequest(
        topics=frozenset({script.topic}),
        groups=frozenset({script.group}),
        window_s=script.window_s,
        threshold=parse_threshold(settings.keys.threshold),
        warehouse=str(environment.tables),
        settings=settings.measure,
    )
    span = MeasuredSpan(from_ts=shown.from_ts, to_ts=shown.to_ts)
    with audience.bar("measuring (tasks)") as move:
        found = measure_span(
            environment.cluster,
            request,
            span,
            start_spark=environment.spark,
            listener=BarListener(audience, move),
        )
        history = rate_history(environment, request, span, window_s=script.line_s)
    return found, history


def _planned(
    script: Script, found: MeasureResult, shown: WatchedLoad, audience: Audience
) -> PlannedGroup:
    request = PlanRequest(
        loads=found.measurement,
        origin="the measurement",
        planner=planner_of(Layer.CONSUMERS, PLANNER),
        group=script.group,
        topics=frozenset({script.topic}),
        capacity=shown.capacity,
        unit=Unit.RECORDS_S,
    )
    return plan_group(request, live=shown.group, listener=BarListener(audience, lambda *_: None))


def _planned_keys(script: Script, found: MeasureResult, audience: Audience) -> PlannedKeys:
    request = KeyPlanRequest(
        counts=found.measurement, planner=planner_of(Layer.KEYS, PLANNER), topic=script.topic
    )
    planned = plan_hot_keys(request, listener=BarListener(audience, lambda *_: None))
    audience.say(about_hot_keys(planned.plan))
    return planned


def about_hot_keys(plan: KeyPlan) -> str:
    """What a plan for keys would change, as a sentence."""
    moves, before, after = plan.cost.moves, plan.before.imbalance, plan.after.imbalance
    if not moves:
        return f"No hot key has to move: the busiest partition has {before:.2f} times the mean."
    return (
        f"Moving {moves} hot key{'s' if moves > 1 else ''} to other partitions would lower the "
        f"busiest partition from {before:.2f} to {after:.2f} times the mean."
    )


def _looped(
    script: Script,
    environment: DemoEnvironment,
    loads: Mapping[TopicPartition, float],
    audience: Audience,
) -> Loop:
    from trimtab_lab.demo.spark.loop import keep_level
    from trimtab_lab.papers.live.kafka.live_site import LiveSite

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


def _facts(script: Script, environment: DemoEnvironment, shown: WatchedLoad) -> dict[str, str]:
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
