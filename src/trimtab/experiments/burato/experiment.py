"""The experiment: saturating runs first, then open loops at parts of the best throughput found.

Every run is kept as soon as it is over, so that an experiment that was stopped goes on with the
next one. What is kept holds until it is asked for anew: no two runs on brokers are ever equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any, Protocol

from trimtab.experiments.burato.comparison import Found, best_rates, parts_of
from trimtab.experiments.burato.design import (
    PRODUCER,
    SLOWED,
    SLOWED_PERIOD_S,
    SLOWED_SHARE,
    WARM_UP,
    BrokerRun,
    Cell,
    World,
    gauged,
    in_random_order,
)
from trimtab.experiments.live.kept_runs import keep, kept
from trimtab.experiments.part import Part

NAME = "burato"
REPETITIONS = 5
DURATION_S = 3.5
OVERHEAD_S = 0.7
"""What a run takes beside its own time: a producer, its metadata, the last acknowledgements."""

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
        return runs * (self.duration_s + OVERHEAD_S)


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
    first, second = (
        in_random_order(
            cells,
            repetitions=design.repetitions,
            duration_s=design.duration_s,
            seed=design.seed,
        )
        for cells in (saturating, open_loop)
    )
    with ExitStack() as opened:
        runs = _Runs(place, opened, folder, design.again, on_run, len(first) + len(second))
        found = runs.of(first)
        best = best_rates(found)
        timed = [replace(r, rate=_rate(best[r.cell.setting] * r.cell.load)) for r in second]
        found |= runs.of(timed)
    on_run("", runs.total, runs.total)
    return parts_of(found, settings=_settings(design))


class _Runs:
    """Runs in the order given; the place is opened once, and a world stays while runs are of it."""

    def __init__(
        self,
        place: Callable[[], Any],
        opened: ExitStack,
        folder: Path,
        again: bool,
        on_run: OnRun,
        total: int,
    ) -> None:
        self.total = total
        self._open, self._opened = place, opened
        self._folder, self._again, self._on_run = folder, again, on_run
        self._place: Place | None = None
        self._done = 0

    def of(self, runs: Sequence[BrokerRun]) -> dict[BrokerRun, dict[str, Any]]:
        found: dict[BrokerRun, dict[str, Any]] = {}
        for world, of_world in groupby(runs, key=lambda run: run.cell.setting.world):
            together = list(of_world)
            known = {run: self._known(run) for run in together}
            missing = [run for run in together if known[run] is None]
            found |= {run: figures for run, figures in known.items() if figures is not None}
            self._done += len(together) - len(missing)
            if missing:
                found |= self._in_world(world, missing)
        return found

    def _known(self, run: BrokerRun) -> dict[str, Any] | None:
        return None if self._again else kept(self._folder, run.key, run.settings())

    def _in_world(self, world: World, runs: Iterable[BrokerRun]) -> dict[BrokerRun, dict[str, Any]]:
        if self._place is None:
            self._place = self._opened.enter_context(self._open())
        found = {}
        with self._place.world(world):
            for run in runs:
                self._on_run(run.key, self._done, self.total)
                found[run] = keep(self._folder, run.key, run.settings(), self._place.run(run))
                self._done += 1
        return found


def _rate(rate: float) -> float:
    """A rate to three digits, so that a run that is known is known again."""
    return float(f"{rate:.3g}")


def _settings(design: Design) -> dict[str, Any]:
    return {
        "seconds of a run": design.duration_s,
        "first part dropped": WARM_UP,
        "linger ms": PRODUCER["linger.ms"],
        "batch bytes": PRODUCER["batch.size"],
        "buffer MiB": PRODUCER["queue.buffering.max.kbytes"] // 1024,
        "slowed broker": f"{SLOWED}, standing still for {SLOWED_SHARE:.0%} of every "
        f"{1000 * SLOWED_PERIOD_S:.0f} ms",
        "seed": design.seed,
    }


__all__ = ["NAME", "Design", "Found", "burato"]
