"""The two live experiments: their runs, and the parts made from the results.

The result of every run is saved when it has been evaluated, so an interrupted experiment continues
with the next run. Kept results stay valid until --again: live runs are never identical, and they
depend on half of the project's code. A run whose load was not sent on schedule cannot be compared:
it is repeated, and the page states how often.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from trimtab_lab.papers.live import comparison
from trimtab_lab.papers.live.distributions import curve, levels
from trimtab_lab.papers.live.kept_runs import keep, kept
from trimtab_lab.papers.live.plan import (
    LATE_AT_MOST,
    LiveRun,
    LiveWorkload,
    Strategy,
    Timeline,
    runs_of,
)
from trimtab_lab.papers.live.response import response_times
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import landau as landau_paper

if TYPE_CHECKING:
    from trimtab.spark.session import Session
    from trimtab_lab.papers.live.kafka.live_site import LiveSite

log = structlog.get_logger()

TRIES = 3
"""How often a run is tried whose load is late each time."""

WARM_UP = 0.25
"""Duration of the warm-up, as a fraction of a run."""

EDGES_S = tuple(round(0.001 * 10 ** (k / 8), 5) for k in range(41))

OnRun = Callable[[str, int, int], None]
"""Called when a run begins: its name, how many are done, and the total."""


class LandauPart(StrEnum):
    """The parts of the live experiment after Landau et al."""

    PEAK = "peak"
    DELTA_5 = str(LiveWorkload.LANDAU_5)
    DELTA_25 = str(LiveWorkload.LANDAU_25)
    BYTES_5 = str(LiveWorkload.BYTES_5)
    BYTES_25 = str(LiveWorkload.BYTES_25)


WALKS = tuple(LiveWorkload(part) for part in LandauPart if part is not LandauPart.PEAK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDesign:
    """What to run; `scale` applies to Table VI's sizes, with `again` kept results are ignored.

    `what` is only used by Landau's experiment.
    """

    strategies: tuple[Strategy, ...] = tuple(Strategy)
    what: tuple[LandauPart, ...] = tuple(LandauPart)
    seeds: int = 1
    stretch: float = 1.0
    scale: float = 0.5
    again: bool = False


@dataclass(frozen=True, slots=True)
class LiveExperiment:
    """Executes and evaluates runs; their figures are kept in `folder`."""

    place: LiveSite
    session: Session
    folder: Path

    def runs(self, runs: Sequence[LiveRun], *, again: bool, on_run: OnRun) -> comparison.Found:
        """The figures of all runs, including kept ones."""
        found: dict[LiveRun, Mapping[str, Any]] = {}
        measured_s: float | None = None
        with ExitStack() as measuring:
            for done, run in enumerate(runs):
                known = None if again else kept(self.folder, run.key, run.settings())
                if known is None and run.window_s != measured_s:
                    measuring.close()
                    measuring.enter_context(self._measured(run.window_s))
                    if measured_s is None:
                        on_run("warm-up", done, len(runs))
                        self._warm_up(run)
                    measured_s = run.window_s
                on_run(run.key, done, len(runs))
                found[run] = self._on_schedule(run, found) if known is None else known
        on_run("", len(runs), len(runs))
        return found

    def _measured(self, window_s: float) -> AbstractContextManager[None]:
        """Runs one Spark pipeline with this window for all runs inside the block."""
        from trimtab_lab.papers.live.kafka.live_site import measured

        return measured(self.place, window_s=window_s)

    def _warm_up(self, run: LiveRun) -> None:
        """Warm-up; results discarded: the first run after the brokers' start would be slower."""
        from trimtab_lab.papers.live.kafka.live_run import conduct
        from trimtab_lab.papers.live.kafka.live_site import delete_topics

        short = replace(run, strategy=Strategy.OURS, stretch=run.stretch * WARM_UP)
        delete_topics(self.place, conduct(short, self.place))

    def _on_schedule(self, run: LiveRun, found: comparison.Found) -> dict[str, Any]:
        """The figures of a run whose load was sent on schedule, or of the last try."""
        figures: dict[str, Any] = {}
        for tries in range(1, TRIES + 1):
            figures = {**self._run(run, found), "tries": tries}
            if figures["late"] <= LATE_AT_MOST * figures["records"]:
                break
            log.warning("load_sent_late", run=run.key, late=figures["late"], tries=tries)
        return keep(self.folder, run.key, run.settings(), figures)

    def _run(self, run: LiveRun, found: comparison.Found) -> dict[str, Any]:
        from trimtab_lab.papers.live.kafka.live_run import conduct
        from trimtab_lab.papers.live.kafka.live_site import delete_topics
        from trimtab_lab.papers.live.kafka.run_records import run_records
        from trimtab_lab.papers.live.spark.run_figures import run_figures

        replay: Timeline = ()
        if run.strategy is Strategy.STICKY:
            ours = next(
                f
                for r, f in found.items()
                if (r.strategy, r.workload, r.seed) == (Strategy.OURS, run.workload, run.seed)
            )
            replay = tuple((t_s, n) for t_s, n in ours["replicas"])
        conducted = conduct(run, self.place, replay=replay)
        figures = run_figures(self.session, self.place, conducted)
        if run.strategy.controlled:
            figures["responses"] = response_times(run_records(self.place, conducted))
        delete_topics(self.place, conducted)
        return figures

    def peaks(self, design: LiveDesign, *, on_run: OnRun) -> dict[str, Mapping[str, Any]]:
        """The consumer's peak rate in each test of Table VI."""
        from trimtab_lab.papers.live.kafka.peak import peak

        found: dict[str, Mapping[str, Any]] = {}
        conditions = landau_paper.PEAK_CONDITIONS
        for done, (name, (megabytes, partitions, tables)) in enumerate(conditions.items()):
            on_run(f"peak {name}", done, len(conditions))
            asked = {"megabytes": megabytes * design.scale, "of": [partitions, tables]}
            key = f"peak-{name.replace(' ', '-')}"
            known = None if design.again else kept(self.folder, key, asked)
            found[name] = known or keep(
                self.folder,
                key,
                asked,
                peak(
                    self.place,
                    megabytes=megabytes * design.scale,
                    partitions=partitions,
                    tables=tables,
                ),
            )
        on_run("", len(conditions), len(conditions))
        return found


