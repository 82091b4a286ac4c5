"""`trimtab audit`: groups, overlaps, uneven leaders, loads, and what failures would do."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.durations import seconds
from trimtab.cli.numbers import finite
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Output, Verbose, output_file
from trimtab.cli.output import progress_bar, result, result_json, say, talk, warn, write_file
from trimtab.errors import ConfigError, Findings
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition
from trimtab.model.codec import dumps, read_rates, read_snapshot
from trimtab.model.load import Measurement, Unit
from trimtab.observe.logging import configure
from trimtab.settings import load_settings

if TYPE_CHECKING:
    from trimtab.audit.faults import Progress
    from trimtab.audit.findings import Finding
    from trimtab.audit.loads import TopicRates
    from trimtab.audit.topology import Audit

_MANY_SCENARIOS = 50
_MAX_AGE_S = 900.0
_QUIET = {Unit.BYTES_S: 10_000.0, Unit.RECORDS_S: 10.0}
"""Measured load of the fullest broker below which no broker is called overloaded."""


class FailOn(StrEnum):
    """From which level on findings end with exit code 1."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"
    NEVER = "never"


class Domains(StrEnum):
    """Which brokers fail together by where they stand."""

    RACKS = "racks"


def audit(
    snapshot: Annotated[
        Path | None,
        typer.Option(
            "--snapshot", metavar="FILE", help="A snapshot file instead of a live cluster."
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="T",
            help="Only this topic; may be repeated. Default: all but Kafka's own and Trimtab's.",
        ),
    ] = None,
    internal: Annotated[
        bool, typer.Option("--internal", help="Audit Kafka's own topics and Trimtab's too.")
    ] = False,
    loads: Annotated[
        Path | None,
        typer.Option(
            "--loads",
            metavar="FILE",
            help="Rates of partitions: what `trimtab measure -o` wrote, or a loads file (no "
            "capacity needed). Default: partitions count their log size where --snapshot has all "
            "sizes, else 1.",
        ),
    ] = None,
    unit: Annotated[
        Unit | None,
        typer.Option(
            "--unit", help="What rates are counted in. Default: the file's, else bytes/s."
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(
            "--step", metavar="N", min=0, help="Which step of a loads file with several, from 0."
        ),
    ] = None,
    allow_incomplete: Annotated[
        bool,
        typer.Option(
            "--allow-incomplete", help="Take rates with a gap or too short a span as they are."
        ),
    ] = False,
    max_age: Annotated[
        float | None,
        typer.Option(
            "--max-age",
            metavar="DURATION",
            parser=seconds,
            help="Warn when a measurement ended longer ago than this. Default: 15m.",
        ),
    ] = None,
    wanted_peak: Annotated[
        float,
        typer.Option(
            "--wanted-peak",
            metavar="R",
            min=1.0,
            callback=finite,
            help="With --loads: highest load of a broker over the mean of all that is still fine.",
        ),
    ] = 1.25,
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
    ] = 1.5,
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
    ] = 1.5,
    pairs: Annotated[
        int,
        typer.Option(
            "--pairs",
            metavar="N",
            min=0,
            help="How many overlapping pairs of groups are listed, those with the highest rate.",
        ),
    ] = 20,
    faults: Annotated[
        int,
        typer.Option(
            "--faults",
            metavar="0|1|2",
            min=0,
            max=2,
            help="Look at failures of up to so many brokers at once.",
        ),
    ] = 1,
    domains: Annotated[
        Domains | None,
        typer.Option("--domains", help="Also look at the failure of each rack as a whole."),
    ] = None,
    domain: Annotated[
        list[str] | None,
        typer.Option(
            "--domain",
            metavar="ID,ID,…",
            help="Also look at the failure of these brokers together; may be repeated.",
        ),
    ] = None,
    max_scenarios: Annotated[
        int,
        typer.Option(
            "--max-scenarios",
            metavar="N",
            min=1,
            help="Look at so many failures at most; more are drawn from at random.",
        ),
    ] = 20_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Of that draw.")] = 0,
    min_insync: Annotated[
        int | None,
        typer.Option(
            "--min-insync",
            metavar="N",
            min=1,
            help="In-sync replicas that a write needs. Default: each topic's own setting; with "
            "--snapshot 1.",
        ),
    ] = None,
    worst: Annotated[
        int | None,
        typer.Option(
            "--worst",
            metavar="N",
            min=0,
            help="List so many failures, the worst. Default: 10 on the screen, all in the JSON.",
        ),
    ] = None,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            "--fail-on", help="Exit with code 1 if there is a finding of this level or worse."
        ),
    ] = FailOn.NEVER,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FILE.html",
            callback=output_file,
            help="Also write one HTML page here.",
        ),
    ] = None,
    kafka_json: Annotated[
        Path | None,
        typer.Option(
            "--kafka-json",
            metavar="FILE",
            callback=output_file,
            help="Also write the leader moves that would help, as JSON for Kafka's own "
            "kafka-reassign-partitions and kafka-leader-election.",
        ),
    ] = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    output: Output = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Audit where leaders and replicas are, and what each failure of a broker would do.

    Shows the load of every broker (as measured with --loads), what another partitioner or other
    leaders would change, groups of topics and where they overlap, uneven topics, and failures
    ranked by what they do. Findings are errors (cannot be written to now), warnings (to be mended)
    or notes.
    """
    configure(verbose=verbose)
    names = frozenset(topic or ())
    if snapshot is not None:
        if bootstrap_server is not None:
            raise ConfigError("Give --snapshot or --bootstrap-server, not both.")
        taken, down = _of_file(snapshot, names, internal=internal)
        needs, server = dict.fromkeys(taken.topics, min_insync or 1), None
    else:
        taken, down, needs, server = _of_cluster(
            names,
            internal=internal,
            bootstrap_server=bootstrap_server,
            command_config=command_config,
            min_insync=min_insync,
        )
    from trimtab.audit.document import audit_to
    from trimtab.audit.findings import findings
    from trimtab.audit.topology import SERVER, AuditOptions
    from trimtab.audit.topology import audit as audited

    rates: TopicRates | None = None
    quiet = 0.0
    if loads is not None:
        rates, quiet = _rates(
            loads,
            taken,
            unit=unit,
            step=step,
            allow_incomplete=allow_incomplete,
            max_age_s=_MAX_AGE_S if max_age is None else max_age,
        )
        _tell_strangers(loads, rates, taken, named=bool(names))
    elif unit is not None or step is not None or allow_incomplete or max_age is not None:
        raise ConfigError("--unit, --step, --allow-incomplete and --max-age are about --loads.")
    options = AuditOptions(
        internal=internal or bool(names),
        pairs=pairs,
        up_to=faults,
        racks=domains is Domains.RACKS,
        domains=dict(_domain(given, taken) for given in domain or ()),
        max_scenarios=max_scenarios,
        seed=seed,
        min_insync=needs,
        down=down,
        wanted_peak=wanted_peak,
        wanted_leaders=wanted_leaders,
        wanted_after=wanted_peak_after,
        server=server or SERVER,
        quiet=quiet,
    )
    with _shown() as progress:
        found = audited(taken, rates, options, progress=progress)
    value = audit_to(found, worst=worst) if as_json or output is not None else {}
    if output is not None:
        write_file(output, dumps(value, indent=1) + "\n")
    if kafka_json is not None:
        _write_moves(found, kafka_json)
    if report is not None:
        _write_page(found, report)
    if as_json:
        result_json(value)
    else:
        _print(found, 10 if worst is None else worst, kafka_json)
    _judge(findings(found), fail_on)


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


def _of_file(
    path: Path, names: frozenset[str], *, internal: bool
) -> tuple[ClusterSnapshot, frozenset[BrokerId]]:
    """The cluster as the file has it, and the brokers that are down there, or seem to be."""
    from trimtab.audit.findings import some
    from trimtab.audit.unevenness import down_brokers
    from trimtab.kafka.snapshot import is_internal

    taken, warnings = read_snapshot(path)
    warn(warnings)
    for name in sorted(names - set(taken.topics)):
        raise ConfigError(f'{path} has no topic "{name}".')
    down = down_brokers(taken)
    guessed = sorted(b.id for b in taken.brokers if b.id in down and b.alive is None)
    if guessed:
        say(f"Brokers taken as down, as no replica on them is in sync: {some(guessed)}")
    if internal and not names:
        return taken, down
    prefix = load_settings().topic_prefix
    others = (name for name in taken.topics if not is_internal(name, own_prefix=prefix))
    return replace(taken, partitions=taken.of_topics(names or frozenset(others))), down


def _of_cluster(
    names: frozenset[str],
    *,
    internal: bool,
    bootstrap_server: str | None,
    command_config: Path | None,
    min_insync: int | None,
) -> tuple[ClusterSnapshot, frozenset[BrokerId], dict[str, int], str]:
    """The cluster as it is, brokers that are down, what writes need by topic, and its address."""
    from trimtab.cli.connection import cluster_of
    from trimtab.kafka.snapshot import take_placement

    settings = load_settings(bootstrap_server=bootstrap_server, command_config=command_config)
    to = cluster_of(settings)
    with to.admin() as admin:
        taken, down = take_placement(
            admin,
            topics=names or None,
            internal=internal,
            clock=lambda: time.time_ns() // 1000,
            own_prefix=settings.topic_prefix,
        )
        for name in sorted(names - set(taken.topics)):
            raise ConfigError(f'The cluster has no topic "{name}".')
        if min_insync is None:
            needs = admin.min_insync(taken.topics) if taken.topics else {}
        else:
            needs = dict.fromkeys(taken.topics, min_insync)
    return taken, down, needs, to.servers


def _rates(
    path: Path,
    taken: ClusterSnapshot,
    *,
    unit: Unit | None,
    step: int | None,
    allow_incomplete: bool,
    max_age_s: float,
) -> tuple[TopicRates, float]:
    """The rates, and the load of a broker below which they are too little to act upon.

    That is for measurements: whoever writes a file by hand may count in units of their own.
    """
    from trimtab.audit.loads import topic_rates
    from trimtab.plan.consumers.situation import about_age, step_of

    given, warnings = read_rates(path)
    warn(warnings)
    left_out: dict[TopicPartition, float] = {}
    quiet = 0.0
    if isinstance(given, Measurement):
        if step is not None:
            raise ConfigError(f"{path} is a measurement, it has no steps.")
        if None not in (given.cluster, taken.cluster) and given.cluster != taken.cluster:
            warn([f"{path} was measured on cluster {given.cluster}, not on {taken.cluster}"])
        warn(about_age(given, now_ts=time.time_ns() // 1000, max_age_s=max_age_s))
        counted = unit or Unit.BYTES_S
        quiet = _QUIET[counted]
        sound = tuple(p for p in given.partitions if p.complete or allow_incomplete)
        if len(sound) < len(given.partitions):
            thin = f"{len(given.partitions) - len(sound)} of {len(given.partitions)} rates"
            say(f"{path}: {thin} have a gap or too short a span; --allow-incomplete uses them.")
        by_partition = replace(given, partitions=sound).loads(counted)
        every = given.loads(counted)
        left_out = {name: load for name, load in every.items() if name not in by_partition}
    else:
        if unit not in (None, given.unit):
            raise ConfigError(
                f"{path} counts in {given.unit}, not in {unit}.",
                hint="Leave --unit out, or correct the file.",
            )
        counted = given.unit
        by_partition = dict(step_of(given, step, origin=str(path)).loads)
    if not math.isfinite(sum(by_partition.values()) + sum(left_out.values())):
        raise ConfigError(f"{path}: the loads add up to more than a number can hold.")
    if not any(p.name in by_partition for p in taken.partitions):
        say(f"{path} has no rate of any topic here: brokers are judged by what they lead.")
    return topic_rates(taken, by_partition, counted, left_out=left_out), quiet


def _tell_strangers(path: Path, rates: TopicRates, taken: ClusterSnapshot, *, named: bool) -> None:
    """Names measured partitions that the cluster or snapshot does not have: a part of the load."""
    from trimtab.audit.findings import some
    from trimtab.kafka.snapshot import is_internal

    here, prefix = {p.name for p in taken.partitions}, load_settings().topic_prefix
    topics, loads = frozenset(taken.topics), {**rates.left_out, **rates.by_partition}
    strangers = [
        name
        for name in sorted(loads.keys() - here)
        if name.topic in topics or not (named or is_internal(name.topic, own_prefix=prefix))
    ]
    total = sum(loads.values())
    if strangers and here & loads.keys():
        share = sum(loads[name] for name in strangers) / total if total > 0 else 0.0
        warn(
            [
                f"{path} has rates of {len(strangers)} partitions that are not here, "
                f"{share:.0%} of its load: {some(strangers)}"
            ]
        )


def _domain(given: str, taken: ClusterSnapshot) -> tuple[str, tuple[int, ...]]:
    known = {broker.id for broker in taken.brokers}
    try:
        ids = tuple(int(part) for part in given.split(","))
    except ValueError:
        raise ConfigError(f"--domain {given}: should be broker ids, as 1,2,3.") from None
    for broker in ids:
        if broker not in known:
            raise ConfigError(f"--domain {given}: there is no broker {broker}.")
    return f"domain {given}", ids


@contextmanager
def _shown() -> Iterator[Progress | None]:
    """Shows how many failures were looked at, where there are many and somebody watches."""
    if not talk.is_terminal:
        yield None
        return
    with progress_bar() as bar:
        task = bar.add_task("failures", total=None, visible=False)

        def move(done: int, of: int) -> None:
            if of >= _MANY_SCENARIOS and (done % 16 == 0 or done == of):
                bar.update(task, completed=done, total=of, visible=True)

        yield move


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
