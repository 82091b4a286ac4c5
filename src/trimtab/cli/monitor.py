"""`trimtab monitor`: samples log sizes and offsets into the telemetry topic."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.options import (
    AsJson,
    RunFor,
    Verbose,
    duration_option,
    pattern_option,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, show
from trimtab.cli.signals import until_interrupted
from trimtab.observe.logging import configure
from trimtab.services.monitor import sample_cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitorOptions:
    """What to sample, how often, and for how long."""

    topic: Annotated[list[str] | None, topic_option("Sample this topic; may be repeated.")] = None
    pattern: Annotated[re.Pattern[str] | None, pattern_option("Sample")] = None
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="G",
            help="Read the committed offsets of this group; may be repeated. Default: all groups.",
        ),
    ] = None
    period: Annotated[
        float | None,
        duration_option(
            "--period",
            help="Time between two samples, a multiple of it while samples take longer. "
            "Default: the setting measure.period_s, 1s.",
        ),
    ] = None
    for_: RunFor = None
    metrics: MetricsOptions
    of: ClusterOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def monitor(options: MonitorOptions) -> None:
    """Sample log sizes and offsets into the telemetry topic until Ctrl-C."""
    from trimtab.measure.kafka.monitor import MonitorScope

    configure(verbose=options.verbose)
    settings = options.of.settings()
    options.metrics.serve()
    cluster = cluster_of(settings)
    with until_interrupted() as stop, TerminalProgress() as listener:
        report = sample_cluster(
            cluster,
            MonitorScope(
                topics=frozenset(options.topic or ()),
                pattern=options.pattern,
                groups=tuple(options.group) if options.group else None,
                own_prefix=cluster.topics.prefix,
            ),
            period_s=options.period or settings.measure.period_s,
            window_s=settings.measure.window_s,
            stop=stop,
            for_s=options.for_,
            listener=listener,
        )
    show(
        asdict(report),
        lambda: (
            f"{report.samples} samples, {report.skipped} skipped; "
            f"{report.published} records published, {report.failed} failed"
        ),
        as_json=options.as_json,
    )
