"""`trimtab simulate`: planners over streams of loads, without a broker."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.durations import seconds, seconds_or_zero
from trimtab.cli.numbers import finite, number, positive
from trimtab.cli.options import AsJson, Output, output_file
from trimtab.cli.output import progress_bar, result, result_json, say, warn, write_file
from trimtab.cli.planner_options import (
    Consumers,
    InOrder,
    LagThreshold,
    MaxMovedLoad,
    MaxMoves,
    NfFirstBin,
    Seed,
    Sla,
    Slack,
    StickyKeeps,
    asked_options,
    chosen_planners,
)
from trimtab.cli.simulate_brokers import brokers
from trimtab.errors import ConfigError
from trimtab.model.codec import by_partition, dumps
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import FirstBin, Kind, Order, PackingPlanner
from trimtab.plan.registry import PLANNERS

if TYPE_CHECKING:
    from trimtab.model.load import Loads
    from trimtab.simulate.packing import Run

app = typer.Typer(
    name="simulate",
    help="Run planners over streams of loads, made up or recorded; no broker is needed.",
    no_args_is_help=True,
)

_BAR_FROM = 50  # steps; fewer are over before a bar is seen
_CONTRACT = ("mean_consumers", "e_rscore", "moves", "moved_fraction", "utilisation")

Planners = Annotated[
    list[str],
    typer.Option(
        "--planner",
        metavar="NAME",
        help=f"Who decides: {', '.join(sorted(PLANNERS[Layer.CONSUMERS]))}. May be repeated, "
        "for a comparison.",
    ),
]


@app.callback()
def _simulate() -> None:
    """Run planners over streams of loads, made up or recorded; no broker is needed."""


@app.command()
def packing(
    stream: Annotated[
        Path,
        typer.Option(
            "--stream", metavar="FILE", help="A loads file with its steps, as JSON or Parquet."
        ),
    ],
    planner: Planners,
    seed: Seed = 0,
    order: InOrder = Order.CANONICAL,
    nf_first_bin: NfFirstBin = FirstBin.STICKY,
    consumers: Consumers = None,
    sticky_keeps: StickyKeeps = None,
    slack: Slack = None,
    max_moves: MaxMoves = None,
    max_moved_load: MaxMovedLoad = None,
    sla: Sla = None,
    lag_threshold: LagThreshold = None,
    dead: Annotated[
        list[str] | None,
        typer.Option(
            "--dead",
            metavar="STEP:N",
            help="Consumer N is gone when the step begins, steps counted from 0. May be repeated.",
        ),
    ] = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Run planners over a stream of loads, step after step.

    Each step begins where the one before left the group.

    Prints what each planner needed: consumers, moves, Rscore (the load moved, counted in consumers
    of full capacity), moved part of the load, utilisation. With --json also every assignment.
    """
    chosen = chosen_planners(planner)
    options = asked_options(
        chosen,
        seed=seed,
        order=order,
        nf_first_bin=nf_first_bin,
        members=consumers,
        sticky_keeps=sticky_keeps,
        slack=slack,
        max_moves=max_moves,
        max_moved_load=max_moved_load,
        sla_s=sla,
        lag_threshold=lag_threshold,
    )
    from trimtab.simulate.packing import simulate
    from trimtab.simulate.tables import read_stream

    loads, warnings = read_stream(stream)
    warn(warnings)
    _check(loads, chosen, origin=str(stream))
    gone = _dead(dead or (), len(loads.steps))
    runs = []
    with _progress(len(loads.steps) * len(chosen)) as show:
        for place, one in enumerate(chosen):
            done = place * len(loads.steps)

            def on_step(k: int, one: PackingPlanner = one, done: int = done) -> None:
                show(one.name, done + k)

            runs.append(simulate(loads, one, options, dead=gone, on_step=on_step))
    shown = [_run_to(run) for run in runs]
    value: Any = shown[0] if len(shown) == 1 else shown
    if output is not None:
        write_file(output, dumps(value) + "\n")
    if as_json:
        result_json(value)
    else:
        from trimtab.report.tables import simulation_view

        result(simulation_view(runs))


def _run_to(run: Run) -> dict[str, Any]:
    """A run for programs: equal for equal input, so without the time it took."""
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


