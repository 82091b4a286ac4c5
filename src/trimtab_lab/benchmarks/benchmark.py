"""What a benchmark is, and how its two sides are timed and compared.

Promise  Both sides run in one process on the same data: one warm-up each, then alternately, and
         each round starts with the other side. The figure of a side is its median. `ratio` is
         above 1 when ours is better, whatever the unit.

>>> times = iter([0.0, 2.0, 2.0, 3.0])
>>> alternating(lambda: None, lambda: None, runs=1, warm_up=False, clock=lambda: next(times))
((2.0,), (1.0,))
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.spark.session import Session


class BenchUnit(StrEnum):
    """The unit in which a side is measured."""

    ROWS_S = "rows/s"
    SECONDS = "s"
    MICROS_ROW = "us/row"
    MICROS_PARTITION = "us/partition"
    NANOS_N_LOG_N = "ns/(n log n)"  # to base 2
    MEGABYTES = "MB"
    RSCORE = "Rscore"
    CELLS_S = "cells/s"
    SAMPLES_S = "samples/s"

    @property
    def more_is_better(self) -> bool:
        """Whether a larger figure is better."""
        return self in {BenchUnit.ROWS_S, BenchUnit.CELLS_S, BenchUnit.SAMPLES_S}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchContext:
    """Folders, progress output, and a Spark session that is started at the first use."""

    spark: Callable[[], Session]
    home: Path
    cache: Path
    say: Callable[[str], None] = lambda _: None

    @property
    def data(self) -> Path:
        """The folder in which test data is kept between runs."""
        return self.home / "bench"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The measured figures of all runs of both sides, in the benchmark's unit."""

    ours: tuple[float, ...]
    rival: tuple[float, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)


Run = Callable[[BenchContext, int, int], Sides]
"""Runs a benchmark: context, number of rows, number of runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """One row of the table.

    Attributes:
        name: Its name on the command line.
        what: What ours does.
        rival: What ours is compared with.
        bar: The ratio that it should reach.
        unit: The unit of both sides' figures.
        rows: The size for which the bar is defined, in units of `counted`.
        run: The function that runs it.
        counted: What its size counts, for example rows or partitions.
        spark: Whether it runs on Spark.
        kafka: Whether it needs brokers.
        when_missed: The reason that is printed when the bar is missed.
        least_runs: Timed runs that a kept result must have; one for runs that last minutes.
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
    least_runs: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The result of one benchmark, as it is saved."""

    name: str
    ours: float
    rival: float
    ratio: float
    unit: str
    settings: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "name": self.name,
            "ours": self.ours,
            "rival": self.rival,
            "ratio": self.ratio,
            "unit": self.unit,
            "settings": dict(self.settings),
        }


def compared(benchmark: Benchmark, sides: Sides, *, rows: int, runs: int, machine: str) -> Result:
    """The medians of both sides and their ratio, above 1 if ours is better."""
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
    """Rounds to four digits; more would be noise.

    >>> _rounded(1234567.0), _rounded(0.0123456)
    (1235000.0, 0.01235)
    """
    return float(f"{x:.4g}")


def alternating(
    ours: Callable[[], object],
    rival: Callable[[], object],
    *,
    runs: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Runs both sides alternately; returns the seconds of each run, ours first."""
    if runs < 1:
        raise ValueError(f"runs must be at least 1, not {runs}")
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
    """Converts both sides' times for the same rows into rows per second."""
    ours, rival = seconds
    return Sides(
        ours=tuple(rows / s for s in ours),
        rival=tuple(rows / s for s in rival),
        settings=settings,
    )
