"""`trimtab measure`: the Spark pipeline, once over a span or continuously."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.connection import admin_of
from trimtab.cli.durations import seconds
from trimtab.cli.measuring import MICROS, Ask, mode_of, moment, read_offsets, span_of
from trimtab.cli.metrics_options import METRICS_HOST, MetricsHost, MetricsPort, serve_metrics
from trimtab.cli.numbers import positive
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output, Verbose, pattern_of
from trimtab.cli.output import progress_bar, result, result_json, say, warn, write_file
from trimtab.cli.signals import until_interrupted
from trimtab.cli.spark import Conf, Master, PropertiesFile, check_master, spark_session
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps, hot_keys_to, measurement_to, rates_to
from trimtab.observe.logging import configure
from trimtab.services.monitor import open_sampling
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.evaluate.spark.live_outcomes import Watching
    from trimtab.kafka.admin import Admin
    from trimtab.kafka.cluster import Cluster
    from trimtab.kafka.publisher import RecordPublisher
    from trimtab.measure.spark.jobs import Found, Given, How
    from trimtab.measure.spark.live import KeyCounting
    from trimtab.spark.session import Session

_MOST_NOTES = 10


def measure(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="Measure this topic; may be repeated."),
    ] = None,
    pattern: Annotated[
        re.Pattern[str] | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            parser=pattern_of,
            help="Measure the topics whose whole name matches. Without --topic and --pattern: all "
            "but Kafka's own and Trimtab's.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", metavar="G", help="Lag of this group; repeatable. Default: all."),
    ] = None,
    since: Annotated[
        float | None,
        typer.Option(
            "--since",
            metavar="DURATION",
            parser=seconds,
            help="The last, say, 10m before the command was given. Default: 5m.",
        ),
    ] = None,
    from_: Annotated[
        int | None,
        typer.Option(
            "--from", metavar="TIME", parser=moment, help="Begin here: ISO time, or microseconds."
        ),
    ] = None,
    to: Annotated[
        int | None,
        typer.Option("--to", metavar="TIME", parser=moment, help="End here. Default: now."),
    ] = None,
    offsets: Annotated[
        str | None,
        typer.Option(
            "--offsets",
            metavar="JSON|FILE",
            help='Count just these records: {"topic":{"0":[first,next]}}, or a file with that.',
        ),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            parser=seconds,
            help="Watch the cluster for so long, from now on, and measure that.",
        ),
    ] = None,
    events: Annotated[
        Path | None,
        typer.Option("--events", metavar="PATH", help="Events in Parquet or JSON, not Kafka."),
    ] = None,
    samples: Annotated[
        Path | None,
        typer.Option("--samples", metavar="PATH", help="Samples in Parquet or JSON, not Kafka."),
    ] = None,
    rates_from: Annotated[
        str,
        typer.Option(
            "--rates-from",
            metavar="auto|samples|events",
            help="Log sizes sampled by the monitor, or the records themselves. auto: samples where "
            "they cover the span.",
        ),
    ] = "auto",
    window: Annotated[
        float | None,
        typer.Option(
            "--window", metavar="DURATION", parser=seconds, help="Window of rates. Default: 30s."
        ),
    ] = None,
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            metavar="MODE",
            help="How heavy keys are found: two-pass and group-by are exact, lossy and items keep "
            "memory bounded, none leaves them out. --continuous takes lossy or items.",
        ),
    ] = "auto",
    key_window: Annotated[
        float | None,
        typer.Option(
            "--key-window",
            metavar="DURATION",
            parser=seconds,
            help="Window of heavy keys. Default: the whole span; 10s with --continuous.",
        ),
    ] = None,
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="FORM",
            help="Heavy is count:N records, share:F of the window, or coverage:F of it.",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="F",
            callback=positive,
            help="Error bound of lossy and items, a share of the window, between 0 and 1.",
        ),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Go on until Ctrl-C, and publish to our topics.")
    ] = False,
    monitor: Annotated[
        bool,
        typer.Option("--monitor/--no-monitor", help="With --continuous: also sample the cluster."),
    ] = True,
    sla: Annotated[
        float | None,
        typer.Option(
            "--sla",
            metavar="DURATION",
            parser=seconds,
            help="With --continuous: also say which share of the receipts was in time.",
        ),
    ] = None,
    outcomes: Annotated[
        bool,
        typer.Option(
            "--outcomes/--no-outcomes",
            help="With --continuous: judge the receipts of consumers, window by window.",
        ),
    ] = True,
    publish: Annotated[
        bool, typer.Option("--publish", help="Also publish a single measurement to our topics.")
    ] = False,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    warehouse: Annotated[
        str | None,
        typer.Option("--warehouse", metavar="PATH", help="Folder of the Parquet tables."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option("--checkpoint", metavar="PATH", help="Folder of the queries' progress."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    properties_file: PropertiesFile = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Measure where the load is: rates, heavy keys and lag, per partition.

    Reads the records and the monitor's telemetry from Kafka, or tables from files, and keeps the
    results as Parquet tables. The JSON of one measurement is what `trimtab plan` takes.
    """
    now = time.time_ns() // 1000
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    if rates_from not in ("auto", "samples", "events"):
        raise ConfigError(f"--rates-from is auto, samples or events, not {rates_from}.")
    if epsilon is not None and not 0 < epsilon < 1:
        raise ConfigError(f"--epsilon lies between 0 and 1, not at {epsilon:g}.")
    files = events is not None or samples is not None
    _check_span_options(
        since=since is not None,
        between=from_ is not None or to is not None,
        offsets=offsets is not None,
        for_=for_ is not None,
        continuous=continuous,
        files=files,
        narrowed=bool(topic or pattern or group),
        output=output is not None,
        publish=publish,
    )
    ask = Ask(
        settings=settings,
        topics=frozenset(topic or ()),
        pattern=pattern,
        groups=frozenset(group) if group else None,
        rates_from=rates_from,
        window_s=window or settings.measure.window_s,
        keys=keys,
        key_window_s=key_window,
        threshold=threshold or settings.keys.threshold,
        epsilon=epsilon or settings.keys.epsilon,
        warehouse=warehouse or str(settings.warehouse),
        checkpoint=checkpoint or str(settings.checkpoints),
    )
    serve_metrics(metrics_port, metrics_host)
    on: dict[str, Any] = {"master": master, "conf": conf, "properties_file": properties_file}
    check_master(settings, **on)
    begin = partial(spark_session, settings, **on, kafka=not files, verbose=verbose)
    if continuous:
        counting = _key_counting(ask)
        with admin_of(settings) as admin:
            _tell_missing(ask, admin)
        _continuously(
            begin(),
            ask,
            counting,
            monitor=monitor,
            outcomes=ask.judged(sla) if outcomes else None,
            as_json=as_json,
        )
        return
    how = ask.how()
    from trimtab.spark.session import spark_errors

    if files:
        from trimtab.measure.spark.spans import from_files
        from trimtab.spark.sources import is_json

        for path in filter(None, (events, samples)):
            is_json(path)  # refuses what cannot be read, before Spark is started
        session = begin()
        with spark_errors("reading files"):
            given = from_files(session, events=events, samples=samples, from_ts=from_, to_ts=to)
        _show(session, ask, given, how, output=output, as_json=as_json)
        return
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.jobs import check_span
    from trimtab.measure.spark.spans import check_topics, ends_now, from_kafka

    # Whatever can be refused is refused before Spark is started, which takes long.
    named = None if offsets is None else read_offsets(offsets)
    span = span_of(since, from_, to, now=now)
    if named is None:
        check_span((span[1] - span[0]) / MICROS if for_ is None else for_, how)
    with admin_of(settings) as admin:
        earlier = ends_now(admin, check_topics(admin, ask.cluster, ask.asked(span, named)))
        if for_ is not None:
            span = _watch(ask, for_)
        session = begin()
        with spark_errors("reading from Kafka"):
            given = from_kafka(session, admin, ask.cluster, ask.asked(span, named), earlier=earlier)
        found = _show(session, ask, given, how, output=output, as_json=as_json)
    if publish:
        exact = how.mode in (Mode.TWO_PASS, Mode.GROUP_BY)
        _publish(ask, found, epsilon=0.0 if exact else how.counting_epsilon)


