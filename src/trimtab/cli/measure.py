"""`trimtab measure`: the Spark pipeline, once over a span or continuously."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.numbers import positive
from trimtab.cli.options import (
    AsJson,
    Output,
    Verbose,
    WarehouseFolder,
    duration_option,
    pattern_option,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, say, warn, write_file
from trimtab.cli.signals import until_interrupted
from trimtab.cli.spark import SessionOptions
from trimtab.cli.time_options import (
    FromTime,
    ToTime,
    offsets_option,
    read_offsets,
    since_option,
    span_of,
)
from trimtab.errors import ConfigError
from trimtab.measure.counters import parse_threshold
from trimtab.model.codec import dumps, measurement_to
from trimtab.observe.clock import wall_clock_us
from trimtab.observe.logging import configure
from trimtab.services.measure import (
    ContinuousOptions,
    MeasuredFiles,
    MeasuredSpan,
    MeasureRequest,
    PublishedRecords,
    measure_continuously,
    measure_files,
    measure_span,
    publish_measurement,
)
from trimtab.settings import Settings

if TYPE_CHECKING:
    from trimtab.measure.spark.measure_result import MeasureResult
    from trimtab.spark.session import Session

_MOST_NOTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureOptions:
    """What to measure, how, and where to write the results."""

    topic: Annotated[list[str] | None, topic_option("Measure this topic; may be repeated.")] = None
    pattern: Annotated[re.Pattern[str] | None, pattern_option("Measure")] = None
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="G", help="Measure the lag of this group; repeatable. Default: all."
        ),
    ] = None
    since: Annotated[float | None, since_option("5m")] = None
    from_: FromTime = None
    to: ToTime = None
    offsets: Annotated[str | None, offsets_option("Count just these records")] = None
    for_: Annotated[
        float | None,
        duration_option(
            "--for",
            help="Sample the cluster for this long from now on, then measure that span.",
        ),
    ] = None
    events: Annotated[
        Path | None,
        typer.Option(
            "--events", metavar="PATH", help="Read events from Parquet or JSON, not from Kafka."
        ),
    ] = None
    samples: Annotated[
        Path | None,
        typer.Option(
            "--samples", metavar="PATH", help="Read samples from Parquet or JSON, not from Kafka."
        ),
    ] = None
    rates_from: Annotated[
        str,
        typer.Option(
            "--rates-from",
            metavar="auto|samples|events",
            help="Compute rates from log sizes sampled by the monitor, or from the records. auto: "
            "from samples if they cover the span.",
        ),
    ] = "auto"
    window: Annotated[
        float | None,
        duration_option("--window", help="Window of rates. Default: 30s."),
    ] = None
    keys: Annotated[
        str,
        typer.Option(
            "--keys",
            metavar="MODE",
            help="How to find heavy keys: two-pass and group-by are exact, lossy and items use "
            "bounded memory, none skips them. --continuous takes lossy or items.",
        ),
    ] = "auto"
    key_window: Annotated[
        float | None,
        duration_option(
            "--key-window",
            help="Window of heavy keys. Default: the whole span; 10s with --continuous.",
        ),
    ] = None
    threshold: Annotated[
        str | None,
        typer.Option(
            "--threshold",
            metavar="FORM",
            help="Heavy keys have count:N records, share:F of the window, or coverage:F of it.",
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            metavar="F",
            callback=positive,
            help="Error bound of lossy and items, as a share of the window, between 0 and 1.",
        ),
    ] = None
    continuous: Annotated[
        bool,
        typer.Option("--continuous", help="Run until Ctrl-C, and publish to Trimtab's topics."),
    ] = False
    monitor: Annotated[
        bool,
        typer.Option("--monitor/--no-monitor", help="With --continuous: also sample the cluster."),
    ] = True
    sla: Annotated[
        float | None,
        duration_option(
            "--sla",
            help="With --continuous: also report the share of records processed within this time.",
        ),
    ] = None
    outcomes: Annotated[
        bool,
        typer.Option(
            "--outcomes/--no-outcomes",
            help="With --continuous: also compute outcomes from consumers' receipts, per window.",
        ),
    ] = True
    publish: Annotated[
        bool,
        typer.Option("--publish", help="Also publish a single measurement to Trimtab's topics."),
    ] = False
    metrics: MetricsOptions
    warehouse: WarehouseFolder = None
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint", metavar="PATH", help="Checkpoint folder of the streaming queries."
        ),
    ] = None
    spark: SessionOptions
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False

    @property
    def of_files(self) -> bool:
        """Whether files are measured instead of a cluster."""
        return self.events is not None or self.samples is not None

    @property
    def of_interval(self) -> bool:
        """Whether the span is given by --from or --to."""
        return self.from_ is not None or self.to is not None


@with_options
def measure(options: MeasureOptions) -> None:
    """Measure the load: rates, heavy keys and lag, per partition.

    Reads the records and the monitor's telemetry from Kafka, or tables from files, and stores the
    results as Parquet tables. `trimtab plan` reads the JSON of a measurement.
    """
    now = wall_clock_us()
    configure(verbose=options.verbose)
    settings = options.of.settings()
    _check(options)
    request = _request(options, settings)
    options.metrics.serve()
    options.spark.check(settings)
    with TerminalProgress() as listener:

        def start_spark() -> Session:
            listener.stop()  # starting Spark shows its own progress bar
            kafka = not options.of_files
            return options.spark.start(settings, kafka=kafka, verbose=options.verbose)

        if options.continuous:
            _continuously(options, settings, request, start_spark, listener)
        elif options.of_files:
            _files(options, request, start_spark, listener)
        else:
            _span(options, settings, request, start_spark, listener, now=now)


def _request(options: MeasureOptions, settings: Settings) -> MeasureRequest:
    return MeasureRequest(
        topics=frozenset(options.topic or ()),
        pattern=options.pattern,
        groups=frozenset(options.group) if options.group else None,
        rates_from=options.rates_from,
        window_s=options.window or settings.measure.window_s,
        keys=options.keys,
        key_window_s=options.key_window,
        live_key_window_s=settings.keys.window_s,
        threshold=parse_threshold(options.threshold or settings.keys.threshold),
        epsilon=options.epsilon or settings.keys.epsilon,
        warehouse=options.warehouse or str(settings.warehouse),
        settings=settings.measure,
    )


def _continuously(
    options: MeasureOptions,
    settings: Settings,
    request: MeasureRequest,
    start_spark: Callable[[], Session],
    listener: TerminalProgress,
) -> None:
    published = measure_continuously(
        cluster_of(settings),
        request,
        ContinuousOptions(
            checkpoint=options.checkpoint or str(settings.checkpoints),
            monitor=options.monitor,
            outcomes=options.outcomes,
            sla_s=options.sla,
        ),
        start_spark=start_spark,
        until_stopped=until_interrupted(),
        listener=listener,
    )
    if options.as_json:
        result_json({"v": 1, **asdict(published)})
    else:
        _report_published(published)


def _files(
    options: MeasureOptions,
    request: MeasureRequest,
    start_spark: Callable[[], Session],
    listener: TerminalProgress,
) -> None:
    files = MeasuredFiles(
        events=options.events, samples=options.samples, from_ts=options.from_, to_ts=options.to
    )
    found = measure_files(request, files, start_spark=start_spark, listener=listener)
    listener.stop()
    _show(found, options, request)


def _span(
    options: MeasureOptions,
    settings: Settings,
    request: MeasureRequest,
    start_spark: Callable[[], Session],
    listener: TerminalProgress,
    *,
    now: int,
) -> None:
    offsets = None if options.offsets is None else read_offsets(options.offsets)
    start, end = span_of(options.since, options.from_, options.to, now=now)
    span = MeasuredSpan(from_ts=start, to_ts=end, for_s=options.for_, offsets=offsets)
    cluster = cluster_of(settings)
    found = measure_span(cluster, request, span, start_spark=start_spark, listener=listener)
    listener.stop()
    _show(found, options, request)
    if options.publish:
        _report_published(publish_measurement(cluster, request, found))


def _check(options: MeasureOptions) -> None:
    """Rejects options that contradict each other; no option is silently ignored."""
    if options.rates_from not in ("auto", "samples", "events"):
        raise ConfigError(f"--rates-from takes auto, samples or events, not {options.rates_from}.")
    if options.epsilon is not None and not 0 < options.epsilon < 1:
        raise ConfigError(f"--epsilon must be between 0 and 1, not {options.epsilon:g}.")
    since, between = options.since is not None, options.of_interval
    offsets, for_ = options.offsets is not None, options.for_ is not None
    if options.continuous and (options.of_files or for_ or since or between or offsets):
        raise ConfigError(
            "--continuous takes no span and no files: it starts now and does not end."
        )
    if options.continuous and options.output is not None:
        raise ConfigError(
            "--continuous cannot be combined with -o: it does not end.",
            hint="Read its rates from the topic or the table, or use --for or --since instead.",
        )
    if options.of_files and options.publish:
        raise ConfigError("--publish cannot be combined with --events or --samples.")
    if offsets and (since or between or for_):
        raise ConfigError("--offsets cannot be combined with --since, --from, --to or --for.")
    if for_ and (since or between):
        raise ConfigError("--for starts now: it cannot be combined with --since, --from or --to.")
    narrowed = bool(options.topic or options.pattern or options.group)
    if options.of_files and (since or for_ or offsets or narrowed):
        raise ConfigError(
            "--events and --samples can be narrowed only with --from and --to.",
            hint="Leave out --since, --for, --offsets, --topic, --pattern and --group.",
        )


def _show(found: MeasureResult, options: MeasureOptions, request: MeasureRequest) -> None:
    from trimtab.report.measurement import measurement_view

    value = measurement_to(found.measurement)
    if options.output is not None:
        write_file(options.output, dumps(value, indent=1) + "\n")
    warn(_some(found.notes))
    if found.measurement.rejects:
        say(f"{found.measurement.rejects} records were rejected; see {request.warehouse}/rejects")
    if options.as_json:
        result_json(value)
    else:
        result(measurement_view(found.measurement, found.states, found.stored_ratio))


def _some(notes: Sequence[str]) -> Iterator[str]:
    """The first few notes; a cluster may have thousands of topics."""
    yield from notes[:_MOST_NOTES]
    if len(notes) > _MOST_NOTES:
        yield f"… and {len(notes) - _MOST_NOTES} more topics or partitions like these"


def _report_published(done: PublishedRecords) -> None:
    say(
        f"published {done.published} records"
        + (f", {done.failed} were not acknowledged" if done.failed else "")
    )
