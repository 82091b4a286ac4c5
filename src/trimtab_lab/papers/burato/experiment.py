"""The experiment: in each repetition a setting is saturated, then loaded with parts of that.

Every run is kept as soon as it is over, so that an experiment that was stopped goes on with the
next one. What is kept holds until it is asked for anew: no two runs on brokers are ever equal.
Rates follow from what is kept: whoever asks for more cells later gets them at the same rates. The
page is of all that is kept, whatever was asked for last.
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
    PolicyName,
    RunKind,
    Setting,
    full_grid,
    in_random_order,
    with_gauges,
)
from trimtab_lab.papers.live.kept_runs import keep, kept
from trimtab_lab.papers.part import Part

NAME = "burato"
REPETITIONS = 8
DURATION_S = 1.5
OVERHEAD_S = 0.4
"""What a run takes beside its own time: a producer, its metadata, the last acknowledgements, and
where weights were moved until they are back."""

WORLD_S = 6.0
"""What it takes to enter and leave a world."""

WARM_UP_S = 60.0
"""What brokers take until they are up and warm."""

OnRun = Callable[[str, int, int], None]
"""Is told which run begins, how many are done and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuratoDesign:
    """What is run; `again` forgets what was kept."""

    cells: tuple[BuratoCell, ...]
    repetitions: int = REPETITIONS
    duration_s: float = DURATION_S
    seed: int = 0
    again: bool = False

    @property
    def estimate_s(self) -> float:
        """About how long all of it takes."""
        cells = with_gauges(self.cells)
        runs = self.repetitions * len(cells)
        changes = self.repetitions * len({cell.setting.world for cell in cells})
        return WARM_UP_S + runs * (self.duration_s + OVERHEAD_S) + changes * WORLD_S


class RunSite(Protocol):
    """Where runs take place: `ground` on real brokers."""

    def world(self, world: BrokerWorld) -> Any:
        """A block inside which the brokers are as a world has them."""
        ...

    def run(self, run: BrokerRun) -> dict[str, Any]:
        """The figures of one run."""
        ...


def burato(
    place: Callable[[], Any], design: BuratoDesign, folder: Path, *, on_run: OnRun
) -> dict[str, Part]:
    """All runs, kept ones included, as the experiment's parts.

    Args:
        place: Opens the place, when the first run that was not kept needs it.
        design: What is run.
        folder: Keeps the figures of runs.
        on_run: Is told how far it is.
    """
    cells = with_gauges(design.cells)
    with ExitStack() as opened:
        runs = _Runs(place, opened, folder, design, on_run)
        runs.total = design.repetitions * len(cells)
        runs.of(cells)
    on_run("", runs.total, runs.total)
    return parts_of(runs.all_kept(), settings=_settings(design))


class _Runs:
    """Runs in random order; the place is opened once, and a world stays while runs are of it."""

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
        self._rates: dict[tuple[Setting, PolicyName, int], float] = {}

    def of(self, cells: Sequence[BuratoCell]) -> None:
        """Runs what is not kept of these cells."""
        design = self._design
        ordered = in_random_order(
            cells, repetitions=design.repetitions, duration_s=design.duration_s, seed=design.seed
        )
        for world, of_world in groupby(ordered, key=lambda run: run.cell.setting.world):
            self._in_world(world, of_world)

    def all_kept(self) -> dict[BrokerRun, dict[str, Any]]:
        """The figures of every run that is kept for this length and seed."""
        found: dict[BrokerRun, dict[str, Any]] = {}
        rates: dict[tuple[Setting, PolicyName, int], float] = {}
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
    rates: dict[tuple[Setting, PolicyName, int], float], run: BrokerRun, figures: Mapping[str, Any]
) -> None:
    if run.cell.kind is RunKind.SATURATING:
        rates[run.cell.setting, run.cell.policy, run.repetition] = figures["records_s"]


def _timed(run: BrokerRun, rates: Gauged) -> BrokerRun | None:
    """The run at its rate; None where nothing says what its load is a part of."""
    if not run.cell.load:
        return run
    whole = gauge(rates, run.cell.setting, run.repetition)
    # To three digits, so that a run that is known is known again.
    return None if whole is None else replace(run, rate=float(f"{whole * run.cell.load:.3g}"))


def _settings(design: BuratoDesign) -> dict[str, Any]:
    return {
        "seconds of a run": design.duration_s,
        "first part dropped": WARM_UP,
        "linger ms": PRODUCER["linger.ms"],
        "batch bytes": PRODUCER["batch.size"],
        "buffer MiB": PRODUCER["queue.buffering.max.kbytes"] // 1024,
        "buffer MiB where it saturates": SATURATING["queue.buffering.max.kbytes"] // 1024,
        "slowed broker": f"{SLOWED}, standing still for {SLOWED_SHARE:.0%} of every "
        f"{1000 * SLOWED_PERIOD_S:.0f} ms",
        "seed": design.seed,
    }
