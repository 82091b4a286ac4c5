"""`trimtab measure`: the Spark pipeline, once over a span or continuously."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import Connection, admin_of, connection
from trimtab.cli.durations import seconds
from trimtab.cli.monitor import Watched, sampling
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output, Verbose, pattern_of
from trimtab.cli.output import progress_bar, result, result_json, say, write_file
from trimtab.cli.signals import until_interrupted
from trimtab.cli.spark import Conf, Master, PropertiesFile, spark_session
from trimtab.errors import ConfigError
from trimtab.measure.counters import parse_threshold
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps, hot_keys_to, measurement_to, offsets_from, rates_to
from trimtab.model.reading import parse, parse_file
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.evaluate.spark.live_outcomes import Watching
    from trimtab.measure.kafka.admin import Admin
    from trimtab.measure.kafka.publish import RecordPublisher
    from trimtab.measure.kafka.topics import OwnTopics
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.jobs import Found, Given, How
    from trimtab.measure.spark.live import KeyCounting
    from trimtab.measure.spark.session import Session
    from trimtab.measure.spark.spans import Asked, Target

MICROS = 1_000_000


def moment(text: str) -> int:
    """Reads an ISO time (UTC unless it says otherwise), or microseconds since 1970."""
    if text.isdigit():
        return int(text)
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no time such as 2026-01-31T12:00:00") from error
    return round((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * MICROS)


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
            "--since", metavar="DURATION", parser=seconds, help="The last, say, 10m. Default: 5m."
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
            "there are any.",
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
    metrics_port: Annotated[
        int | None,
        typer.Option("--metrics-port", metavar="PORT", help="Serve Prometheus metrics here."),
    ] = None,
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
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    if rates_from not in ("auto", "samples", "events"):
        raise ConfigError(f"--rates-from is auto, samples or events, not {rates_from}.")
    if epsilon is not None and not 0 < epsilon < 1:
        raise ConfigError(f"--epsilon lies between 0 and 1, not at {epsilon:g}.")
    if offsets is not None and (since or from_ or to or for_):
        raise ConfigError("--offsets names records, so it takes no span of time.")
    ask = _Ask(
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
    files = events is not None or samples is not None
    if continuous and (files or for_ or since or from_ or to or offsets):
        raise ConfigError("--continuous takes no span and no files: it begins now and goes on.")
    session = spark_session(
        settings,
        master=master,
        conf=conf,
        properties_file=properties_file,
        kafka=not files,
        verbose=verbose,
    )
    if continuous:
        _continuously(
            session,
            ask,
            monitor=monitor,
            outcomes=ask.judged(sla) if outcomes else None,
            metrics_port=metrics_port,
            as_json=as_json,
        )
        return
    how = ask.how()
    if files:
        from trimtab.measure.spark.session import spark_errors
        from trimtab.measure.spark.spans import from_files

        with spark_errors("reading files"):
            given = from_files(session, events=events, samples=samples, from_ts=from_, to_ts=to)
        _show(session, ask, given, how, output=output, as_json=as_json)
        return
    if for_ is not None:
        from_, to = _watch(ask, for_)
    span = _span(since, from_, to)
    asked = ask.asked(span, None if offsets is None else read_offsets(offsets))
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.session import spark_errors
    from trimtab.measure.spark.spans import from_kafka

    with admin_of(settings) as admin:
        with spark_errors("reading from Kafka"):
            given = from_kafka(session, admin, ask.target(), asked)
        found = _show(session, ask, given, how, output=output, as_json=as_json)
    if publish:
        exact = how.mode in (Mode.TWO_PASS, Mode.GROUP_BY)
        _publish(ask, found, epsilon=0.0 if exact else how.counting_epsilon)


class _Ask:
    """What the flags say, in the words of the doors."""

    def __init__(
        self,
        *,
        settings: Settings,
        topics: frozenset[str],
        pattern: re.Pattern[str] | None,
        groups: frozenset[str] | None,
        rates_from: str,
        window_s: float,
        keys: str,
        key_window_s: float | None,
        threshold: str,
        epsilon: float | None,
        warehouse: str,
        checkpoint: str,
    ) -> None:
        self.settings = settings
        self.topics, self.pattern, self.groups = topics, pattern, groups
        self.rates_from = rates_from
        self.window_s = window_s
        self.keys = keys
        self.key_window_s = key_window_s
        self.threshold = parse_threshold(threshold)
        self.epsilon = epsilon
        self.warehouse = warehouse
        self.checkpoint = checkpoint

    @property
    def watched(self) -> Watched:
        return Watched(
            topics=self.topics,
            pattern=self.pattern,
            groups=None if self.groups is None else tuple(sorted(self.groups)),
        )

    @property
    def connection(self) -> Connection:
        return connection(self.settings)

    def target(self) -> Target:
        from trimtab.measure.kafka.topics import OwnTopics
        from trimtab.measure.spark.spans import Target

        to = self.connection
        return Target(
            bootstrap_server=to.bootstrap_server,
            properties=to.properties,
            own=OwnTopics(self.settings.topic_prefix),
        )

    def asked(
        self,
        span: tuple[int, int],
        offsets: dict[TopicPartition, tuple[int, int]] | None = None,
    ) -> Asked:
        from trimtab.measure.spark.spans import Asked

        return Asked(
            topics=self.topics or frozenset(p.topic for p in offsets or ()),
            pattern=self.pattern,
            groups=self.groups,
            from_ts=span[0],
            to_ts=span[1],
            events=self.rates_from != "samples" or self.keys != "none",
            samples=self.rates_from != "events",
            min_span_s=self.settings.measure.min_span_s,
            offsets=offsets,
        )

    def judged(self, sla_s: float | None) -> Watching:
        from trimtab.evaluate.spark.live_outcomes import Watching

        return Watching(
            window_s=self.settings.measure.outcome_window_s, sla_s=sla_s, asked=self.asked((0, 0))
        )

    def how(self) -> How:
        from trimtab.measure.spark.hot_keys import Mode
        from trimtab.measure.spark.jobs import How

        return How(
            window_s=self.window_s,
            min_span_s=self.settings.measure.min_span_s,
            key_window_s=self.key_window_s,
            threshold=None if self.keys == "none" else self.threshold,
            mode=Mode.TWO_PASS if self.keys in ("auto", "none") else _mode(self.keys),
            epsilon=self.epsilon,
        )


def _mode(name: str) -> Mode:
    from trimtab.measure.spark.hot_keys import Mode

    try:
        return Mode(name)
    except ValueError as error:
        raise ConfigError(f"--keys is one of auto, none, {', '.join(Mode)}, not {name}.") from error


def _span(since: float | None, from_ts: int | None, to_ts: int | None) -> tuple[int, int]:
    from trimtab.measure.spark.live import now_ts

    if since is not None and from_ts is not None:
        raise ConfigError("Give --since or --from, not both.")
    end = to_ts if to_ts is not None else now_ts()
    start = from_ts if from_ts is not None else end - round((since or 300.0) * MICROS)
    if start >= end:
        raise ConfigError("The span ends before it begins.", hint="Look at --from and --to.")
    return start, end


def read_offsets(text: str) -> dict[TopicPartition, tuple[int, int]]:
    """Reads what --offsets says, in place or in a file."""
    looks_inline = text.lstrip().startswith("{")
    node = parse(text, origin="--offsets") if looks_inline else parse_file(Path(text))
    return offsets_from(node)


def _watch(ask: _Ask, for_s: float) -> tuple[int, int]:
    """Runs the monitor for a while, with a bar, and returns the span that it saw."""
    from trimtab.measure.kafka.monitor import in_background
    from trimtab.measure.spark.live import now_ts

    start, beat = now_ts(), threading.Event()
    with (
        sampling(ask.settings, ask.watched) as monitor,
        in_background(monitor),
        progress_bar() as bar,
    ):
        task = bar.add_task("watching the cluster (s)", total=round(for_s))
        while (passed := (now_ts() - start) / MICROS) < for_s:
            bar.update(task, completed=int(passed))
            beat.wait(min(0.5, for_s - passed))
    return start, now_ts()


def _show(
    session: Session, ask: _Ask, given: Given, how: How, *, output: Path | None, as_json: bool
) -> Found:
    from trimtab.measure.spark.jobs import measure as run
    from trimtab.measure.spark.session import watched
    from trimtab.measure.spark.tables import Warehouse
    from trimtab.report.measurement import measurement_view

    with progress_bar() as bar:
        task = bar.add_task("measuring (tasks)", total=None)
        with watched(session, lambda done, known: bar.update(task, completed=done, total=known)):
            found = run(given, how, Warehouse(ask.warehouse))
    value = measurement_to(found.measurement)
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    if found.measurement.rejects:
        say(f"{found.measurement.rejects} records were rejected; see {ask.warehouse}/rejects")
    if as_json:
        result_json(value)
    else:
        result(measurement_view(found.measurement, found.states, found.stored_ratio))
    return found


def _publish(ask: _Ask, all_found: Found, *, epsilon: float) -> None:
    from trimtab.measure.kafka.publish import open_publisher
    from trimtab.measure.kafka.topics import OwnTopics, ensure_topics

    own, to = OwnTopics(ask.settings.topic_prefix), ask.connection
    with admin_of(ask.settings) as admin:
        ensure_topics(admin, own)
    found = all_found.measurement
    start, end = found.from_ts, found.to_ts
    with open_publisher(to.bootstrap_server, to.properties) as publisher:
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
    ask: _Ask,
    *,
    monitor: bool,
    outcomes: Watching | None,
    metrics_port: int | None,
    as_json: bool,
) -> None:
    from trimtab.evaluate.spark.live_outcomes import outcomes_query
    from trimtab.measure.kafka.publish import open_publisher
    from trimtab.measure.kafka.topics import OwnTopics, ensure_topics
    from trimtab.measure.spark.continuous import Beat, Results, run_continuously
    from trimtab.measure.spark.live import now_ts
    from trimtab.measure.spark.tables import Warehouse
    from trimtab.observe import metrics

    if metrics_port is not None:
        metrics.serve(metrics_port)
    own, to = OwnTopics(ask.settings.topic_prefix), ask.connection
    with (
        until_interrupted() as stop,
        admin_of(ask.settings) as admin,
        open_publisher(to.bootstrap_server, to.properties) as publisher,
    ):
        ensure_topics(admin, own)
        if monitor and _somebody_samples(ask, admin, own):
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
                        ask.target(),
                        outcomes,
                        cluster=admin.cluster().cluster,
                        warehouse=results.warehouse,
                        checkpoint=results.checkpoint,
                    )
                )
            run_continuously(
                session,
                admin,
                ask.target(),
                ask.asked((0, now_ts())),
                beat=Beat(
                    window_s=ask.window_s,
                    min_span_s=ask.settings.measure.min_span_s,
                    trigger_s=ask.settings.measure.trigger_ms / 1000,
                ),
                keys=_key_counting(ask),
                results=results,
                stop=stop,
                more=more,
            )
    session.stop()
    if as_json:
        result_json({"v": 1, "published": publisher.published, "failed": publisher.failed})
    else:
        _tell(publisher)


def _key_counting(ask: _Ask) -> KeyCounting | None:
    from trimtab.measure.spark.hot_keys import Mode
    from trimtab.measure.spark.jobs import default_epsilon
    from trimtab.measure.spark.live import KeyCounting

    if ask.keys == "none":
        return None
    mode = Mode.LOSSY if ask.keys == "auto" else _mode(ask.keys)
    if mode not in (Mode.LOSSY, Mode.ITEMS):
        raise ConfigError(f"--continuous counts keys with lossy or items, not with {mode}.")
    return KeyCounting(
        window_s=ask.key_window_s or ask.settings.keys.window_s,
        threshold=ask.threshold,
        epsilon=ask.epsilon or default_epsilon(ask.threshold),
        mode=mode,
    )


def _somebody_samples(ask: _Ask, admin: Admin, own: OwnTopics) -> bool:
    """Whether telemetry is being written right now: two monitors would disturb each other."""
    from trimtab.measure.kafka.spans import offsets_between
    from trimtab.measure.spark.live import now_ts

    to, now = ask.connection, now_ts()
    recent = now - round(3 * ask.settings.measure.period_s * MICROS)
    names = [p.name for p in admin.topics([own.telemetry]) if not p.offline]
    found = offsets_between(to.bootstrap_server, to.properties, names, from_ts=recent, to_ts=now)
    return any(found.ends[p] > start for p, start in found.starts.items())


@contextmanager
def _sampling_meanwhile(ask: _Ask, *, wanted: bool) -> Iterator[None]:
    from trimtab.measure.kafka.monitor import in_background

    if not wanted:
        yield
        return
    with sampling(ask.settings, ask.watched) as monitor, in_background(monitor):
        yield
