"""`trimtab audit`: groups, overlaps, uneven leaders, loads, and what failures would do."""

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
    Verbose,
    output_file,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result, result_json, say, write_file
from trimtab.errors import ConfigError, Findings
from trimtab.model.codec import dumps
from trimtab.observe.logging import configure
from trimtab.services.audit import AuditRequest, LoadsFile, audit_cluster

if TYPE_CHECKING:
    from trimtab.audit.findings import Finding
    from trimtab.audit.topology import Audit

_MANY_SCENARIOS = 50


class FailOn(StrEnum):
    """From which level on findings end with exit code 1."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


class Domains(StrEnum):
    """Which brokers fail together by where they stand."""

    RACKS = "racks"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerbOptions:
    """What is audited, what is still fine, which failures are looked at, and what is written."""

    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="FILE", help="A snapshot file instead of a live cluster."
        ),
    ] = None
    topic: OnlyTopics = None
    internal: Annotated[
        bool, typer.Option("--internal", help="Audit Kafka's own topics and Trimtab's too.")
    ] = False
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="Rates of partitions: what `trimtab measure -o` wrote, or a loads file (no "
            "capacity needed). Default: partitions count their log size where --snapshot has all "
            "sizes, else 1.",
        ),
    ] = None
    unit: LoadsUnit = None
    step: LoadsStep = None
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Take rates with a gap or too short a span as they are."
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
            help="With --loads: highest load of a broker over the mean of all that is still fine.",
        ),
    ] = 1.25
    wanted_leaders: Annotated[
        float,
        typer.Option(
            "--wanted-leaders",
            metavar="R",
            min=1.0,
            callback=finite,
            help="Without --loads: most leaders of a broker over the best spread that is still "
            "fine.",
        ),
    ] = 1.5
    wanted_peak_after: Annotated[
        float,
        typer.Option(
            "--wanted-peak-after",
            metavar="R",
            min=1.0,
            callback=finite,
            help="Highest load of a broker after a failure, over the least that any order of "
            "replicas allows, that is still fine.",
        ),
    ] = 1.5
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            metavar="N",
            min=0,
            help="How many overlapping pairs of groups are listed, those with the highest rate.",
        ),
    ] = 20
    faults: Annotated[
        int,
        typer.Option(
            "--faults",
            metavar="0|1|2",
            min=0,
            max=2,
            help="Look at failures of up to so many brokers at once.",
        ),
    ] = 1
    domains: Annotated[
        Domains | None,
        typer.Option("--domains", help="Also look at the failure of each rack as a whole."),
    ] = None
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain",
            metavar="ID,ID,…",
            help="Also look at the failure of these brokers together; may be repeated.",
        ),
    ] = None
    max_scenarios: Annotated[
        int,
        typer.Option(
            "--max-scenarios",
            metavar="N",
            min=1,
            help="Look at so many failures at most; more are drawn from at random.",
        ),
    ] = 20_000
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of that draw.")] = 0
    min_insync: Annotated[
        int | None,
        typer.Option(
            "--min-insync",
            metavar="N",
            min=1,
            help="In-sync replicas that a write needs. Default: each topic's own setting; with "
            "--snapshot 1.",
        ),
    ] = None
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst",
            metavar="N",
            min=0,
            help="List so many failures, the worst. Default: 10 on the screen, all in the JSON.",
        ),
    ] = None
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on", help="Exit with code 1 if there is a finding of this level or worse."
        ),
    ] = FailOn.NEVER
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            callback=output_file,
            help="Also write one HTML page here.",
        ),
    ] = None
    kafka_json: Annotated[
        Path | None,
        typer.Option(
            "--kafka-json",
            metavar="FILE",
            callback=output_file,
            help="Also write the leader moves that would help, as JSON for Kafka's own "
            "kafka-reassign-partitions and kafka-leader-election.",
        ),
    ] = None
    of: ClusterOptions
    output: Output = None
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def audit(options: AuditVerbOptions) -> None:
    """Audit where leaders and replicas are, and what each failure of a broker would do.

    Shows the load of every broker (as measured with --loads), what another partitioner or other
    leaders would change, groups of topics and where they overlap, uneven topics, and failures
    ranked by what they do. Findings are errors (cannot be written to now), warnings (to be mended)
    or notes.
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
    """The options in the words of the service; those that contradict each other are refused."""
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
        raise ConfigError("--unit, --step, --allow-incomplete and --max-age are about --loads.")
    return None


def _print(found: Audit, worst: int, moves: Path | None) -> None:
    from trimtab.report.audit import audit_view, to_move_leaders

    result(audit_view(found, worst=worst))
    if found.leader_moves:
        file = None if moves is None else str(moves)
        result("\n" + to_move_leaders(found, file=file))


def _write_page(found: Audit, path: Path) -> None:
    from trimtab.report.audit_page import audit_page

    write_file(path, audit_page(found))
    say(f"The report: {path}")


def _write_moves(found: Audit, path: Path) -> None:
    from trimtab.audit import leader_moves

    write_file(path, dumps(leader_moves.kafka_json(found.leader_moves), indent=1) + "\n")
    if not found.leader_moves:
        say(f"No leader move would help: {path} has none.")


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
            hint="They stand first in the table, and in the JSON under findings.",
        )
