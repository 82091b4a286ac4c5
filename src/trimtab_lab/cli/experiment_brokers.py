"""`trimtab experiment` on real brokers: ezzeddine-live, landau-live and burato."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from trimtab.cli.connection import ClusterOptions, cluster_of, local_cluster_runs
from trimtab.cli.numbers import finite
from trimtab.cli.options import AsJson, Verbose, duration_option, with_options
from trimtab.cli.output import progress_bar, say, talk
from trimtab.cli.signals import terminable
from trimtab.cli.spark import spark_session
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.observe.logging import configure
from trimtab.settings import Settings, load_settings
from trimtab_lab import PACKAGES
from trimtab_lab.cli.experiment_results import (
    PageOptions,
    RunOptions,
    chosen_parts,
    parts_option,
    results_folder,
    show_results,
)
from trimtab_lab.papers.registry import EXPERIMENTS, PaperExperiment, loaded

if TYPE_CHECKING:
    from trimtab_lab.papers.burato.experiment import BuratoDesign
    from trimtab_lab.papers.live.experiment import LiveDesign

EZZEDDINE_LIVE, LANDAU_LIVE = EXPERIMENTS["ezzeddine-live"], EXPERIMENTS["landau-live"]
BURATO = EXPERIMENTS["burato"]
Strategies = Annotated[
    str | None,
    typer.Option(
        "--strategies",
        metavar="S,…",
        help="Only these: trim, ll-ffd, ll-ffd-group, mwf, cooperative-sticky, keda-lag, fixed. "
        "Default: all strategies of the workload.",
    ),
]
LiveSeeds = Annotated[
    int,
    typer.Option("--seeds", metavar="N", min=1, help="Runs per strategy, with seeds 0 to N - 1."),
]
Stretch = Annotated[
    float,
    typer.Option(
        "--stretch",
        metavar="F",
        min=0.02,
        max=10,
        callback=finite,
        help="Multiply all durations of the load by F; below 1 the run is shorter.",
    ),
]
Again = Annotated[
    bool, typer.Option("--again", help="Repeat runs whose results are kept from earlier.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveOptions:
    """How and on which cluster a live experiment runs, and where its results are written."""

    run: RunOptions
    of: ClusterOptions
    as_json: AsJson = False
    verbose: Verbose = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EzzeddineLiveOptions:
    """Which strategies run, and how long the load lasts."""

    strategies: Strategies = None
    seeds: LiveSeeds = 1
    stretch: Stretch = 1.0
    again: Again = False
    shared: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class LandauLiveOptions:
    """Which parts and strategies run, and the size of the loads."""

    what: Annotated[list[str] | None, parts_option(LANDAU_LIVE.parts)] = None
    strategies: Strategies = None
    seeds: LiveSeeds = 1
    stretch: Stretch = 1.0
    scale: Annotated[
        float,
        typer.Option(
            "--scale",
            metavar="F",
            min=0.1,
            max=1,
            callback=finite,
            help="Fraction of the data sizes in Table VI (up to 678 MB) to use.",
        ),
    ] = 0.5
    again: Again = False
    shared: LiveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class BuratoOptions:
    """Which cells of the grid run, and how often."""

    full: Annotated[
        bool,
        typer.Option(
            "--full", help="Run all combinations instead of the default grid; takes about a day."
        ),
    ] = False
    policies: Annotated[
        str | None,
        typer.Option(
            "--policies",
            metavar="P,…",
            help="Partitioners to run; librdkafka is the client's built-in one. Default: all.",
        ),
    ] = None
    topics: Annotated[
        str | None,
        typer.Option(
            "--topics", metavar="T,…", help="Topics to run: B1, B2, U1, U2, U3. Default: all."
        ),
    ] = None
    worlds: Annotated[
        str | None,
        typer.Option(
            "--worlds",
            metavar="W,…",
            help="Conditions to run: even, slowed, 'foreign load'. Default: all.",
        ),
    ] = None
    runs: Annotated[
        int,
        typer.Option(
            "--runs",
            metavar="N",
            min=1,
            help="Runs of each cell; with fewer than 5, bars are not checked.",
        ),
    ] = 8
    duration: Annotated[
        float,
        duration_option(
            "--duration",
            shown="1.5s",
            help="Duration of one run; the first fifth is discarded.",
        ),
    ] = 1.5
    seed: Annotated[
        int,
        typer.Option("--seed", metavar="N", min=0, help="Seed of the run order and the arrivals."),
    ] = 0
    again: Again = False
    page: PageOptions
    as_json: AsJson = False
    verbose: Verbose = False


@with_options
def ezzeddine_live(options: EzzeddineLiveOptions) -> None:
    """Scale real consumers to meet a latency target on real brokers; compare with Kafka and KEDA.

    Runs workload 1 of Ezzeddine et al., ten minutes for each strategy. If no cluster is named or
    running, a local one is started for the experiment.
    """
    from trimtab_lab.papers.live.experiment import LiveDesign
    from trimtab_lab.papers.live.plan import LiveWorkload, strategies_of

    design = LiveDesign(
        strategies=strategies_of(options.strategies, LiveWorkload.EZZEDDINE_1.strategies),
        seeds=options.seeds,
        stretch=options.stretch,
        again=options.again,
    )
    _live(EZZEDDINE_LIVE, design, options.shared)


@with_options
def landau_live(options: LandauLiveOptions) -> None:
    """Measure a real consumer's peak rate and a real group's response times, on real brokers.

    Runs random walks of Landau et al. with delta 5 and 25: in records/s, six minutes for each
    strategy; in bytes/s, with records of different sizes, nine minutes. Kept results of other
    parts stay on the page. If no cluster is named or running, a local one is started for the
    experiment.
    """
    from trimtab_lab.papers.live.experiment import WALKS, LandauPart, LiveDesign
    from trimtab_lab.papers.live.plan import strategies_of

    parts = tuple(LandauPart(name) for name in chosen_parts(options.what, LANDAU_LIVE.parts))
    known = [s for walk in WALKS if LandauPart(walk) in parts for s in walk.strategies]
    design = LiveDesign(
        strategies=strategies_of(options.strategies, known),
        what=parts,
        seeds=options.seeds,
        stretch=options.stretch,
        scale=options.scale,
        again=options.again,
    )
    _live(LANDAU_LIVE, design, options.shared)


@with_options
def burato(options: BuratoOptions) -> None:
    """Send keyless records to real brokers with every partitioner: throughput and latency.

    Repeats Burato's measurements and adds today's partitioners, a slowed broker, and load from
    another producer. Starts a local cluster of three brokers and a steering service. Results are
    kept until --again is given; the page shows all kept results.
    """
    from trimtab_lab.papers.burato.kafka.brokers import ground
    from trimtab_lab.papers.results import keep

    configure(verbose=options.verbose)
    settings = load_settings()
    design = _burato_design(options)
    pages = results_folder(settings, options.page.into, BURATO.name)
    folder = settings.home / "experiments" / BURATO.name
    say(f"{len(design.cells)} cells, about {design.estimate_s / 60:.0f} min if none is kept")
    with terminable(), _runs_shown(BURATO.name) as on_run:
        found = loaded(BURATO.runs)(
            lambda: ground(
                home=settings.home, cache=settings.cache, folder=folder, say=say, on_run=on_run
            ),
            design,
            folder,
            on_run=on_run,
        )
    page = keep(pages, BURATO.name, found, forms=options.page.forms)
    show_results(BURATO.name, found, page, as_json=options.as_json)


def _burato_design(options: BuratoOptions) -> BuratoDesign:
    from trimtab_lab.papers.burato import design as grid
    from trimtab_lab.papers.burato.experiment import BuratoDesign

    return BuratoDesign(
        cells=grid.narrowed(
            grid.full_grid() if options.full else grid.default_grid(),
            policies=_listed(options.policies),
            topics=_listed(options.topics),
            worlds=_listed(options.worlds),
        ),
        repetitions=options.runs,
        duration_s=options.duration,
        seed=options.seed,
        again=options.again,
    )


def _listed(text: str | None) -> tuple[str, ...] | None:
    """The names in a comma-separated list."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


