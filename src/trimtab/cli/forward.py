"""`trimtab forward`: copies records between topics with one shared partitioner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of, properties_of
from trimtab.cli.metrics_options import MetricsOptions
from trimtab.cli.options import AsJson, RunFor, Verbose, with_options
from trimtab.cli.output import TerminalProgress, result, result_json, say
from trimtab.cli.signals import until_interrupted
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import Json
from trimtab.model.wire import by_partition
from trimtab.observe.logging import configure
from trimtab.plan.records.partitioner import Granularity, RoutingOptions
from trimtab.report.columns import new_table
from trimtab.services.forward import forward_records, paired, survey_route

if TYPE_CHECKING:
    from trimtab.apply.records.kafka.forward_route import ForwardReport, Survey


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardOptions:
    """Which topics are forwarded, where to, how, and until when."""

    from_topic: Annotated[
        list[str],
        typer.Option("--from-topic", metavar="T", help="A topic to read; may be repeated."),
    ]
    group: Annotated[
        str,
        typer.Option("--group", metavar="G", help="The consumer group that commits the offsets."),
    ]
    to_topic: Annotated[
        list[str] | None,
        typer.Option(
            "--to-topic",
            metavar="T",
            help="The topic to write to: one for all, or one for each --from-topic, in order. "
            "Default on another cluster: the same name.",
        ),
    ] = None
    to_bootstrap_server: Annotated[
        str | None,
        typer.Option(
            "--to-bootstrap-server",
            metavar="HOST:PORT,…",
            help="The cluster to write to. Default: the cluster that is read.",
        ),
    ] = None
    to_command_config: Annotated[
        Path | None,
        typer.Option(
            "--to-command-config",
            metavar="FILE",
            help="Kafka client properties of that cluster. Default on another cluster: none.",
        ),
    ] = None
    partitioner: Annotated[
        str,
        typer.Option(
            "--partitioner", metavar="NAME", help="The partitioner for records without a key."
        ),
    ] = "sqf"
    granularity: Annotated[
        Granularity,
        typer.Option("--granularity", help="Choose a partition per record or per batch."),
    ] = Granularity.PER_RECORD
    execute: Annotated[
        bool,
        typer.Option("--execute", help="Forward the records. Without it, only show the route."),
    ] = False
    from_latest: Annotated[
        bool,
        typer.Option(
            "--from-latest", help="Start at the end of partitions without a committed offset."
        ),
    ] = False
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the end offsets found at the start.")
    ] = False
    records: Annotated[
        int | None,
        typer.Option("--records", metavar="N", min=1, help="Stop after N records."),
    ] = None
    for_: RunFor = None
    metrics: MetricsOptions
    of: ClusterOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def forward(options: ForwardOptions) -> None:
    """Forward records to other topics with one shared partitioner, at least once.

    Keys, headers, timestamps and the order of each key are preserved.
    """
    from trimtab.apply.records.kafka.forward_route import Route

    configure(verbose=options.verbose)
    route = Route(
        topics=paired(options.from_topic, options.to_topic or ()),
        group=options.group,
        partitioner=options.partitioner,
        options=RoutingOptions(granularity=options.granularity),
        from_latest=options.from_latest,
        until_end=options.until_end,
        records=options.records,
    )
    source = cluster_of(options.of.settings())
    target = _target(source, options.to_bootstrap_server, options.to_command_config)
    options.metrics.serve()
    surveyed = survey_route(route, source, target)
    if not options.execute:
        _show_plan(surveyed, as_json=options.as_json)
        say("Nothing was forwarded. Add --execute to forward.")
        return
    with until_interrupted() as stop, TerminalProgress() as listener:
        report = forward_records(
            surveyed,
            source,
            target,
            stop=stop,
            for_s=options.for_,
            on_failure=lambda report: _show(report, as_json=options.as_json),
            listener=listener,
        )
    _show(report, as_json=options.as_json)


def _target(source: Cluster, server: str | None, config: Path | None) -> Cluster:
    if server is None and config is None:
        return source
    if server is None:
        raise ConfigError(
            "--to-command-config requires --to-bootstrap-server.",
            hint="Add --to-bootstrap-server, or leave out --to-command-config.",
        )
    return Cluster(server, properties_of(config), source.topics, source.timeouts)


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
    """The report of --json."""
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
            f"; peak over mean: brokers {report.ratios.brokers:.3f}, "
            f"partitions {report.ratios.partitions:.3f}"
        )
    brokers = ", ".join(f"{broker}: {count}" for broker, count in report.brokers.items())
    result(f"{report.forwarded} records forwarded of {report.taken} taken{evenly}")
    if brokers:
        result(f"by broker {brokers}")