@app.command()
def stream(
    seed: Seed = 0,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Of one topic.")
    ] = 200,
    iterations: Annotated[
        int,
        typer.Option(
            "--iterations", metavar="N", min=0, help="Steps after the first, the initial state."
        ),
    ] = 500,
    delta: Annotated[
        float,
        typer.Option(
            "--delta",
            metavar="PERCENT",
            min=0,
            callback=finite,
            help="How far a load goes in one step at most, in percent of the capacity.",
        ),
    ] = 5.0,
    capacity: Annotated[
        float,
        typer.Option(
            "--capacity", metavar="N", callback=positive, help="What one consumer carries, bytes/s."
        ),
    ] = 100.0,
    start: Annotated[
        str,
        typer.Option(
            "--start", metavar="S", help="uniform, or the part of the capacity that all begin with."
        ),
    ] = "uniform",
    cap: Annotated[
        str,
        typer.Option(
            "--cap", metavar="C", help="capacity, none, or the load that none may exceed."
        ),
    ] = "capacity",
    integer: Annotated[
        bool, typer.Option("--integer/--real", help="Whole loads, which add up exactly, or any.")
    ] = True,
    topic: Annotated[
        str, typer.Option("--topic", metavar="T", help="What the topic is called.")
    ] = "stream",
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            callback=output_file,
            help="Write it here; Parquet if so called, else JSON.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a stream: a bounded random walk per partition.

    As in Landau et al.

    The same options give the same stream. Give it to `trimtab simulate packing --stream`.
    """
    if output is None and not as_json:
        raise ConfigError("No output selected.", hint="Give -o FILE, or --json.")
    from trimtab.model.codec import loads_to
    from trimtab.simulate.tables import PARQUET, write_stream

    made = _landau(
        topic,
        seed=seed,
        partitions=partitions,
        iterations=iterations,
        delta=delta,
        capacity=capacity,
        start=_number(start, "--start", ("uniform",)),
        cap=None if cap == "none" else _number(cap, "--cap", ("capacity",)),
        integer=integer,
    )
    if output is not None and output.suffix == PARQUET:
        write_stream(output, made)
    elif output is not None:
        write_file(output, dumps(loads_to(made)) + "\n")
    if output is not None:
        say(f"{len(made.steps)} steps of {partitions} partitions are in {output}")
    if as_json:
        result_json(loads_to(made))


def _landau(topic: str, *, capacity: float, **how: Any) -> Loads:
    from trimtab.model.cluster import TopicPartition
    from trimtab.model.codec import tidy
    from trimtab.model.load import Loads, LoadStep
    from trimtab.workload.rate_streams import landau_stream

    try:
        rows = landau_stream(capacity=capacity, **how).tolist()
    except ValueError as error:
        raise ConfigError(f"Such a stream cannot be made: {error}.") from error
    names = [TopicPartition(topic, number) for number in range(how["partitions"])]
    steps = tuple(LoadStep(loads=dict(zip(names, row, strict=True))) for row in rows)
    return Loads(capacity=tidy(capacity), steps=steps)


def _number(text: str, option: str, words: Collection[str]) -> Any:
    if text in words:
        return text
    try:
        return number(text)
    except typer.BadParameter as error:
        raise ConfigError(
            f"{option} takes {', '.join(words)} or a number, not {text!r}."
        ) from error


@app.command()
def replay(
    history: Annotated[
        Path,
        typer.Option(
            "--history",
            metavar="PATH",
            help="The warehouse of `trimtab measure`, or one table or file of partition rates.",
        ),
    ],
    planner: Planners,
    capacity: Annotated[
        float,
        typer.Option(
            "--capacity",
            metavar="N",
            callback=positive,
            help="What a consumer is planned to carry, in --unit.",
        ),
    ],
    service_rate: Annotated[
        float | None,
        typer.Option(
            "--service-rate",
            metavar="N",
            callback=positive,
            help="What a consumer really reads at most, in --unit. Default: 6/5 of --capacity, "
            "so that it can catch up with what it was given.",
        ),
    ] = None,
    unit: Annotated[Unit, typer.Option("--unit", help="Which rates count.")] = Unit.BYTES_S,
    sla: Annotated[
        float,
        typer.Option(
            "--sla",
            metavar="DURATION",
            parser=seconds,
            show_default="5s",
            help="How long a record may wait.",
        ),
    ] = 5.0,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="T", help="Only this topic; may be repeated."),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            "--group",
            metavar="G",
            help="Whose lag waits when the history begins. Default: the only one recorded.",
        ),
    ] = None,
    window: Annotated[
        float | None,
        typer.Option(
            "--window",
            metavar="DURATION",
            parser=seconds,
            help="Which windows, where there are several. Default: the commonest.",
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            "--interval",
            metavar="DURATION",
            parser=seconds,
            help="Time between decisions. Default: a window.",
        ),
    ] = None,
    block: Annotated[
        float,
        typer.Option(
            "--block",
            metavar="DURATION",
            parser=seconds_or_zero,
            show_default="1s",
            help="How long a partition that moves is not read.",
        ),
    ] = 1.0,
    startup: Annotated[
        float,
        typer.Option(
            "--startup",
            metavar="DURATION",
            parser=seconds_or_zero,
            show_default="0s",
            help="What a new consumer takes to start.",
        ),
    ] = 0.0,
    dt: Annotated[
        float,
        typer.Option(
            "--dt",
            metavar="DURATION",
            parser=seconds,
            show_default="100ms",
            help="Step of the simulated time.",
        ),
    ] = 0.1,
    seed: Seed = 0,
    order: InOrder = Order.CANONICAL,
    nf_first_bin: NfFirstBin = FirstBin.STICKY,
    consumers: Consumers = None,
    sticky_keeps: StickyKeeps = None,
    slack: Slack = None,
    max_moves: MaxMoves = None,
    max_moved_load: MaxMovedLoad = None,
    lag_threshold: LagThreshold = None,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Ask what planners would have made of recorded load.

    Each begins with a plan for the first window and goes on with what the last interval has shown,
    and with the lags that are its own doing.
    """
    chosen = chosen_planners(planner)
    options = asked_options(
        chosen,
        seed=seed,
        order=order,
        nf_first_bin=nf_first_bin,
        members=consumers,
        sticky_keeps=sticky_keeps,
        slack=slack,
        max_moves=max_moves,
        max_moved_load=max_moved_load,
        lag_threshold=lag_threshold,
    )
    from trimtab.simulate import replay as what_if
    from trimtab.simulate.consumers import CAPACITY_RATIO
    from trimtab.simulate.fluid import World
    from trimtab.simulate.tables import read_history

    rates, lags = read_history(history)
    past = what_if.history_of(
        rates,
        lags,
        unit=unit,
        topics=frozenset(topic) if topic else None,
        group=group,
        window_s=window,
    )
    warn(past.notes)
    try:
        limits = GroupLimits(capacity=capacity, unit=unit)
        world = World(
            service_rate=capacity / CAPACITY_RATIO if service_rate is None else service_rate,
            step_s=dt,
            decision_interval_s=past.window_s if interval is None else interval,
            block_s=block,
            startup_s=startup,
        )
    except ValueError as error:
        raise ConfigError(f"That cannot be simulated: {error}.") from error
    found = []
    with _progress(100 * len(chosen)) as show:
        for place, one in enumerate(chosen):

            def on_step(k: int, of: int, one: PackingPlanner = one, place: int = place) -> None:
                show(one.name, 100 * place + 100 * k // of)

            found.append(
                what_if.replay(
                    past,
                    one,
                    options,
                    limits=limits,
                    world=world,
                    sla_s=sla,
                    on_step=on_step,
                )
            )
    value = {
        "windows": len(past.rates),
        "window_s": past.window_s,
        "partitions": len(past.names),
        "unit": str(unit),
        "planners": [one.to_json() for one in found],
    }
    if output is not None:
        write_file(output, dumps(value) + "\n")
    if as_json:
        result_json(value)
    else:
        from trimtab.report.tables import replay_view

        result(replay_view(past, found))


def _check(loads: Loads, planners: Sequence[PackingPlanner], *, origin: str) -> None:
    """Refuses a stream that no planner could make anything of; warns of a doubtful one."""
    for k, step in enumerate(loads.steps):
        if not math.isfinite(sum(step.loads.values())):
            raise ConfigError(
                f"{origin}: steps[{k}]: the loads add up to more than a number can hold."
            )
    for planner in planners:
        if planner.kind is Kind.LATENCY and loads.unit is not Unit.RECORDS_S:
            warn([f"{planner.name} compares loads in {loads.unit} with lags, which are records"])


def _dead(given: Sequence[str], steps: int) -> dict[int, frozenset[int]]:
    """Reads `STEP:N`."""
    gone: dict[int, frozenset[int]] = {}
    for text in given:
        step, _, consumer = text.partition(":")
        if not (step.isdecimal() and consumer.isdecimal() and int(step) < steps):
            raise ConfigError(
                f"--dead takes STEP:N such as 3:0, with a step below {steps}, not {text!r}."
            )
        gone[int(step)] = gone.get(int(step), frozenset()) | {int(consumer)}
    return gone


app.command()(brokers)


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar for what takes long enough to be seen."""
    if total < _BAR_FROM:
        yield lambda _name, _done: None
        return
    with progress_bar() as bar:
        task = bar.add_task("simulating", total=total)

        def show(name: str, done: int) -> None:
            bar.update(task, completed=done, description=name)

        yield show
