"""`trimtab simulate key-protocol`: explores how keys move between partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.options import AsJson, Output, with_options
from trimtab.cli.output import TerminalProgress, show
from trimtab.errors import ConfigError, Findings
from trimtab.services.simulate_key_protocol import ProtocolRun, broken_variant, explore_protocol

if TYPE_CHECKING:
    from trimtab.simulate.key_protocol.scenario import ProtocolScenario

_MODES = "exactly-once or low-latency"


def _count(name: str, text: str) -> Any:
    return typer.Option(name, metavar="N", min=0, help=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyProtocolOptions:
    """The size of the world, and the faults in it."""

    records: Annotated[int, _count("--records", "Number of records, which go to keys in turn.")] = 2
    migrations: Annotated[int, _count("--migrations", "Number of migrations, at most.")] = 2
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Number of partitions.")
    ] = 2
    keys: Annotated[int, typer.Option("--keys", metavar="N", min=1, help="Number of keys.")] = 1
    mode: Annotated[
        str, typer.Option("--mode", metavar="MODE", help=f"Mode of the gateway: {_MODES}.")
    ] = "exactly-once"
    mode_after: Annotated[
        str | None,
        typer.Option(
            "--mode-after",
            metavar="MODE",
            help="Mode of gateways that are started later. Default: --mode.",
        ),
    ] = None
    tasks: Annotated[
        str,
        typer.Option(
            "--tasks",
            metavar="KIND",
            help="Tasks: atomic (each step is a transaction), batched (transactions of several "
            "steps), or simple (no transactions).",
        ),
    ] = "atomic"
    gateway_crashes: Annotated[int, _count("--gateway-crashes", "Crashes of the gateway.")] = 0
    gateway_freezes: Annotated[
        int, _count("--gateway-freezes", "How often a gateway freezes and may wake up later.")
    ] = 0
    task_crashes: Annotated[
        int, _count("--task-crashes", "Crashes of tasks; not with --tasks atomic.")
    ] = 0
    task_freezes: Annotated[
        int,
        _count(
            "--task-freezes", "How often a task freezes and may wake up later; not atomic ones."
        ),
    ] = 0
    parked_limit: Annotated[
        int | None,
        typer.Option(
            "--parked-limit",
            metavar="N",
            min=1,
            help="A task with this many parked records pauses. Default: no limit.",
        ),
    ] = None
    variant: Annotated[
        str | None,
        typer.Option(
            "--variant",
            metavar="NAME",
            help="Explore a broken variant of the protocol in the scenario in which it is found; "
            "of the other options only --limit counts.",
        ),
    ] = None
    limit: Annotated[
        int | None,
        typer.Option("--limit", metavar="N", min=1, help="Stop after this many states."),
    ] = None
    output: Output = None
    as_json: AsJson = False


@with_options
def key_protocol(options: KeyProtocolOptions) -> None:
    """Explore every way in which keys can move between partitions in a small world.

    Runs the protocol of the keyed data path without a broker: gateways, tasks, crashes, frozen
    processes, records in flight. Checks that no record is lost, repeated or out of order and that
    no key waits for ever. A fault is shown step by step, with exit code 1.

    Some ten thousand states a second; about 200 bytes of memory for each.
    """
    asked = broken_variant(options.variant) if options.variant else _scenario(options)
    with TerminalProgress() as listener:
        run = explore_protocol(asked, limit=options.limit, listener=listener)
    show(_document(run), lambda: _text(run), as_json=options.as_json, output=options.output)
    if run.exploration.fault is not None:
        raise Findings(
            "The protocol has a fault in this scenario.",
            hint="The steps that lead to it are listed above."
            if not options.as_json
            else "The steps that lead to it are in the document.",
        )


def _scenario(options: KeyProtocolOptions) -> ProtocolScenario:
    from trimtab.simulate.key_protocol.scenario import ProtocolScenario, TaskKind

    if options.tasks not in tuple(TaskKind):
        raise ConfigError(f"--tasks takes {', '.join(TaskKind)}, not {options.tasks!r}.")
    tasks = TaskKind(options.tasks)
    if tasks is TaskKind.ATOMIC and (options.task_crashes or options.task_freezes):
        raise ConfigError(
            "--task-crashes and --task-freezes need --tasks batched or simple.",
            hint="An atomic task that crashes is where it was.",
        )
    try:
        return ProtocolScenario(
            records=options.records,
            migrations=options.migrations,
            partitions=options.partitions,
            keys=options.keys,
            mode=_mode(options.mode, "--mode"),
            mode_after=_mode(options.mode_after, "--mode-after") if options.mode_after else None,
            tasks=tasks,
            gateway_crashes=options.gateway_crashes,
            gateway_freezes=options.gateway_freezes,
            task_crashes=options.task_crashes,
            task_freezes=options.task_freezes,
            parked_limit=options.parked_limit,
        )
    except ValueError as error:
        raise ConfigError(f"Invalid scenario: {error}") from error


def _mode(text: str, option: str) -> Any:
    from trimtab.apply.keys.key_route import GatewayMode

    try:
        return GatewayMode(text.replace("-", "_"))
    except ValueError as error:
        raise ConfigError(f"{option} takes {_MODES}, not {text!r}.") from error


def _document(run: ProtocolRun) -> dict[str, Any]:
    found, scenario = run.exploration, run.scenario
    fault = found.fault
    return {
        "scenario": {
            "records": scenario.records,
            "migrations": scenario.migrations,
            "partitions": scenario.partitions,
            "keys": scenario.keys,
            "mode": scenario.mode,
            "mode_after": scenario.mode_after,
            "tasks": scenario.tasks,
            "gateway_crashes": scenario.gateway_crashes,
            "gateway_freezes": scenario.gateway_freezes,
            "task_crashes": scenario.task_crashes,
            "task_freezes": scenario.task_freezes,
            "parked_limit": scenario.parked_limit,
        },
        "states": found.states,
        "actions": found.actions,
        "ends": found.ends,
        "depth": found.depth,
        "complete": found.is_complete,
        "fault": None
        if fault is None
        else {
            "kind": fault.kind.lower(),
            "text": fault.text,
            "steps": len(fault.trace),
            "story": (run.story or "").splitlines(),
        },
    }


def _text(run: ProtocolRun) -> str:
    found = run.exploration
    counts = f"{found.states:,} states, {found.actions:,} actions, {found.ends:,} ends"
    if run.story is not None:
        return f"{run.story}\n\nFound after {counts}."
    how = "Explored completely" if found.is_complete else "Explored in part"
    return f"{how}: {counts}, at most {found.depth} steps deep. No fault was found."
