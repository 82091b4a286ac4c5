"""What a benchmark is, how its two sides are timed, and when it meets its bar.

Promise  Both sides run in one process on the same data: one warm-up each, then turn about, and the
         side that begins changes with every round. The figure of a side is its median. `ratio` is
         above 1 when ours is better, whatever the unit.

>>> times = iter([0.0, 2.0, 2.0, 3.0])
>>> alternating(lambda: None, lambda: None, runs=1, warm_up=False, clock=lambda: next(times))
((2.0,), (1.0,))
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.spark.session import Session


class BenchUnit(StrEnum):
    """What a side is measured in."""

    ROWS_S = "rows/s"
    SECONDS = "s"
    MICROS_ROW = "us/row"
    NANOS_N_LOG_N = "ns/(n log n)"  # to base 2
    MEGABYTES = "MB"
    RSCORE = "Rscore"
    CELLS_S = "cells/s"
    SAMPLES_S = "samples/s"

    @property
    def more_is_better(self) -> bool:
        """Whether the larger figure wins."""
        return self in {BenchUnit.ROWS_S, BenchUnit.CELLS_S, BenchUnit.SAMPLES_S}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext:
    """Where benchmarks run; Spark starts when the first one asks for it."""

    spark: Callable[[], Session]
    home: Path
    cache: Path
    say: Callable[[str], None] = lambda _: None

    @property
    def data(self) -> Path:
        """Where test data is kept between runs."""
        return self.home / "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """What was measured: each run of either side, in the benchmark's unit."""

    ours: tuple[float, ...]
    rival: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


Run = Callable[[BenchContext, int, int], Sides]
"""Runs a benchmark on a stage, with so many rows, so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: What it is called.
        what: What ours does.
        rival: What it is compared with.
        bar: The ratio that it should reach.
        unit: What both sides are measured in.
        rows: How many of `counted` the bar is for.
        run: Runs it.
        counted: What its size is a number of.
        spark: Whether it runs on Spark.
        kafka: Whether it needs brokers.
        when_missed: The reason printed where the bar is not met.
    """

    name: str
    what: str
    rival: str
    bar: float
    unit: BenchUnit
    rows: int
    run: Run
    counted: str = "rows"
    spark: bool = True
    kafka: bool = False
    when_missed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One benchmark's outcome, in the shape that is kept."""

    name: str
    ours: float
    rival: float
    ratio: float
    unit: str
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The shape that programs read."""
        return {
            "name": self.name,
            "ours": self.ours,
            "rival": self.rival,
            "ratio": self.ratio,
            "unit": self.unit,
            "settings": dict(self.settings),
        }


def judged(benchmark: Benchmark, sides: Sides, *, rows: int, runs: int, machine: str) -> Result:
    """Medians of both sides, and their ratio the right way round."""
    ours, rival = median(sides.ours), median(sides.rival)
    ratio = ours / rival if benchmark.unit.more_is_better else rival / ours
    return Result(
        name=benchmark.name,
        ours=_rounded(ours),
        rival=_rounded(rival),
        ratio=round(ratio, 3),
        unit=str(benchmark.unit),
        settings={
            "rows": rows,
            "runs": runs,
            **sides.settings,
            "each": {
                "ours": [_rounded(x) for x in sides.ours],
                "rival": [_rounded(x) for x in sides.rival],
            },
            "machine": machine,
        },
    )


def _rounded(x: float) -> float:
    """Four digits: more would be noise.

    >>> _rounded(1234567.0), _rounded(0.0123456)
    (1235000.0, 0.01235)
    """
    return float(f"{x:.4g}")


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least the share `q` of all does not exceed."""
    return sorted(values)[max(0, math.ceil(q * len(values)) - 1)]


def alternating(
    ours: Callable[[], object],
    rival: Callable[[], object],
    *,
    runs: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Seconds of each run of either side."""
    if runs < 1:
        raise ValueError(f"a benchmark runs at least once, not {runs} times")
    sides: tuple[tuple[Callable[[], object], list[float]], ...] = ((ours, []), (rival, []))
    if warm_up:
        for act, _ in sides:
            act()
    for round_ in range(runs):
        for act, seconds in sides if round_ % 2 == 0 else sides[::-1]:
            start = clock()
            act()
            seconds.append(clock() - start)
    return tuple(sides[0][1]), tuple(sides[1][1])


def rows_per_second(
    rows: int, seconds: tuple[tuple[float, ...], tuple[float, ...]], **settings: Any
) -> Sides:
    """Both sides' times over the same rows as rates."""
    ours, rival = seconds
    return Sides(
        ours=tuple(rows / s for s in ours),
        rival=tuple(rows / s for s in rival),
        settings=settings,
    )
