"""`trimtab audit`: groups, overlaps, uneven leaders, loads and simulated failures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of
from trimtab.cli.numbers import finite
from trimtab.cli.options import (
    AsJson,
    LoadsMaxAge,
    LoadsStep,
    LoadsUnit,
    OnlyTopics,
    Output,
    ReportFile,
    Verbose,
    output_file,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, say, write_file, write_report
from trimtab.errors import ConfigError, Findings
from trimtab.model.codec import dumps
from trimtab.observe.logging import configure
from trimtab.services.audit import AuditRequest, LoadsFile, audit_cluster

if TYPE_CHECKING:
    from trimtab.audit.finding import Finding
    from trimtab.audit.topology import Audit

_MANY_SCENARIOS = 50


class FailOn(StrEnum):
    """The lowest level of findings that sets exit code 1."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


class Domains(StrEnum):
    """Failure domains: which brokers fail together."""

    RACKS = "racks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerbOptions:
    """What is audited, the accepted limits, the simulated failures, and what is written."""

    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="FILE", help="A snapshot file instead of a live cluster."
        ),
    ] = None
    topic: OnlyTopics = None
    internal: Annotated[
        bool,
        typer.Option("--internal", help="Also audit Kafka's internal topics and Trimtab's own."),
    ] = False
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="Rates of partitions: the file of `trimtab measure -o`, or a loads file (no "
            "capacity needed). Default: partitions count their log size where --snapshot has all "
            "sizes, else 1.",
        ),
    ] = None
    unit: LoadsUnit = None
    step: LoadsStep = None
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Also use rates with gaps or from too short a span."
        ),
    ] = False
    max_age: LoadsMaxAge = None
    wanted_peak: Annotated[
        float,
        typer.Option(
            "--wanted-peak",
            metavar="R",
            min=1.0,
            callback=finite,
            help="With --loads: highest acceptable ratio of peak to mean broker load.",
        ),
    ] = 1.25
    wanted_leaders: Annotated[
        float,
        typer.Option(
            "--wanted-leaders",
            metavar="R",
            min=1.0,
            callback=finite,
            help="Without --loads: highest acceptable ratio of the leaders of a broker to the best "
            "possible spread.",
        ),
    ] = 1.5
    wanted_peak_after: Annotated[
        float,
        typer.Option(
            "--wanted-peak-after",
            metavar="R",
            min=1.0,
            callback=finite,
            help="Highest acceptable ratio of the peak load after a failure to the lowest peak "
            "that any order of replicas allows.",
        ),
    ] = 1.5
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            metavar="N",
            min=0,
            help="Number of overlapping pairs of groups to list, highest rate first.",
        ),
    ] = 20
    faults: Annotated[
        int,
        typer.Option(
            "--faults",
            metavar="0|1|2",
            min=0,
            max=2,
            help="Simulate failures of up to this many brokers at once.",
        ),
    ] = 1
    domains: Annotated[
        Domains | None,
        typer.Option("--domains", help="Also simulate the failure of each whole rack."),
    ] = None
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain",
            metavar="ID,ID,…",
            help="Also simulate the failure of these brokers together; may be repeated.",
        ),
    ] = None
    max_scenarios: Annotated[
        int,
        typer.Option(
            "--max-scenarios",
            metavar="N",
            min=1,
            help="Simulate at most N failures; if there are more, a random sample is taken.",
        ),
    ] = 20_000
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Seed of that sample.")
    ] = 0
    min_insync: Annotated[
        int | None,
        typer.Option(
            "--min-insync",
            metavar="N",
            min=1,
            help="min.insync.replicas to assume for all topics. Default: each topic's own setting; "
            "1 with --snapshot.",
        ),
    ] = None
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst",
            metavar="N",
            min=0,
            help="List the N worst failures. Default: 10 in the tables, all in the JSON.",
        ),
    ] = None
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on", help="Exit with code 1 if there is a finding of this level or worse."
        ),
    ] = FailOn.NEVER
    report: ReportFile = None
    kafka_json: Annotated[
        Path | None,
        typer.Option(
            "--kafka-json",
            metavar="FILE",
            callback=output_file,
            help="Also write the recommended leader moves, as JSON for Kafka's "
            "kafka-reassign-partitions and kafka-leader-election.",
        ),
    ] = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def audit(options: AuditVerbOptions) -> None:
    """Audit the placement of leaders and replicas, and simulate each broker failure.

    Shows the load of every broker (as measured with --loads), the effect of another partitioner or
    of other leaders, groups of topics and their overlaps, uneven topics, and failures, the worst
    first. Findings are errors (partitions cannot be written to now), warnings (should be fixed) or
    notes.
    """
    from trimtab.audit.document import audit_to
    from trimtab.audit.findings import findings

    configure(verbose=options.verbose)
    request = _request(options)
    with TerminalProgress(least=_MANY_SCENARIOS) as listener:
        found = audit_cluster(request, listener=listener)
    needed = options.as_json or options.output is not None
    value = audit_to(found, worst=options.worst) if needed else {}
    if options.output is not None:
        write_file(options.output, dumps(value, indent=1) + "\n")
    if options.kafka_json is not None:
        _write_moves(found, options.kafka_json)
    if options.report is not None:
        _write_page(found, options.report)
    if options.as_json:
        result_json(value)
    else:
        _print(found, 10 if options.worst is None else options.worst, options.kafka_json)
    _judge(findings(found), options.fail_on)


