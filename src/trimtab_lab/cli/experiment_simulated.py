"""`trimtab experiment` without brokers: landau, ezzeddine and smalops, on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.durations import seconds_or_zero
from trimtab.cli.options import AsJson, Verbose, duration_option, with_options
from trimtab.cli.output import progress_bar, say, talk
from trimtab.cli.spark import spark_session
from trimtab.errors import ConfigError
from trimtab.evaluate.rscore import TWELVE
from trimtab.model.plan import Layer
from trimtab.observe.logging import configure
from trimtab.plan.registry import planner_of
from trimtab.settings import Settings, load_settings
from trimtab_lab import PACKAGES
from trimtab_lab.cli.experiment_results import (
    RunOptions,
    chosen_parts,
    parts_option,
    results_folder,
    show_results,
)
from trimtab_lab.papers.registry import EXPERIMENTS, PaperExperiment, loaded

if TYPE_CHECKING:
    from trimtab.spark.session import Session
    from trimtab_lab.papers.grid import CellResult, GridCell, Work
    from trimtab_lab.papers.part import Part, Runner

LANDAU, EZZEDDINE, SMALOPS = (EXPERIMENTS[name] for name in ("landau", "ezzeddine", "smalops"))

Seeds = Annotated[
    int,
    typer.Option("--seeds", metavar="N", min=1, help="Streams of each kind, seeds 0 to N - 1."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LandauOptions:
    """Which streams and planners to run, and how."""

    what: Annotated[list[str] | None, parts_option(LANDAU.parts)] = None
    seeds: Seeds = 3
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=1, help="Steps after the first one.")
    ] = 500
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Partitions of every stream.")
    ] = 200
    deltas: Annotated[
        str,
        typer.Option(
            "--deltas",
            metavar="D,…",
            help="Largest change of a load in one step, in % of the capacity.",
        ),
    ] = "0,5,10,15,20,25"
    starts: Annotated[
        str,
        typer.Option(
            "--starts",
            metavar="S,…",
            help="Initial loads: uniform, or a fraction of the capacity.",
        ),
    ] = "uniform,0,0.5,1"
    planners: Annotated[
        str | None,
        typer.Option(
            "--planners",
            metavar="P,…",
            help="Planners to show, of the twelve; CBS is still computed over all. Default: all.",
        ),
    ] = None
    slacks: Annotated[
        str,
        typer.Option(
            "--slacks", metavar="X,…", help="Slack of trim in part beyond, as a fraction."
        ),
    ] = "0.03"
    run: RunOptions
    as_json: AsJson = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EzzeddineOptions:
    """How often the autoscalers decide, and how the experiment runs."""

    what: Annotated[list[str] | None, parts_option(EZZEDDINE.parts)] = None
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
            help="Shortest time between two scalings.",
        ),
    ] = "0s,30s"
    run: RunOptions
    as_json: AsJson = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SmalopsExperimentOptions:
    """How long and how often the simulations run."""

    what: Annotated[list[str] | None, parts_option(SMALOPS.parts)] = None
    seeds: Seeds = 2
    duration: Annotated[
        float,
        duration_option(
            "--duration",
            shown="60s",
            help="Length of a steady run; runs with shifting keys are four times as long.",
        ),
    ] = 60.0
    again: Annotated[
        bool, typer.Option("--again", help="Repeat runs whose results are kept from earlier.")
    ] = False
    run: RunOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def landau(options: LandauOptions) -> None:
    """Compare packing planners: consumers used, load moved, latency.

    Reproduces Landau et al.

    The published figures are for 200 partitions and 500 iterations; with other values they are
    shown for information and not checked.
    """
    from trimtab_lab.papers.landau.design import LandauDesign

    design = LandauDesign(
        seeds=options.seeds,
        iterations=options.iterations,
        partitions=options.partitions,
        deltas=tuple(int(delta) for delta in _numbers(options.deltas, "--deltas", whole=True)),
        starts=tuple(_starts(options.starts)),
        planners=_planners(options.planners),
        slacks=_numbers(options.slacks, "--slacks"),
    )
    parts = _parts(LANDAU, options.what, design)
    _run(LANDAU.name, parts, options.run, as_json=options.as_json, verbose=options.verbose)


@with_options
def ezzeddine(options: EzzeddineOptions) -> None:
    """Scale simulated consumers to meet a latency target; compare with Kafka's and KEDA's rules.

    Reproduces Ezzeddine et al.

    Workload 1 is the paper's; the curves are generated from seeds, with the skew of the paper's
    second workload.
    """
    from trimtab_lab.papers.ezzeddine.experiment import EzzeddineDesign

    intervals = _durations(options.intervals, "--intervals", least=0.1)
    cooldowns = _durations(options.cooldowns, "--cooldowns")
    # The published figures are for these intervals and cooldowns, so they are always included.
    design = EzzeddineDesign(
        seeds=options.seeds,
        intervals_s=tuple(sorted({1.0, 30.0, *intervals})),
        cooldowns_s=tuple(sorted({0.0, 30.0, *cooldowns})),
    )
    parts = _parts(EZZEDDINE, options.what, design)
    _run(EZZEDDINE.name, parts, options.run, as_json=options.as_json, verbose=options.verbose)


@with_options
def smalops(options: SmalopsExperimentOptions) -> None:
    """Balance hot keys over partitions: delays, migrations and rivals.

    Reproduces Bhattacharya & Wood (SMALOPS) as queues.

    The expected figures are means of at least two seeds of 60 s; with less they are shown for
    information and not checked. Part workload does not depend on the duration.
    """
    from trimtab_lab.papers.smalops.design import LEAST_DURATION_S, SmalopsDesign

    if options.duration < LEAST_DURATION_S:
        raise ConfigError(
            f"--duration must be at least {LEAST_DURATION_S:g}s: "
            "the first window of 10 s is warm-up."
        )
    design = SmalopsDesign(seeds=options.seeds, duration_s=options.duration)
    parts = _parts(SMALOPS, options.what, design)
    _run(
        SMALOPS.name,
        parts,
        options.run,
        again=options.again,
        as_json=options.as_json,
        verbose=options.verbose,
    )


def _parts(
    experiment: PaperExperiment, what: Sequence[str] | None, design: object
) -> dict[str, Callable[[Runner], Part]]:
    """The functions of the requested parts."""
    chosen = chosen_parts(what, experiment.parts)
    return {name: partial(loaded(experiment.runs)[name], design) for name in chosen}


def _run(
    experiment: str,
    parts: Mapping[str, Callable[[Runner], Part]],
    options: RunOptions,
    *,
    as_json: bool,
    verbose: bool,
    again: bool = False,
) -> None:
    """Runs the parts, keeps each as soon as it is finished, and prints the results."""
    from trimtab_lab.papers.results import keep

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
        found[name] = part(_runner(session, settings, f"{experiment} {name}", again=again))
        page = keep(folder, experiment, {name: found[name]}, forms=options.page.forms)
    show_results(experiment, found, page, as_json=as_json)


def _runner(session: Session, settings: Settings, title: str, *, again: bool) -> Runner:
    """Returns a function that runs cells on Spark and shows a progress bar."""
    from trimtab_lab.papers.spark.sweep import sweep

    into = str(settings.home / "experiments" / "cells")

    def run(cells: Sequence[GridCell], work: Work, per_task: int) -> Mapping[str, CellResult]:
        with progress_bar() as bar:
            task = bar.add_task(title, total=len(cells))

            def on_cells(done: int) -> None:
                bar.update(task, completed=done)

            if not talk.is_terminal:
                say(f"{title}: {len(cells)} runs")
            return sweep(
                session,
                cells,
                work,
                into=into,
                per_task=per_task,
                again=again,
                on_cells=on_cells,
            )

    return run


def _numbers(
    text: str, option: str, *, whole: bool = False, least: float = 0.0
) -> tuple[float, ...]:
    """The numbers in a comma-separated list, without duplicates."""
    try:
        found = [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise ConfigError(f"{option} takes comma-separated numbers, not {text!r}.") from error
    fit = all(least <= n < math.inf and (n.is_integer() or not whole) for n in found)
    if not found or not fit:
        kind = "whole numbers" if whole else "numbers"
        raise ConfigError(f"{option} takes {kind} of at least {least:g}, not {text!r}.")
    return tuple(dict.fromkeys(found))


def _durations(text: str, option: str, *, least: float = 0.0) -> tuple[float, ...]:
    """The durations in a comma-separated list, without duplicates."""
    found = tuple(dict.fromkeys(seconds_or_zero(part) for part in text.split(",") if part.strip()))
    if not found or min(found) < least:
        raise typer.BadParameter(
            f"takes durations of at least {least:g}s, such as 1s,10s,30s, not {text!r}",
            param_hint=option,
        )
    return found


def _starts(text: str) -> list[str]:
    starts = [part.strip() for part in text.split(",")]
    numbers = [part for part in starts if part != "uniform"]
    if numbers and max(_numbers(",".join(numbers), "--starts")) > 1:
        raise ConfigError(f"--starts takes uniform or numbers from 0 to 1, not {text!r}.")
    return list(dict.fromkeys(["uniform", *starts]))  # the published tables need uniform


def _planners(text: str | None) -> tuple[str, ...]:
    if text is None:
        return TWELVE
    asked = dict.fromkeys(part.strip() for part in text.split(","))
    names = tuple(planner_of(Layer.CONSUMERS, name).name for name in asked)
    others = [name for name in names if name not in TWELVE]
    if others:
        raise ConfigError(
            f"The paper has no figures for {', '.join(others)}.",
            hint=f"Use some of {', '.join(TWELVE)}, or --what beyond, which runs all planners.",
        )
    return names
