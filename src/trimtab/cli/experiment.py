"""`trimtab experiment`: the papers' tables and figures beside ours, run on Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trimtab.cli.connection import Connection, client_properties, connection, local_cluster_runs
from trimtab.cli.durations import seconds
from trimtab.cli.options import AsJson, BootstrapServer, CommandConfig, Verbose
from trimtab.cli.output import progress_bar, result, result_json, say, talk
from trimtab.cli.signals import terminable
from trimtab.cli.spark import Conf, Master, spark_session
from trimtab.errors import ConfigError
from trimtab.evaluate.rscore import TWELVE
from trimtab.model.plan import Layer
from trimtab.observe.logging import configure
from trimtab.plan.registry import planner_of
from trimtab.settings import Settings, load_settings

if TYPE_CHECKING:
    from trimtab.experiments.grid import Cell, Finished, Work
    from trimtab.experiments.live.experiment import Design
    from trimtab.experiments.part import Part, Runner
    from trimtab.measure.spark.session import Session

app = typer.Typer(
    name="experiment",
    help="Reproduce the papers' tables and figures, and go beyond them.",
    no_args_is_help=True,
)

LANDAU_PARTS = ("tables", "headline", "latency", "beyond")
EZZEDDINE_PARTS = ("workload-1", "curve")
_MOST_ROWS = 40  # of a table for people; outside ones are always shown

Seeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Streams of each kind: seeds 0 to N - 1.")
]
Into = Annotated[
    Path | None,
    typer.Option(
        "--into",
        metavar="DIR",
        help="Folder for results, pictures and page. Default: reports/experiments/NAME under "
        "TRIMTAB_HOME.",
    ),
]
Png = Annotated[bool, typer.Option("--png", help="Draw every picture as PNG too, not only SVG.")]


@app.callback()
def _experiment() -> None:
    """Reproduce the papers' tables and figures, and go beyond them.

    Every run is kept under TRIMTAB_HOME/experiments until the code behind it changes: an experiment
    that was interrupted goes on where it stopped.
    """


@app.command(short_help="Packing planners: consumers used, load moved, latency.")
def landau(
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what",
            metavar="PART",
            help=f"Which part: {', '.join(LANDAU_PARTS)}. May be repeated. Default: all.",
        ),
    ] = None,
    seeds: Seeds = 3,
    iterations: Annotated[
        int, typer.Option("--iterations", metavar="N", min=1, help="Steps after the first.")
    ] = 500,
    partitions: Annotated[
        int, typer.Option("--partitions", metavar="N", min=1, help="Of every stream.")
    ] = 200,
    deltas: Annotated[
        str,
        typer.Option(
            "--deltas", metavar="D,…", help="How far a load goes in one step, % of the capacity."
        ),
    ] = "0,5,10,15,20,25",
    starts: Annotated[
        str,
        typer.Option(
            "--starts", metavar="S,…", help="How loads begin: uniform, or a part of the capacity."
        ),
    ] = "uniform,0,0.5,1",
    planners: Annotated[
        str | None,
        typer.Option(
            "--planners",
            metavar="P,…",
            help="Show only these of the twelve; CBS stays against all. Default: all.",
        ),
    ] = None,
    slacks: Annotated[
        str,
        typer.Option(
            "--slacks", metavar="X,…", help="Slack of trim in the part beyond, as a part."
        ),
    ] = "0.03",
    into: Into = None,
    png: Png = False,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Compare packing planners: consumers used, load moved, latency.

    As Landau et al. do.

    The published figures are for 200 partitions and 500 iterations; with others they only stand
    beside ours, unjudged.
    """
    from trimtab.experiments import landau as experiment

    design = experiment.Design(
        seeds=seeds,
        iterations=iterations,
        partitions=partitions,
        deltas=tuple(int(delta) for delta in _numbers(deltas, "--deltas", whole=True)),
        starts=tuple(_starts(starts)),
        planners=_planners(planners),
        slacks=_numbers(slacks, "--slacks"),
    )
    _run(
        experiment.NAME,
        {name: partial(experiment.PARTS[name], design) for name in _chosen(what, LANDAU_PARTS)},
        into=into,
        png=png,
        master=master,
        conf=conf,
        as_json=as_json,
        verbose=verbose,
    )


