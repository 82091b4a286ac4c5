"""`trimtab simulate`: runs planners on streams of loads, without a broker."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.numbers import finite, number, positive
from trimtab.cli.options import (
    AsJson,
    Output,
    SomeTopics,
    capacity_option,
    duration_option,
    output_file,
    topic_option,
    with_options,
)
from trimtab.cli.output import TerminalProgress, result_json, say, show, write_file
from trimtab.cli.planner_options import (
    LagThreshold,
    PackingConditions,
    PlannerNames,
    Seed,
    Sla,
    configured_planners,
    sla_option,
)
from trimtab.cli.simulate_brokers import brokers
from trimtab.cli.simulate_key_protocol import key_protocol
from trimtab.cli.simulate_keys import keys
from trimtab.errors import ConfigError
from trimtab.model.codec import dumps, loads_to
from trimtab.model.load import Loads, Unit
from trimtab.model.wire import by_partition
from trimtab.services.simulate import (
    RandomWalk,
    ReplayRequest,
    replay_planners,
    simulate_planners,
    walk_loads,
)

if TYPE_CHECKING:
    from trimtab.simulate.packing import PackingRun

app = typer.Typer(
    name="simulate",
    help="Run planners over streams of loads, generated or recorded; no broker is needed.",
    no_args_is_help=True,
)

_BAR_FROM = 50  # steps; with fewer a progress bar would end too soon
_CONTRACT = ("mean_consumers", "e_rscore", "moves", "moved_fraction", "utilisation")


@app.callback()
def _simulate() -> None:
    """Run planners over streams of loads, generated or recorded; no broker is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingVerbOptions:
    """The stream, the planners, and their options."""

    stream: Annotated[
        Path,
        typer.Option(
            "--stream", metavar="FILE", help="A loads file with its steps, as JSON or Parquet."
        ),
    ]
    planner: PlannerNames
    packing: PackingConditions
    sla: Sla = None
    lag_threshold: LagThreshold = None
    dead: Annotated[
        list[str] | None,
        typer.Option(
            "--dead",
            metavar="STEP:N",
            help="Consumer N fails before this step; steps count from 0. May be repeated.",
        ),
    ] = None
    output: Output = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The random walk, and where it is written."""

    seed: Seed = 0
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Number of partitions.")
    ] = 200
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", metavar="N", min=0, help="Number of steps after the initial state."
        ),
    ] = 500
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            metavar="PERCENT",
            min=0,
            callback=finite,
            help="Largest change of a load in one step, in percent of the capacity.",
        ),
    ] = 5.0
    capacity: Annotated[float, capacity_option("Capacity of one consumer, in bytes/s.")] = 100.0
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="S", help="Initial loads: uniform, or this share of the capacity."
        ),
    ] = "uniform"
    cap: Annotated[
        str,
        typer.Option(
            "--cap", metavar="C", help="Upper limit of a load: capacity, none, or a number."
        ),
    ] = "capacity"
    integer: Annotated[
        bool,
        typer.Option("--integer/--real", help="Integer loads, which add up exactly, or real ones."),
    ] = True
    topic: Annotated[str, topic_option("The name of the topic.")] = "stream"
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            callback=output_file,
            help="Write the stream to this file; Parquet if it ends in .parquet, else JSON.",
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The history, the planners, and the consumers that read it."""

    history: Annotated[
        Path,
        typer.Option(
            "--history",
            metavar="PATH",
            help="The warehouse of `trimtab measure`, or one table or file of partition rates.",
        ),
    ]
    planner: PlannerNames
    capacity: Annotated[
        float, capacity_option("Capacity of one consumer that planners assume, in --unit.")
    ]
    service_rate: Annotated[
        float | None,
        typer.Option(
            "--service-rate",
            metavar="N",
            callback=positive,
            help="Rate at which a simulated consumer really reads, in --unit. Default: 6/5 of "
            "--capacity, so that it can catch up.",
        ),
    ] = None
    unit: Annotated[Unit, typer.Option("--unit", help="Which rates count.")] = Unit.BYTES_S
    sla: Annotated[float, sla_option(shown="5s")] = 5.0
    topic: SomeTopics = None
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="G",
            help="Group whose lag is the initial lag. Default: the only one recorded.",
        ),
    ] = None
    window: Annotated[
        float | None,
        duration_option(
            "--window",
            help="Window length to use, if there are several. Default: the most common.",
        ),
    ] = None
    interval: Annotated[
        float | None,
        duration_option(
            "--interval",
            help="Time between decisions. Default: one window.",
        ),
    ] = None
    block: Annotated[
        float,
        duration_option(
            "--block",
            zero=True,
            shown="1s",
            help="How long a moving partition is not read.",
        ),
    ] = 1.0
    startup: Annotated[
        float,
        duration_option(
            "--startup",
            zero=True,
            shown="0s",
            help="Start-up time of a new consumer.",
        ),
    ] = 0.0
    dt: Annotated[
        float,
        duration_option(
            "--dt",
            shown="100ms",
            help="Time step of the simulation.",
        ),
    ] = 0.1
    packing: PackingConditions
    lag_threshold: LagThreshold = None
    output: Output = None
    as_json: AsJson = False


