"""Time per row as the rows grow: 1, 4 and 16 times as many."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from pyspark.sql import DataFrame

from trimtab.measure.spark.hot_keys import CountingMode
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides
from trimtab_lab.benchmarks.spark import data
from trimtab_lab.benchmarks.spark.batch import drain, our_keys, our_rates

TIMES = (1, 4, 16)


def growth_rates(context: BenchContext, rows: int, runs: int) -> Sides:
    """Rates from events."""
    return _growth(context, rows, runs, our_rates)


def growth_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    """Heavy keys by lossy counting."""
    return _growth(context, rows, runs, lambda events, _: our_keys(events, CountingMode.LOSSY))


def _growth(
    context: BenchContext, rows: int, runs: int, step: Callable[[DataFrame, int], DataFrame]
) -> Sides:
    unit = max(1, rows // TIMES[-1])
    tables = {n: data.events(context, n) for n in (unit * t for t in TIMES)}
    spent: dict[int, list[float]] = {n: [] for n in tables}
    for round_ in range(runs + 1):
        for n, events in tables.items():
            start = time.perf_counter()
            drain(step(events, n))
            if round_:  # the first round is the warm-up
                spent[n].append(1e6 * (time.perf_counter() - start) / n)
    return Sides(
        ours=tuple(spent[unit * TIMES[-1]]),
        rival=tuple(spent[unit]),
        settings={"curve": {str(n): float(f"{median(us):.4g}") for n, us in spent.items()}},
    )