def _request(options: AuditVerbOptions) -> AuditRequest:
    """Converts the options to a request; rejects options that contradict each other."""
    from trimtab.audit.topology import AuditOptions

    if options.snapshot is not None and options.of.bootstrap_server is not None:
        raise ConfigError("Give --snapshot or --bootstrap-server, not both.")
    settings = options.of.settings()
    return AuditRequest(
        source=options.snapshot or cluster_of(settings),
        options=AuditOptions(
            pairs=options.pairs,
            up_to=options.faults,
            racks=options.domains is Domains.RACKS,
            max_scenarios=options.max_scenarios,
            seed=options.seed,
            wanted_peak=options.wanted_peak,
            wanted_leaders=options.wanted_leaders,
            wanted_after=options.wanted_peak_after,
        ),
        topics=frozenset(options.topic or ()),
        internal=options.internal,
        own_prefix=settings.topic_prefix,
        min_insync=options.min_insync,
        loads=_loads(options),
        domains=options.domain or (),
    )


def _loads(options: AuditVerbOptions) -> LoadsFile | None:
    if options.loads is not None:
        return LoadsFile(
            path=options.loads,
            unit=options.unit,
            step=options.step,
            allow_incomplete=options.allow_incomplete,
            max_age_s=options.max_age,
        )
    about_loads = (options.unit, options.step, options.max_age)
    if options.allow_incomplete or any(given is not None for given in about_loads):
        raise ConfigError("--unit, --step, --allow-incomplete and --max-age require --loads.")
    return None


def _print(found: Audit, worst: int, moves: Path | None) -> None:
    from trimtab.report.audit import audit_view, to_move_leaders

    result(audit_view(found, worst=worst))
    if found.leader_moves:
        file = None if moves is None else str(moves)
        result("\n" + to_move_leaders(found, file=file))


def _write_page(found: Audit, path: Path) -> None:
    from trimtab.report.audit_page import audit_page

    write_report(path, audit_page(found))


def _write_moves(found: Audit, path: Path) -> None:
    from trimtab.audit import leader_moves

    write_file(path, dumps(leader_moves.kafka_json(found.leader_moves), indent=1) + "\n")
    if not found.leader_moves:
        say(f"No leader move would help: {path} contains no moves.")


def _judge(found: tuple[Finding, ...], fail_on: FailOn) -> None:
    from trimtab.audit.findings import at_least
    from trimtab.audit.unevenness import Level

    if fail_on is FailOn.NEVER:
        return
    bad = at_least(found, Level(fail_on.value))
    if bad:
        what = f"a {fail_on} or worse" if fail_on is not FailOn.ERROR else "errors"
        raise Findings(
            f"The audit found {what}, {len(bad)} in all: {', '.join(f.kind for f in bad)}.",
            hint="They come first in the table, and under findings in the JSON.",
        )