def ezzeddine_live(live: LiveExperiment, design: LiveDesign, *, on_run: OnRun) -> dict[str, Part]:
    """Runs workload 1 with every strategy."""
    runs = runs_of(
        [LiveWorkload.EZZEDDINE_1], design.strategies, seeds=design.seeds, stretch=design.stretch
    )
    found = live.runs(runs, again=design.again, on_run=on_run)
    return {"live-workload-1": comparison.comparison(found, LiveWorkload.EZZEDDINE_1)}


def landau_live(live: LiveExperiment, design: LiveDesign, *, on_run: OnRun) -> dict[str, Part]:
    """Peak rates, random walks with every strategy, and the response times in them."""
    parts = {}
    if LandauPart.PEAK in design.what:
        parts["peak"] = comparison.peak(live.peaks(design, on_run=on_run), scale=design.scale)
    walks = [walk for walk in WALKS if LandauPart(walk) in design.what]
    runs = runs_of(walks, design.strategies, seeds=design.seeds, stretch=design.stretch)
    found = live.runs(runs, again=design.again, on_run=on_run)
    for walk in walks:
        if any(run.workload is walk for run in runs):  # a walk may have none of the strategies
            parts[f"live-{walk}"] = comparison.comparison(found, walk)
    for name, in_bytes in (("responses", False), ("responses-bytes", True)):
        spans = {str(walk): _spans(found, walk) for walk in walks if walk.in_bytes is in_bytes}
        if known := {walk: each for walk, each in spans.items() if each}:
            parts[name] = comparison.responses(known, stretch=design.stretch)
    return parts


def _spans(found: comparison.Found, walk: LiveWorkload) -> dict[str, dict[str, Any]]:
    """The four response times of all runs with Landau's planner on a walk."""
    together: dict[str, list[float]] = {}
    for run, figures in found.items():
        if run.workload is walk and run.strategy is Strategy.MWF:
            for name, values in figures["responses"].items():
                together.setdefault(name, []).extend(values)
    return {
        name: {
            "observations": len(values),
            "levels": dict(levels(values)),
            "edges_s": list(EDGES_S),
            "within": curve(values, EDGES_S) if values else [],
        }
        for name, values in together.items()
    }