@app.command(short_help="Scaling for a latency, beside Kafka and KEDA.")
def ezzeddine(
    what: Annotated[
        list[str] | None,
        typer.Option(
            "--what",
            metavar="PART",
            help=f"Which part: {', '.join(EZZEDDINE_PARTS)}. May be repeated. Default: all.",
        ),
    ] = None,
    seeds: Seeds = 3,
    intervals: Annotated[
        str,
        typer.Option("--intervals", metavar="S,…", help="Seconds between two decisions."),
    ] = "1,10,30",
    cooldowns: Annotated[
        str,
        typer.Option(
            "--cooldowns", metavar="S,…", help="Seconds after a scaling in which there is no other."
        ),
    ] = "0,30",
    into: Into = None,
    png: Png = False,
    master: Master = None,
    conf: Conf = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Scale consumers for a latency, beside Kafka's and KEDA's rules.

    As Ezzeddine et al. do.

    Workload 1 is the paper's; the curves are seeded ones with the skew of its second workload.
    """
    from trimtab.experiments import ezzeddine as experiment

    # The published figures are for these, so that they always take part.
    design = experiment.Design(
        seeds=seeds,
        intervals_s=tuple(sorted({1.0, 30.0, *_numbers(intervals, "--intervals", least=0.1)})),
        cooldowns_s=tuple(sorted({0.0, 30.0, *_numbers(cooldowns, "--cooldowns")})),
    )
    _run(
        experiment.NAME,
        {name: partial(experiment.PARTS[name], design) for name in _chosen(what, EZZEDDINE_PARTS)},
        into=into,
        png=png,
        master=master,
        conf=conf,
        as_json=as_json,
        verbose=verbose,
    )


Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        metavar="S,…",
        help="Only these: trim, ll-ffd, mwf, cooperative-sticky, keda-lag, fixed. Default: all.",
    ),
]
LiveSeeds = Annotated[
    int, typer.Option("--seeds", metavar="N", min=1, help="Runs of each kind: seeds 0 to N - 1.")
]
Stretch = Annotated[
    float,
    typer.Option(
        "--stretch", metavar="F", min=0.02, max=10, help="Multiply all times of the load by F."
    ),
]
Again = Annotated[bool, typer.Option("--again", help="Run anew what was kept, too.")]


@app.command("ezzeddine-live", short_help="A latency on real brokers, beside what people use.")
def ezzeddine_live(
    strategies: Strategies = None,
    seeds: LiveSeeds = 1,
    stretch: Stretch = 1.0,
    again: Again = False,
    into: Into = None,
    png: Png = False,
    master: Master = None,
    conf: Conf = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Scale real consumers for a latency, on real brokers, beside Kafka's and KEDA's rules.

    Workload 1 of Ezzeddine et al., ten minutes for each strategy. Without a cluster named or
    running, a local one is brought up for it.
    """
    from trimtab.experiments.live.experiment import EZZEDDINE, Design
    from trimtab.experiments.live.plan import strategies_of

    _live(
        EZZEDDINE,
        Design(strategies=strategies_of(strategies), seeds=seeds, stretch=stretch, again=again),
        load_settings(bootstrap_server=bootstrap_server, command_config=command_config),
        into=into,
        png=png,
        master=master,
        conf=conf,
        as_json=as_json,
        verbose=verbose,
    )


@app.command("landau-live", short_help="A real consumer at its peak, and response times.")
def landau_live(
    strategies: Strategies = None,
    seeds: LiveSeeds = 1,
    stretch: Stretch = 1.0,
    scale: Annotated[
        float,
        typer.Option(
            "--scale", metavar="F", min=0.1, max=1, help="Of the sizes in Table VI, up to 678 MB."
        ),
    ] = 0.5,
    again: Again = False,
    into: Into = None,
    png: Png = False,
    master: Master = None,
    conf: Conf = None,
    bootstrap_server: BootstrapServer = None,
    command_config: CommandConfig = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Measure a real consumer's peak, and how fast a real group responds, on real brokers.

    Random walks of Landau et al. with delta 5 and 25, six minutes for each strategy. Without a
    cluster named or running, a local one is brought up for it.
    """
    from trimtab.experiments.live.experiment import LANDAU, Design
    from trimtab.experiments.live.plan import strategies_of

    _live(
        LANDAU,
        Design(
            strategies=strategies_of(strategies),
            seeds=seeds,
            stretch=stretch,
            scale=scale,
            again=again,
        ),
        load_settings(bootstrap_server=bootstrap_server, command_config=command_config),
        into=into,
        png=png,
        master=master,
        conf=conf,
        as_json=as_json,
        verbose=verbose,
    )


@app.command(short_help="Partitioners on real brokers: throughput and latency.")
def burato(
    full: Annotated[
        bool,
        typer.Option("--full", help="All combinations instead of the stated grid: about a day."),
    ] = False,
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="P,…",
            help="Only these partitioners; librdkafka is the client's own. Default: all.",
        ),
    ] = None,
    topics: Annotated[
        str | None,
        typer.Option("--topics", metavar="T,…", help="Only B1, B2, U1, U2 or U3. Default: all."),
    ] = None,
    worlds: Annotated[
        str | None,
        typer.Option(
            "--worlds", metavar="W,…", help="Only even, slowed, 'foreign load'. Default: all."
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            "--runs", metavar="N", min=1, help="Of each cell; fewer than 5 are not judged."
        ),
    ] = 8,
    duration: Annotated[
        str, typer.Option("--duration", metavar="DURATION", help="Of one run; a fifth is dropped.")
    ] = "1.5s",
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", min=0, help="Of the order and the arrivals.")
    ] = 0,
    again: Again = False,
    into: Into = None,
    png: Png = False,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Send keyless records to real brokers with every partitioner: throughput and latency.

    As Burato does, beside today's partitioners, with a slowed broker and foreign load. Brings up
    a local cluster of three brokers for it, and a steering service. What was run is kept until
    --again, and the page is of all that is kept.
    """
    from trimtab.experiments.burato import design as grid
    from trimtab.experiments.burato.experiment import NAME, Design
    from trimtab.experiments.burato.experiment import burato as experiment
    from trimtab.experiments.burato.kafka.ground import ground
    from trimtab.experiments.kept import keep

    configure(verbose=verbose)
    settings = load_settings()
    design = Design(
        cells=grid.narrowed(
            grid.full_grid() if full else grid.stated_grid(),
            policies=_listed(policies),
            topics=_listed(topics),
            worlds=_listed(worlds),
        ),
        repetitions=runs,
        duration_s=seconds(duration),
        seed=seed,
        again=again,
    )
    folder = settings.home / "experiments" / NAME
    say(f"{len(design.cells)} cells, about {design.estimate_s / 60:.0f} min if nothing is kept")
    with terminable(), _runs_shown(NAME) as on_run:
        found = experiment(
            lambda: ground(
                home=settings.home, cache=settings.cache, folder=folder, say=say, on_run=on_run
            ),
            design,
            folder,
            on_run=on_run,
        )
    pages = into or settings.reports / "experiments" / NAME
    page = keep(pages, NAME, found, forms=("svg", "png") if png else ("svg",))
    _told(NAME, found, page, as_json=as_json)


def _listed(text: str | None) -> tuple[str, ...] | None:
    """The names in a list with commas."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _live(
    experiment: str,
    design: Design,
    settings: Settings,
    *,
    into: Path | None,
    png: bool,
    master: str | None,
    conf: list[str] | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Runs a live experiment with a bar, keeps its parts, and prints what they came to."""
    from trimtab.experiments.kept import keep
    from trimtab.experiments.live.experiment import EXPERIMENTS, Live
    from trimtab.experiments.live.kafka.conduct import Place, measured
    from trimtab.measure.kafka.topics import OwnTopics

    configure(verbose=verbose)
    folder = settings.home / "experiments" / "live"
    with terminable(), _cluster(settings) as to:
        place = Place(
            bootstrap_server=to.bootstrap_server,
            properties=to.properties,
            command_config=settings.command_config,
            own=OwnTopics(settings.topic_prefix),
            folder=folder / "runs",
        )
        session = spark_session(settings, master=master, conf=conf, verbose=verbose)
        with measured(place), _runs_shown(experiment) as on_run:
            found = EXPERIMENTS[experiment](Live(place, session, folder), design, on_run=on_run)
    pages = into or settings.reports / "experiments" / experiment
    page = keep(pages, experiment, found, forms=("svg", "png") if png else ("svg",))
    _told(experiment, found, page, as_json=as_json)


@contextmanager
def _runs_shown(experiment: str) -> Iterator[Callable[[str, int, int], None]]:
    """A bar that is told which run begins; lines where there is no terminal."""
    with progress_bar() as bar:
        task = bar.add_task(experiment)

        def on_run(name: str, done: int, total: int) -> None:
            bar.update(task, description=name or experiment, completed=done, total=total)
            if not talk.is_terminal and name:
                say(f"{done + 1} of {total}: {name}" if total else name)

        yield on_run


def _told(experiment: str, found: Mapping[str, Part], page: Path, *, as_json: bool) -> None:
    """Prints what the parts came to, and where the page is."""
    say(f"results, pictures and page: {page}")
    if as_json:
        rows = [row.to_json() for part in found.values() for row in part.rows]
        result_json({"experiment": experiment, "rows": rows})
    else:
        _show(found)


@contextmanager
def _cluster(settings: Settings) -> Iterator[Connection]:
    """The cluster that is named or runs, else a local one that is there just for this."""
    from trimtab.testing.local_cluster import LocalCluster

    if settings.bootstrap_server or settings.command_config or local_cluster_runs(settings):
        yield connection(settings)
        return
    with LocalCluster(
        "live", home=settings.home, cache=settings.cache, say=say, enduring=True
    ) as running:
        yield Connection(running.bootstrap_servers, client_properties(settings))


def _run(
    experiment: str,
    parts: Mapping[str, Any],
    *,
    into: Path | None,
    png: bool,
    master: str | None,
    conf: list[str] | None,
    as_json: bool,
    verbose: bool,
) -> None:
    """Runs the parts, keeps each as soon as it is there, and prints what they came to."""
    from trimtab.experiments.kept import keep

    configure(verbose=verbose)
    settings = load_settings()
    folder = into or settings.reports / "experiments" / experiment
    session = spark_session(settings, master=master, conf=conf, kafka=False, verbose=verbose)
    found: dict[str, Part] = {}
    page = folder
    for name, part in parts.items():
        found[name] = part(_runner(session, settings, f"{experiment} {name}"))
        page = keep(
            folder, experiment, {name: found[name]}, forms=("svg", "png") if png else ("svg",)
        )
    _told(experiment, found, page, as_json=as_json)


def _runner(session: Session, settings: Settings, title: str) -> Runner:
    """What runs cells on Spark, with a bar."""
    from trimtab.experiments.spark.sweep import sweep

    into = str(settings.home / "experiments" / "cells")

    def run(cells: Sequence[Cell], work: Work, per_task: int) -> Mapping[str, Finished]:
        with progress_bar() as bar:
            task = bar.add_task(title, total=len(cells))

            def on_cells(done: int) -> None:
                bar.update(task, completed=done)

            if not talk.is_terminal:
                say(f"{title}: {len(cells)} runs")
            return sweep(session, cells, work, into=into, per_task=per_task, on_cells=on_cells)

    return run


def _show(found: Mapping[str, Part]) -> None:
    from rich import box
    from rich.table import Table

    from trimtab.experiments.markdown import shown
    from trimtab.experiments.verdict import Verdict, tally

    for name, part in found.items():
        counts = tally(part.rows)
        told = ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count)
        rows = part.rows
        if len(rows) > _MOST_ROWS:
            rows = tuple(row for row in rows if row.verdict is Verdict.OUTSIDE)
            told += "; the page has all rows" + ("" if not rows else ", here are those outside")
        if not rows:
            result(f"{name}: {told}")
            continue
        table = Table(title=f"{name}: {told}", title_justify="left", box=box.SIMPLE_HEAD)
        for column in ("what", "published", "ours", "tolerance", "verdict"):
            left = column in ("what", "verdict")
            table.add_column(column, justify="left" if left else "right", no_wrap=column != "what")
        for row in rows:
            figures = (shown(value) for value in (row.published, row.ours, row.tolerance))
            style = "red" if row.verdict is Verdict.OUTSIDE else None
            table.add_row(row.what, *figures, str(row.verdict), style=style)
        result(table)


def _chosen(asked: Sequence[str] | None, known: Collection[str]) -> list[str]:
    for name in asked or ():
        if name not in known:
            raise ConfigError(f'There is no part "{name}".', hint=f"There are {', '.join(known)}.")
    return [name for name in known if not asked or name in asked]


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
