"""The experiment: saturating runs first, then open loops at parts of the best throughput found.

Every run is kept as soon as it is over, so that an experiment that was stopped goes on with the
next one. What is kept holds until it is asked for anew: no two runs on brokers are ever equal. So
does the best throughput of a setting, which rates are parts of: whoever asks for more cells later
gets them at the same rates. The page is of all that is kept, whatever was asked for last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import count, groupby
from pathlib import Path
from typing import Any, Protocol

from trimtab.experiments.burato.comparison import best_rates, parts_of
from trimtab.experiments.burato.design import (
    PRODUCER,
    SATURATING,
    SLOWED,
    SLOWED_PERIOD_S,
    SLOWED_SHARE,
    WARM_UP,
    BrokerRun,
    Cell,
    Setting,
    World,
    full_grid,
    gauged,
    in_random_order,
)
from trimtab.experiments.live.kept_runs import keep, kept
from trimtab.experiments.part import Part

NAME = "burato"
REPETITIONS = 5
DURATION_S = 3.0
OVERHEAD_S = 0.3
"""What a run takes beside its own time: a producer, its metadata, the last acknowledgements."""

WORLD_S = 6.0
"""What it takes to enter and leave a world."""

WARM_UP_S = 60.0
"""What brokers take until they are up and warm."""

OnRun = Callable[[str, int, int], None]
"""Is told which run begins, how many are done and how many there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What is run; `again` forgets what was kept."""

    cells: tuple[Cell, ...]
    repetitions: int = REPETITIONS
    duration_s: float = DURATION_S
    seed: int = 0
    again: bool = False

    @property
    def estimate_s(self) -> float:
        """About how long all of it takes."""
        saturating, open_loop = gauged(self.cells)
        runs = self.repetitions * (len(saturating) + len(open_loop))
        worlds = [{cell.setting.world for cell in cells} for cells in (saturating, open_loop)]
        changes = self.repetitions * sum(len(each) for each in worlds)
        return WARM_UP_S + runs * (self.duration_s + OVERHEAD_S) + changes * WORLD_S


class Place(Protocol):
    """Where runs take place: `ground` on real brokers."""

    def world(self, world: World) -> Any:
        """A block inside which the brokers are as a world has them."""
        ...

    def run(self, run: BrokerRun) -> dict[str, Any]:
        """The figures of one run."""
        ...


def burato(
    place: Callable[[], Any], design: Design, folder: Path, *, on_run: OnRun
) -> dict[str, Part]:
    """All runs, kept ones included, as the experiment's parts.

    Args:
        place: Opens the place, when the first run that was not kept needs it.
        design: What is run.
        folder: Keeps the figures of runs.
        on_run: Is told how far it is.
    """
    saturating, open_loop = gauged(design.cells)
    with ExitStack() as opened:
        runs = _Runs(place, opened, folder, design, on_run)
        runs.total = design.repetitions * (len(saturating) + len(open_loop))
        runs.of(saturating)
        runs.gauge()
        runs.of(open_loop)
    on_run("", runs.total, runs.total)
    return parts_of(runs.all_kept(), settings=_settings(design))


class _Runs:
    """Runs in random order; the place is opened once, and a world stays while runs are of it."""

    def __init__(
        self,
        place: Callable[[], Any],
        opened: ExitStack,
        folder: Path,
        design: Design,
        on_run: OnRun,
    ) -> None:
        self.total = 0
        self._open, self._opened = place, opened
        self._folder, self._design, self._on_run = folder, design, on_run
        self._place: Place | None = None
        self._done = 0
        self._anew: set[BrokerRun] = set()
        self._best: dict[Setting, float] = {}

    def of(self, cells: Sequence[Cell]) -> None:
        """Runs what is not kept of these cells."""
        design = self._design
        ordered = in_random_order(
            cells, repetitions=design.repetitions, duration_s=design.duration_s, seed=design.seed
        )
        timed = [self._timed(run) for run in ordered]
        for world, of_world in groupby(timed, key=lambda run: run.cell.setting.world):
            together = list(of_world)
            missing = [run for run in together if self._known(run) is None]
            self._done += len(together) - len(missing)
            if missing:
                self._in_world(world, missing)

    def gauge(self) -> None:
        """Keeps the best throughput of every setting that has none yet."""
        for setting, rate in best_rates(self.all_kept()).items():
            asked = {"duration_s": self._design.duration_s}
            known = None if self._design.again else kept(self._folder, _gauge(setting), asked)
            found = known or keep(self._folder, _gauge(setting), asked, {"records_s": rate})
            self._best[setting] = found["records_s"]

    def all_kept(self) -> dict[BrokerRun, dict[str, Any]]:
        """The figures of every run that is kept for this length and seed."""
        found: dict[BrokerRun, dict[str, Any]] = {}
        for cell in dict.fromkeys((*full_grid(), *self._design.cells)):
            if cell.load and cell.setting not in self._best:
                continue
            for repetition in count():
                run = self._timed(
                    BrokerRun(
                        cell=cell,
                        repetition=repetition,
                        duration_s=self._design.duration_s,
                        seed=self._design.seed,
                    )
                )
                figures = kept(self._folder, run.key, run.settings())
                if figures is None:
                    break
                found[run] = figures
        return found

    def _timed(self, run: BrokerRun) -> BrokerRun:
        if not run.cell.load:
            return run
        # To three digits, so that a run that is known is known again.
        rate = float(f"{self._best[run.cell.setting] * run.cell.load:.3g}")
        return replace(run, rate=rate)

    def _known(self, run: BrokerRun) -> dict[str, Any] | None:
        if self._design.again and run not in self._anew:
            return None
        return kept(self._folder, run.key, run.settings())

    def _in_world(self, world: World, runs: Iterable[BrokerRun]) -> None:
        if self._place is None:
            self._place = self._opened.enter_context(self._open())
        with self._place.world(world):
            for run in runs:
                self._on_run(run.key, self._done, self.total)
                keep(self._folder, run.key, run.settings(), self._place.run(run))
                self._anew.add(run)
                self._done += 1


def _gauge(setting: Setting) -> str:
    return f"gauge-{setting.key}"


def _settings(design: Design) -> dict[str, Any]:
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
