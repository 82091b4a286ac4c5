"""`trimtab experiment`: the papers' tables and figures beside ours, run on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.durations import seconds_or_zero
from trimtab.cli.options import AsJson, Verbose, with_options
from trimtab.cli.output import progress_bar, say, talk
from trimtab.cli.spark import spark_session
from trimtab.errors import ConfigError
from trimtab.evaluate.rscore import TWELVE
from trimtab.model.plan import Layer
from trimtab.observe.logging import configure
from trimtab.plan.registry import planner_of
from trimtab.settings import Settings, load_settings
from trimtab_lab import PACKAGES
from trimtab_lab.cli.experiment_brokers import burato, ezzeddine_live, landau_live
from trimtab_lab.cli.experiment_results import (
    RunOptions,
    chosen_parts,
    parts_option,
    results_folder,
    tell,
)

if TYPE_CHECKING:
    from trimtab.spark.session import Session
    from trimtab_lab.papers.grid import Finished, GridCell, Work
    from trimtab_lab.papers.part import Part, Runner

app = typer.Typer(
    name="experiment",
    help="Reproduce the papers' tables and figures, and go beyond them.",
    no_args_is_help=True,
)

LANDAU_PARTS = ("tables", "headline", "latency", "beyond")
EZZEDDINE_PARTS = ("workload-1", "curve")

Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Streams of each kind: seeds 0 to N - 1.")
]


@app.callback()
def _experiment() -> None:
    """Reproduce the papers' tables and figures, and go beyond them.

    Every run is kept under TRIMTAB_HOME/experiments until the code behind it changes: an experiment
    that was interrupted goes on where it stopped.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LandauOptions:
    """Which streams and planners take part, and how it is run."""

    what: Annotated[list[str] | None, parts_option(LANDAU_PARTS)] = None
    seeds: Seeds = 3
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=1, help="Steps after the first.")
    ] = 500
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Of every stream.")
    ] = 200
    deltas: Annotated[
        str,
        typer.Option(
            "--deltas", metavar="D,…", help="How far a load goes in one step, % of the capacity."
        ),
    ] = "0,5,10,15,20,25"
    starts: Annotated[
        str,
        typer.Option(
            "--starts", metavar="S,…", help="How loads begin: uniform, or a part of the capacity."
        ),
    ] = "uniform,0,0.5,1"
    planners: Annotated[
        str | None,
        typer.Option(
            "--planners",
            metavar="P,…",
            help="Show only these of the twelve; CBS stays against all. Default: all.",
        ),
    ] = None
    slacks: Annotated[
        str,
        typer.Option(
            "--slacks", metavar="X,…", help="Slack of trim in the part beyond, as a part."
        ),
    ] = "0.03"
    run: RunOptions
    as_json: AsJson = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EzzeddineOptions:
    """How often is decided, and how it is run."""

    what: Annotated[list[str] | None, parts_option(EZZEDDINE_PARTS)] = None
    seeds: Seeds = 3
    intervals: Annotated[
        str,
        typer.Option("--intervals", metavar="DURATION,…", help="Time between two decisions."),
    ] = "1s,10s,30s"
    cooldowns: Annotated[
        str,
        typer.Option(
            "--cooldowns",
            metavar="DURATION,…",
            help="Time after a scaling in which there is no other.",
        ),
    ] = "0s,30s"
    run: RunOptions
    as_json: AsJson = False
    verbose: Verbose = False


@app.command(short_help="Packing planners: consumers used, load moved, latency.")
@with_options
def landau(options: LandauOptions) -> None:
    """Compare packing planners: consumers used, load moved, latency.

    As Landau et al. do.

    The published figures are for 200 partitions and 500 iterations; with others they only stand
    beside ours, unjudged.
    """
    from trimtab_lab.papers import landau as experiment

    design = experiment.LandauDesign(
        seeds=options.seeds,
        iterations=options.iterations,
        partitions=options.partitions,
        deltas=tuple(int(delta) for delta in _numbers(options.deltas, "--deltas", whole=True)),
        starts=tuple(_starts(options.starts)),
        planners=_planners(options.planners),
        slacks=_numbers(options.slacks, "--slacks"),
    )
    chosen = chosen_parts(options.what, LANDAU_PARTS)
    parts = {name: partial(experiment.PARTS[name], design) for name in chosen}
    _run(experiment.NAME, parts, options.run, as_json=options.as_json, verbose=options.verbose)


