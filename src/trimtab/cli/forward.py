"""`trimtab forward`: the halfway collector."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import cluster_of
from trimtab.cli.durations import seconds
from trimtab.cli.metrics_options import METRICS_HOST, MetricsHost, MetricsPort, serve_metrics
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Verbose
from trimtab.cli.output import result, result_json, say
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import Json, by_partition
from trimtab.observe.logging import configure
from trimtab.plan.records.partitioner import Granularity, RoutingOptions
from trimtab.plan.records.registry import partitioner_of
from trimtab.report.columns import new_table
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.apply.records.kafka.forwarder import ForwardReport, Survey


def forward(
    from_topic: Annotated[
        list[str],
        typer.Option("--from-topic", metavar="T", help="A topic to read; may be repeated."),
    ],
    group: Annotated[
        str, typer.Option("--group", metavar="G", help="The consumer group that keeps offsets.")
    ],
    to_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--to-topic",
            metavar="T",
            help="Where its records go: one for all, or one for each --from-topic, in order. "
            "Default: the same name, on another cluster.",
        ),
    ] = None,
    to_bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--to-bootstrap-server",
            metavar="HOST:PORT,…",
            help="The cluster to write to. Default: the one that is read.",
        ),
    ] = None,
    to_command_config: Annotated[
        Path | None,
        typer.Option(
            "--to-command-config",
            metavar="FILE",
            help="Kafka client properties for it. Default: none on another cluster.",
        ),
    ] = None,
    partitioner: Annotated[
        str,
        typer.Option(
            "--partitioner", metavar="NAME", help="Who chooses for records without a key."
        ),
    ] = "sqf",
    granularity: Annotated[
        Granularity, typer.Option("--granularity", help="Whether it chooses per record or batch.")
    ] = Granularity.PER_RECORD,
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Forward. Without it, what would be done is shown."),
    ] = False,
    from_latest: Annotated[
        bool,
        typer.Option(
            "--from-latest", help="Begin at the end of partitions that the group never committed."
        ),
    ] = False,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at what the topics hold when it starts.")
    ] = False,
    records: Annotated[
        int | None,
        typer.Option("--records", metavar="N", min=1, help="Stop after so many records."),
    ] = None,
    for_: Annotated[
        float | None,
        typer.Option(
            "--for", metavar="DURATION", parser=seconds, help="End after so long. Default: never."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = METRICS_HOST,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Send the records of topics on, with one partitioner for all of them, at least once.

    Keys, headers, timestamps and the order of each key are kept.
    """
    configure(verbose=verbose)
    routing = RoutingOptions(granularity=granularity)
    partitioner_of(partitioner, routing)  # an unknown one is refused before anything else
    topics = paired(from_topic, to_topic or ())
    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    source = cluster_of(settings)
    target = _target(source, to_bootstrap_server, to_command_config)
    serve_metrics(metrics_port, metrics_host)
    from trimtab.apply.records.kafka.forwarder import Route, open_forwarder, survey

    route = Route(
        topics=topics,
        group=group,
        partitioner=partitioner,
        options=routing,
        from_latest=from_latest,
        until_end=until_end,
        records=records,
    )
    with source.admin() as here, target.admin() as there:
        surveyed = survey(route, here, there)
    if not execute:
        _show_plan(surveyed, as_json=as_json)
        say("Nothing was forwarded: that needs --execute.")
        return
    with (
        until_interrupted() as stop,
        _ending(stop, for_),
        open_forwarder(
            surveyed,
            source,
            target,
        ) as forwarder,
    ):
        say(f"Forwarding as group {group}; Ctrl-C ends it when all is acknowledged.")
        try:
            report = forwarder.run(stop)
        except BaseException:
            _show(forwarder.report, as_json=as_json)
            raise
    _show(report, as_json=as_json)


def paired(read: Sequence[str], write: Sequence[str]) -> dict[str, str]:
    """The target of each source topic.

    >>> paired(["a", "b"], ["x", "y"]), paired(["a", "b"], ["x"]), paired(["a"], [])
    ({'a': 'x', 'b': 'y'}, {'a': 'x', 'b': 'x'}, {'a': 'a'})
    """
    if len(set(read)) != len(read):
        raise ConfigError("A --from-topic stands twice.")
    targets = list(write) or list(read)
    if len(targets) == 1:
        targets = targets * len(read)
    if len(targets) != len(read):
        raise ConfigError(
            f"{len(read)} topics are read, and {len(targets)} are named to write to.",
            hint="Give one --to-topic for all, or one for each --from-topic, in order.",
        )
    return dict(zip(read, targets, strict=True))


def _target(source: Cluster, server: str | None, config: Path | None) -> Cluster:
    from trimtab.cli.connection import properties_of

    if server is None and config is None:
        return source
    if server is None:
        raise ConfigError(
            "--to-command-config stands without a cluster to write to.",
            hint="Give --to-bootstrap-server, too.",
        )
    return Cluster(server, properties_of(config), source.topics)


@contextmanager
def _ending(stop: threading.Event, after_s: float | None) -> Iterator[None]:
    with ExitStack() as undo:
        if after_s is not None:
            timer = threading.Timer(after_s, stop.set)
            timer.daemon = True
            timer.start()
            undo.callback(timer.cancel)
        yield


def _show_plan(surveyed: Survey, *, as_json: bool) -> None:
    route = surveyed.route
    if as_json:
        result_json(
            {
                "group": route.group,
                "partitioner": route.partitioner,
                "granularity": str(route.options.granularity),
                "topics": [
                    {
                        "from": read,
                        "partitions": surveyed.sources[read],
                        "to": write,
                        "leaders": {
                            str(p): leader
                            for p, leader in surveyed.targets.topic(write).leader.items()
                        },
                    }
                    for read, write in route.topics.items()
                ],
            }
        )
        return
    table = new_table("from", "partitions", "to", "partitions by leader")
    for read, write in route.topics.items():
        led = surveyed.targets.topic(write).led
        table.add_row(
            read,
            str(surveyed.sources[read]),
            write,
            ", ".join(f"{broker}: {len(held)}" for broker, held in led.items()),
        )
    result(table)
    result(f"partitioner {route.partitioner} per {route.options.granularity}, group {route.group}")


def report_json(report: ForwardReport) -> Json:
    """What was forwarded, as --json shows it."""
    return {
        "taken": report.taken,
        "forwarded": report.forwarded,
        "brokers": {str(broker): count for broker, count in report.brokers.items()},
        "partitions": by_partition(report.partitions),
        "ratios": None
        if report.ratios is None
        else {"brokers": report.ratios.brokers, "partitions": report.ratios.partitions},
    }


def _show(report: ForwardReport, *, as_json: bool) -> None:
    if as_json:
        result_json(report_json(report))
        return
    evenly = ""
    if report.ratios is not None:
        evenly = (
            f"; fullest over mean: brokers {report.ratios.brokers:.3f}, "
            f"partitions {report.ratios.partitions:.3f}"
        )
    brokers = ", ".join(f"{broker}: {count}" for broker, count in report.brokers.items())
    result(f"{report.forwarded} records forwarded of {report.taken} taken{evenly}")
    if brokers:
        result(f"by broker {brokers}")