def _check_span_options(
    *,
    since: bool,
    between: bool,
    offsets: bool,
    for_: bool,
    continuous: bool,
    files: bool,
    narrowed: bool,
    output: bool,
    publish: bool,
) -> None:
    """Refuses options that contradict each other: none of them may be left unheard."""
    if continuous and (files or for_ or since or between or offsets):
        raise ConfigError("--continuous takes no span and no files: it begins now and goes on.")
    if continuous and output:
        raise ConfigError(
            "--continuous writes no file: it has no end.",
            hint="Its rates are in the topic and the table; -o goes with --for or --since.",
        )
    if files and publish:
        raise ConfigError("--publish is for what was measured of Kafka, not of files.")
    if offsets and (since or between or for_):
        raise ConfigError("--offsets names records, so it takes no span of time.")
    if for_ and (since or between):
        raise ConfigError("--for begins now, so it takes no --since, --from or --to.")
    if files and (since or for_ or offsets or narrowed):
        raise ConfigError(
            "--events and --samples are measured whole, or from --from to --to.",
            hint="Leave out --since, --for, --offsets, --topic, --pattern and --group.",
        )


def _tell_missing(ask: Ask, admin: Admin) -> None:
    """Names topics that do not exist yet; one that is measured for ever may come later."""
    there = {p.topic for p in admin.topics(ask.topics)} if ask.topics else set()
    warn(f"there is no topic {topic} yet" for topic in sorted(ask.topics - there))