@app.command(short_help="Scaling for a latency, beside Kafka and KEDA.")
@with_options
def ezzeddine(options: EzzeddineOptions) -> None:
    """Scale consumers for a latency, beside Kafka's and KEDA's rules.

    As Ezzeddine et al. do.

    Workload 1 is the paper's; the curves are seeded ones with the skew of its second workload.
    """
    from trimtab_lab.papers import ezzeddine as experiment

    intervals = _durations(options.intervals, "--intervals", least=0.1)
    cooldowns = _durations(options.cooldowns, "--cooldowns")
    # The published figures are for these, so that they always take part.
    design = experiment.EzzeddineDesign(
        seeds=options.seeds,
        intervals_s=tuple(sorted({1.0, 30.0, *intervals})),
        cooldowns_s=tuple(sorted({0.0, 30.0, *cooldowns})),
    )
    chosen = chosen_parts(options.what, EZZEDDINE_PARTS)
    parts = {name: partial(experiment.PARTS[name], design) for name in chosen}
    _run(experiment.NAME, parts, options.run, as_json=options.as_json, verbose=options.verbose)


app.command("ezzeddine-live", short_help="A latency on real brokers, beside what people use.")(
    ezzeddine_live
)
app.command("landau-live", short_help="A real consumer at its peak, and response times.")(
    landau_live
)
app.command("burato", short_help="Partitioners on real brokers: throughput and latency.")(burato)


def _run(
    experiment: str,
    parts: Mapping[str, Callable[[Runner], Part]],
    options: RunOptions,
    *,
    as_json: bool,
    verbose: bool,
) -> None:
    """Runs the parts, keeps each as soon as it is there, and prints what they came to."""
    from trimtab_lab.papers.kept import keep

    configure(verbose=verbose)
    settings = load_settings()
    folder = results_folder(settings, options.page.into, experiment)
    session = spark_session(
        settings,
        master=options.master,
        conf=options.conf,
        kafka=False,
        verbose=verbose,
        packages=PACKAGES,
    )
    found: dict[str, Part] = {}
    page = folder
    for name, part in parts.items():
        found[name] = part(_runner(session, settings, f"{experiment} {name}"))
        page = keep(folder, experiment, {name: found[name]}, forms=options.page.forms)
    tell(experiment, found, page, as_json=as_json)


def _runner(session: Session, settings: Settings, title: str) -> Runner:
    """What runs cells on Spark, with a bar."""
    from trimtab_lab.papers.spark.sweep import sweep

    into = str(settings.home / "experiments" / "cells")

    def run(cells: Sequence[GridCell], work: Work, per_task: int) -> Mapping[str, Finished]:
        with progress_bar() as bar:
            task = bar.add_task(title, total=len(cells))

            def on_cells(done: int) -> None:
                bar.update(task, completed=done)

            if not talk.is_terminal:
                say(f"{title}: {len(cells)} runs")
            return sweep(session, cells, work, into=into, per_task=per_task, on_cells=on_cells)

    return run


def _numbers(
    text: str, option: str, *, whole: bool = False, least: float = 0.0
) -> tuple[float, ...]:
    """The numbers in a list with commas, each once."""
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{option} takes numbers with commas between, not {text!r}.") from error
    fit = all(least <= n < math.inf and (n.is_integer() or not whole) for n in found)
    if not found or not fit:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option} takes {kind} from {least:g} up, not {text!r}.")
    return tuple(dict.fromkeys(found))


def _durations(text: str, option: str, *, least: float = 0.0) -> tuple[float, ...]:
    """The durations in a list with commas, each once."""
    found = tuple(dict.fromkeys(seconds_or_zero(part) for part in text.split(",") if part.strip()))
    if not found or min(found) < least:
        raise typer.BadParameter(
            f"takes durations from {least:g}s up, such as 1s,10s,30s, not {text!r}",
            param_hint=option,
        )
    return found


def _starts(text: str) -> list[str]:
    starts = [part.strip() for part in text.split(",")]
    numbers = [part for part in starts if part != "uniform"]
    if numbers and max(_numbers(",".join(numbers), "--starts")) > 1:
        raise ConfigError(f"--starts takes uniform and parts of the capacity, not {text!r}.")
    return list(dict.fromkeys(["uniform", *starts]))  # the published tables are for that one


def _planners(text: str | None) -> tuple[str, ...]:
    if text is None:
        return TWELVE
    asked = dict.fromkeys(part.strip() for part in text.split(","))
    names = tuple(planner_of(Layer.CONSUMERS, name).name for name in asked)
    strange = [name for name in names if name not in TWELVE]
    if strange:
        raise ConfigError(
            f"{', '.join(strange)}: the paper has no figures of it.",
            hint="Choose among the twelve, or run --what beyond, where everybody takes part.",
        )
    return names