def _live(experiment: PaperExperiment, design: LiveDesign, options: LiveOptions) -> None:
    """Runs a live experiment with a progress bar, keeps its parts, and prints their results."""
    from trimtab_lab.papers.live.experiment import LiveExperiment
    from trimtab_lab.papers.live.kafka.live_site import LiveSite
    from trimtab_lab.papers.results import keep

    configure(verbose=options.verbose)
    settings, run = options.of.settings(), options.run
    pages = results_folder(settings, run.page.into, experiment.name)
    folder = settings.home / "experiments" / "live"
    with terminable(), _cluster(settings) as to:
        place = LiveSite(
            cluster=to,
            command_config=settings.command_config,
            folder=folder / "runs",
        )
        session = spark_session(
            settings,
            master=run.master,
            conf=run.conf,
            verbose=options.verbose,
            packages=PACKAGES,
        )
        with _runs_shown(experiment.name) as on_run:
            found = loaded(experiment.runs)(
                LiveExperiment(place, session, folder), design, on_run=on_run
            )
    page = keep(pages, experiment.name, found, forms=run.page.forms)
    show_results(experiment.name, found, page, as_json=options.as_json)


@contextmanager
def _runs_shown(experiment: str) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar that shows the current run; prints lines if there is no terminal."""
    with progress_bar() as bar:
        task = bar.add_task(experiment)

        def on_run(name: str, done: int, total: int) -> None:
            bar.update(task, description=name or experiment, completed=done, total=total)
            if not talk.is_terminal and name:
                say(f"{done + 1} of {total}: {name}" if total else name)

        yield on_run


@contextmanager
def _cluster(settings: Settings) -> Iterator[Cluster]:
    """The cluster that is named or running, else a local one that lives only for this block."""
    from trimtab.local.cluster import LocalCluster

    if settings.bootstrap_server or settings.command_config or local_cluster_runs(settings):
        yield cluster_of(settings)
        return
    with LocalCluster(
        "live", home=settings.home, cache=settings.cache, say=say, enduring=True
    ) as running:
        yield Cluster(
            running.bootstrap_servers,
            topics=OwnTopics(settings.topic_prefix),
            timeouts=settings.timeouts.value,
        )