def _watch(ask: Ask, for_s: float) -> tuple[int, int]:
    """Runs the monitor for a while, with a bar, and returns the span that it saw."""
    from trimtab.measure.kafka.monitor import in_background
    from trimtab.measure.spark.live import now_ts

    start, beat = now_ts(), threading.Event()
    with (
        open_sampling(ask.cluster, ask.interest, period_s=ask.settings.measure.period_s) as monitor,
        in_background(monitor),
        progress_bar() as bar,
    ):
        task = bar.add_task("watching the cluster (s)", total=round(for_s))
        while (passed := (now_ts() - start) / MICROS) < for_s:
            bar.update(task, completed=int(passed))
            beat.wait(min(0.5, for_s - passed))
    return start, now_ts()


def _show(
    session: Session, ask: Ask, given: Given, how: How, *, output: Path | None, as_json: bool
) -> Found:
    from trimtab.measure.spark.jobs import measure as run
    from trimtab.report.measurement import measurement_view
    from trimtab.spark.session import watched
    from trimtab.spark.warehouse import Warehouse

    with progress_bar() as bar:
        task = bar.add_task("measuring (tasks)", total=None)
        with watched(session, lambda done, known: bar.update(task, completed=done, total=known)):
            found = run(given, how, Warehouse(ask.warehouse))
    value = measurement_to(found.measurement)
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    warn(_some(found.notes))
    if found.measurement.rejects:
        say(f"{found.measurement.rejects} records were rejected; see {ask.warehouse}/rejects")
    if as_json:
        result_json(value)
    else:
        result(measurement_view(found.measurement, found.states, found.stored_ratio))
    return found


def _some(notes: Sequence[str]) -> Iterator[str]:
    """The first few notes; a cluster may have thousands of topics."""
    yield from notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        yield f"… and {len(notes) - _MOST_NOTES} more topics or partitions like these"


def _publish(ask: Ask, all_found: Found, *, epsilon: float) -> None:
    from trimtab.kafka.publisher import open_publisher
    from trimtab.kafka.topics import ensure_topics

    cluster = ask.cluster
    own = cluster.topics
    with cluster.admin() as admin:
        ensure_topics(admin, own)
    found = all_found.measurement
    start, end = found.from_ts, found.to_ts
    with open_publisher(cluster) as publisher:
        for topic in sorted({p.topic for p in found.partitions}):
            mine = [p for p in found.partitions if p.topic == topic]
            rates = rates_to(topic, mine, ts=end, window_start=start, window_end=end)
            publisher.publish(own.rates, topic.encode(), dumps(rates).encode())
            keys = [k for k in found.keys if k.topic == topic]
            if keys:
                n = round(keys[0].lower / keys[0].share)
                first, last = all_found.key_span or (start, end)
                value = hot_keys_to(
                    topic, keys, window_start=first, window_end=last, n=n, epsilon=epsilon
                )
                publisher.publish(own.hotkeys, topic.encode(), dumps(value).encode())
    _tell(publisher)


