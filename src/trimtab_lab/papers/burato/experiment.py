"""The experiment: each repetition saturates a setting, then runs it at fractions of that rate.

The result of every run is saved when it ends, so an interrupted experiment continues with the next
run. Kept results stay valid until --again, because runs on real brokers are never identical. Rates
are computed from kept results: cells that are added later run at the same rates. The page shows
all kept results, whichever cells were requested last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any, Protocol

from trimtab_lab.papers.burato.comparison import Gauged, gauge, parts_of
from trimtab_lab.papers.burato.design import (
    PRODUCER,
    SATURATING,
    SLOWED,
    SLOWED_PERIOD_S,
    SLOWED_SHARE,
    WARM_UP,
    BrokerRun,
    BrokerWorld,
    BuratoCell,
    ExperimentSetting,
    PolicyName,
    RunKind,
    full_grid,
    in_random_order,
    with_gauges,
)
from trimtab_lab.papers.live.kept_runs import keep, kept
from trimtab_lab.papers.part import Part

REPETITIONS = 8
DURATION_S = 1.5
OVERHEAD_S = 0.4
"""Extra time per run: starting a producer, metadata, the last acknowledgements, and waiting until
the weights are stable again."""

WORLD_S = 6.0
"""Time to set up and end a condition of the brokers."""

WARM_UP_S = 60.0
"""Time until the brokers are started and warmed up."""

OnRun = Callable[[str, int, int], None]
"""Called when a run begins: its name, how many are done, and the total."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuratoDesign:
    """What to run; with `again`, kept results are ignored."""

    cells: tuple[BuratoCell, ...]
    repetitions: int = REPETITIONS
    duration_s: float = DURATION_S
    seed: int = 0
    again: bool = False

    @property
    def estimate_s(self) -> float:
        """Estimated duration of all runs."""
        cells = with_gauges(self.cells)
        runs = self.repetitions * len(cells)
        changes = self.repetitions * len({cell.setting.world for cell in cells})
        return WARM_UP_S + runs * (self.duration_s + OVERHEAD_S) + changes * WORLD_S


class RunSite(Protocol):
    """Runs cells; `ground` implements it on real brokers."""

    def world(self, world: BrokerWorld) -> Any:
        """A context in which the brokers have the given condition."""
        ...

    def run(self, run: BrokerRun) -> dict[str, Any]:
        """The figures of one run."""
        ...


def burato(
    place: Callable[[], Any], design: BuratoDesign, folder: Path, *, on_run: OnRun
) -> dict[str, Part]:
    """Runs what is not kept yet, and returns all results as the experiment's parts.

    Args:
        place: Starts the brokers; called before the first run that is not kept.
        design: What to run.
        folder: Where the figures of runs are kept.
        on_run: Called when a run begins.
    """
    cells = with_gauges(design.cells)
    with ExitStack() as opened:
        runs = _Runs(place, opened, folder, design, on_run)
        runs.total = design.repetitions * len(cells)
        runs.of(cells)
    on_run("", runs.total, runs.total)
    return parts_of(runs.all_kept(), settings=_settings(design))


class _Runs:
    """Executes runs in random order; brokers start once, a condition lasts for all its runs."""

    def __init__(
        self,
        place: Callable[[], Any],
        opened: ExitStack,
        folder: Path,
        design: BuratoDesign,
        on_run: OnRun,
    ) -> None:
        self.total = 0
        self._open, self._opened = place, opened
        self._folder, self._design, self._on_run = folder, design, on_run
        self._place: RunSite | None = None
        self._done = 0
        self._rates: dict[tuple[ExperimentSetting, PolicyName, int], float] = {}

    def of(self, cells: Sequence[BuratoCell]) -> None:
        """Executes the runs of these cells that are not kept."""
        design = self._design
        ordered = in_random_order(
            cells, repetitions=design.repetitions, duration_s=design.duration_s, seed=design.seed
        )
        for world, of_world in groupby(ordered, key=lambda run: run.cell.setting.world):
            self._in_world(world, of_world)

    def all_kept(self) -> dict[BrokerRun, dict[str, Any]]:
        """The figures of every kept run with this duration and seed."""
        found: dict[BrokerRun, dict[str, Any]] = {}
        rates: dict[tuple[ExperimentSetting, PolicyName, int], float] = {}
        every = dict.fromkeys((*full_grid(), *with_gauges(self._design.cells)))
        for cell in sorted(every, key=lambda cell: bool(cell.load)):
            for repetition in count():
                run = _timed(
                    BrokerRun(
                        cell=cell,
                        repetition=repetition,
                        duration_s=self._design.duration_s,
                        seed=self._design.seed,
                    ),
                    rates,
                )
                figures = None if run is None else kept(self._folder, run.key, run.settings())
                if run is None or figures is None:
                    break
                found[run] = figures
                _note(rates, run, figures)
        return found

    def _in_world(self, world: BrokerWorld, runs: Iterable[BrokerRun]) -> None:
        with ExitStack() as inside:
            entered: RunSite | None = None
            for untimed in runs:
                run = _timed(untimed, self._rates)
                if run is None:
                    raise AssertionError(f"{untimed.key} comes before its gauges")
                figures = None
                if not self._design.again:
                    figures = kept(self._folder, run.key, run.settings())
                if figures is None:
                    if entered is None:
                        entered = self._opened_place()
                        inside.enter_context(entered.world(world))
                    self._on_run(run.key, self._done, self.total)
                    figures = keep(self._folder, run.key, run.settings(), entered.run(run))
                _note(self._rates, run, figures)
                self._done += 1

    def _opened_place(self) -> RunSite:
        if self._place is None:
            self._place = self._opened.enter_context(self._open())
        return self._place


def _note(
    rates: dict[tuple[ExperimentSetting, PolicyName, int], float],
    run: BrokerRun,
    figures: Mapping[str, Any],
) -> None:
    if run.cell.kind is RunKind.SATURATING:
        rates[run.cell.setting, run.cell.policy, run.repetition] = figures["records_s"]


def _timed(run: BrokerRun, rates: Gauged) -> BrokerRun | None:
    """The run with its rate; None if the throughput that its load refers to is not known."""
    if not run.cell.load:
        return run
    whole = gauge(rates, run.cell.setting, run.repetition)
    # Rounded to three digits, so that a kept run is recognised.
    return None if whole is None else replace(run, rate=float(f"{whole * run.cell.load:.3g}"))


def _settings(design: BuratoDesign) -> dict[str, Any]:
    return {
        "seconds of a run": design.duration_s,
        "first part dropped": WARM_UP,
        "linger ms": PRODUCER["linger.ms"],
        "batch bytes": PRODUCER["batch.size"],
        "buffer MiB": PRODUCER["queue.buffering.max.kbytes"] // 1024,
        "buffer MiB where it saturates": SATURATING["queue.buffering.max.kbytes"] // 1024,
        "slowed broker": f"{SLOWED}, paused for {SLOWED_SHARE:.0%} of every "
        f"{1000 * SLOWED_PERIOD_S:.0f} ms",
        "seed": design.seed,
    }