@app.command()
@with_options
def packing(options: PackingVerbOptions) -> None:
    """Run planners over a stream of loads, step by step.

    Each step starts from the assignment of the previous step.

    Prints the figures of each planner: consumers, moves, Rscore (the load moved, in units of a
    consumer's capacity), moved share of the load, utilisation. With --json also every assignment.
    """
    from trimtab.report.tables import simulation_view

    chosen, context = configured_planners(
        options.planner, options.packing, sla=options.sla, lag_threshold=options.lag_threshold
    )
    with TerminalProgress(least=_BAR_FROM) as listener:
        runs = simulate_planners(
            options.stream, chosen, context, dead=options.dead or (), listener=listener
        )
    shown = [_run_to(run) for run in runs]
    value: Any = shown[0] if len(shown) == 1 else shown
    show(
        value,
        lambda: simulation_view(runs),
        as_json=options.as_json,
        output=options.output,
        indent=None,
    )


def _run_to(run: PackingRun) -> dict[str, Any]:
    """A run as JSON: equal for equal input, therefore without run times."""
    from trimtab.simulate.packing import summary

    figures = summary(run)
    return {
        "planner": run.planner,
        "steps": [
            {
                "consumers": step.consumers,
                "rscore": step.rscore,
                "moves": step.moves,
                "assignment": by_partition(step.assignment),
            }
            for step in run.steps
        ],
        "summary": {name: figures[name] for name in _CONTRACT},
    }


@app.command(short_help="Generate a stream of loads by random walks.")
@with_options
def stream(options: StreamOptions) -> None:
    """Generate a stream of loads: a bounded random walk per partition.

    As in Landau et al.

    The same options give the same stream. Use it with `trimtab simulate packing --stream`.
    """
    output = options.output
    if output is None and not options.as_json:
        raise ConfigError("No output selected.", hint="Give -o FILE, or --json.")
    made = walk_loads(
        RandomWalk(
            topic=options.topic,
            seed=options.seed,
            partitions=options.partitions,
            iterations=options.iterations,
            delta=options.delta,
            capacity=options.capacity,
            start=_number(options.start, "--start", ("uniform",)),
            cap=None if options.cap == "none" else _number(options.cap, "--cap", ("capacity",)),
            integer=options.integer,
        )
    )
    if output is not None:
        _write_stream(output, made)
        say(f"{len(made.steps)} steps of {options.partitions} partitions written to {output}")
    if options.as_json:
        result_json(loads_to(made))


def _write_stream(path: Path, made: Loads) -> None:
    from trimtab.simulate.tables import PARQUET, write_stream

    if path.suffix == PARQUET:
        write_stream(path, made)
    else:
        write_file(path, dumps(loads_to(made)) + "\n")


def _number(text: str, option: str, words: Collection[str]) -> Any:
    if text in words:
        return text
    try:
        return number(text)
    except typer.BadParameter as error:
        raise ConfigError(
            f"{option} takes {', '.join(words)} or a number, not {text!r}."
        ) from error


@app.command(short_help="Replay recorded load to compare planners.")
@with_options
def replay(options: ReplayOptions) -> None:
    """Replay recorded load to compare how planners would have performed.

    Each planner starts with a plan for the first window. Later decisions use the rates of the last
    interval and the lags that the planner's own decisions caused.
    """
    from trimtab.report.tables import replay_view

    chosen, context = configured_planners(
        options.planner, options.packing, lag_threshold=options.lag_threshold
    )
    request = ReplayRequest(
        history=options.history,
        capacity=options.capacity,
        unit=options.unit,
        topics=options.topic or (),
        group=options.group,
        service_rate=options.service_rate,
        window_s=options.window,
        interval_s=options.interval,
        sla_s=options.sla,
        block_s=options.block,
        startup_s=options.startup,
        step_s=options.dt,
    )
    with TerminalProgress(least=_BAR_FROM) as listener:
        past, found = replay_planners(request, chosen, context, listener=listener)
    value = {
        "windows": len(past.rates),
        "window_s": past.window_s,
        "partitions": len(past.names),
        "unit": str(options.unit),
        "planners": [one.to_json() for one in found],
    }
    show(
        value,
        lambda: replay_view(past, found),
        as_json=options.as_json,
        output=options.output,
        indent=None,
    )


app.command(short_help="Compare policies that spread records over brokers.")(brokers)
app.command(short_help="Compare policies that route the records of hot keys.")(keys)
app.command("key-protocol", short_help="Explore how keys move between partitions.")(key_protocol)
