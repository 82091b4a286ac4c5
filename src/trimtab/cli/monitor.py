"""`trimtab monitor`: samples log sizes and offsets into the telemetry topic."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import cluster_of
from trimtab.cli.durations import seconds
from trimtab.cli.metrics_options import METRICS_HOST, MetricsHost, MetricsPort, serve_metrics
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Verbose, pattern_of
from trimtab.cli.output import result, result_json, say, warn
from trimtab.cli.signals import until_interrupted
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.measure.kafka.monitor import Monitor


def monitor(
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="Sample this topic; may be repeated."),
    ] = None,
    pattern: Annotated[
        re.Pattern[str] | None,
        typer.Option(
            "--pattern",
            metavar="REGEX",
            parser=pattern_of,
            help="Sample the topics whose whole name matches. Without --topic and --pattern: all "
            "but Kafka's own and Trimtab's.",
        ),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="G",
            help="Read the committed offsets of this group; may be repeated. Default: all groups.",
        ),
    ] = None,
    period: Annotated[
        float | None,
        typer.Option(
            "--period",
            metavar="DURATION",
            parser=seconds,
            help="Time between two samples. Default: the setting measure.period_s, 1s.",
        ),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for",
            metavar="DURATION",
            parser=seconds,
            help="Stop after, say, 30s. Default: never.",
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Sample log sizes and offsets into the telemetry topic until Ctrl-C."""
    configure(verbose=verbose)
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    serve_metrics(metrics_port, metrics_host)
    what = Watched(
        topics=frozenset(topic or ()), pattern=pattern, groups=tuple(group) if group else None
    )
    with until_interrupted() as stop, sampling(settings, what, period_s=period) as running:
        say("Sampling; Ctrl-C ends it.")
        report = running.run(stop, for_s=for_)
    if as_json:
        result_json(asdict(report))
    else:
        result(
            f"{report.samples} samples, {report.skipped} skipped; "
            f"{report.published} records published, {report.failed} failed"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """Topics and groups to be sampled, as the flags name them."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    groups: tuple[str, ...] | None = None


@contextmanager
def sampling(
    settings: Settings, what: Watched, *, period_s: float | None = None
) -> Iterator[Monitor]:
    """A monitor of the cluster that the settings name; our topics are made where they lack."""
    from trimtab.kafka.topics import ensure_topics
    from trimtab.measure.kafka.monitor import Interest, open_monitor

    cluster = cluster_of(settings)
    with cluster.admin() as admin:
        ensure_topics(admin, cluster.topics)
        there = {p.topic for p in admin.topics(what.topics)} if what.topics else set()
    warn(f"there is no topic {name} yet" for name in sorted(what.topics - there))
    interest = Interest(
        topics=what.topics,
        pattern=what.pattern,
        groups=what.groups,
        own_prefix=cluster.topics.prefix,
    )
    with open_monitor(
        cluster,
        interest=interest,
        period_s=period_s or settings.measure.period_s,
    ) as opened:
        yield opened