def _tell(publisher: RecordPublisher) -> None:
    say(
        f"published {publisher.published} records"
        + (f", {publisher.failed} were not acknowledged" if publisher.failed else "")
    )


def _continuously(
    session: Session,
    ask: Ask,
    counting: KeyCounting | None,
    *,
    monitor: bool,
    outcomes: Watching | None,
    as_json: bool,
) -> None:
    from trimtab.evaluate.spark.live_outcomes import outcomes_query
    from trimtab.kafka.publisher import open_publisher
    from trimtab.kafka.topics import ensure_topics
    from trimtab.measure.spark.continuous import Beat, Results, run_continuously
    from trimtab.measure.spark.live import now_ts
    from trimtab.spark.warehouse import Warehouse

    cluster = ask.cluster
    with (
        until_interrupted() as stop,
        cluster.admin() as admin,
        open_publisher(cluster) as publisher,
    ):
        ensure_topics(admin, cluster.topics)
        if monitor and _somebody_samples(cluster, admin, ask.settings.measure.period_s):
            say("another monitor samples this cluster already; ours stays out of its way")
            monitor = False
        with _sampling_meanwhile(ask, wanted=monitor):
            say("measuring; stop with Ctrl-C")
            results = Results(
                outlet=publisher,
                warehouse=Warehouse(ask.warehouse),
                checkpoint=ask.checkpoint,
            )
            more = []
            if outcomes is not None:
                more.append(
                    outcomes_query(
                        session,
                        ask.cluster,
                        outcomes,
                        cluster_id=admin.cluster().cluster,
                        warehouse=results.warehouse,
                        checkpoint=results.checkpoint,
                    )
                )
            run_continuously(
                session,
                admin,
                ask.cluster,
                ask.asked((0, now_ts())),
                beat=Beat(
                    window_s=ask.window_s,
                    min_span_s=ask.settings.measure.min_span_s,
                    trigger_s=ask.settings.measure.trigger_ms / 1000,
                ),
                keys=counting,
                results=results,
                stop=stop,
                more=more,
            )
    session.stop()
    if as_json:
        result_json({"v": 1, "published": publisher.published, "failed": publisher.failed})
    else:
        _tell(publisher)


def _key_counting(ask: Ask) -> KeyCounting | None:
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.jobs import default_epsilon
    from trimtab.measure.spark.live import KeyCounting

    if ask.keys == "none":
        return None
    mode = Mode.LOSSY if ask.keys == "auto" else mode_of(ask.keys)
    if mode not in (Mode.LOSSY, Mode.ITEMS):
        raise ConfigError(f"--continuous counts keys with lossy or items, not with {mode}.")
    return KeyCounting(
        window_s=ask.key_window_s or ask.settings.keys.window_s,
        threshold=ask.threshold,
        epsilon=ask.epsilon or default_epsilon(ask.threshold),
        mode=mode,
    )


def _somebody_samples(cluster: Cluster, admin: Admin, period_s: float) -> bool:
    """Whether telemetry is being written right now: two monitors would disturb each other."""
    from trimtab.kafka.spans import offsets_between
    from trimtab.measure.spark.live import now_ts

    now = now_ts()
    recent = now - round(3 * period_s * MICROS)
    names = [p.name for p in admin.topics([cluster.topics.telemetry]) if not p.offline]
    found = offsets_between(cluster, names, from_ts=recent, to_ts=now)
    return any(found.ends[p] > start for p, start in found.starts.items())


@contextmanager
def _sampling_meanwhile(ask: Ask, *, wanted: bool) -> Iterator[None]:
    from trimtab.measure.kafka.monitor import in_background

    if not wanted:
        yield
        return
    with (
        open_sampling(ask.cluster, ask.interest, period_s=ask.settings.measure.period_s) as monitor,
        in_background(monitor),
    ):
        yield
