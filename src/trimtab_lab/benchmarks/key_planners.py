"""Benchmarks of the planners for keys: speed against a scan of all partitions, and growth.

All run on one core, on counts that fall as those of Bhattacharya and Wood's workload, with a
hundred keys for each partition and as many records of other keys. All keys have just become hot
and are at home, so that the greedy has the most to do: with two choices hardly anything is left
for it, and the scan of all partitions would not show.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from statistics import median

import numpy as np

from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import homes
from trimtab.plan.keys.plan import plan_keys as planned
from trimtab.plan.keys.planner import InitialPlace, KeyPlanner
from trimtab.plan.keys.smalops import SMALOPS, SmalopsOptions
from trimtab.plan.keys.trim import TRIM
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating
from trimtab_lab.reference_scans.keys import greedy_arrays, smalops_scan

SEED = 7
KEYS_PER_PARTITION = 100
SIZES = (1, 10, 100)
"""Factors by which the number of keys grows."""
PLANNERS: dict[str, KeyPlanner] = {
    "smalops": SMALOPS,
    "smalops at home": SMALOPS.with_options(initial=InitialPlace.HOME),
    "trim": TRIM,
}


def plan_keys(context: BenchContext, rows: int, runs: int) -> Sides:
    """Compares the rule with the same decision by a scan; `rows` is the number of keys."""
    counts = window_of(rows)
    options = SmalopsOptions(initial=InitialPlace.HOME)
    plan = planned(counts, planner=PLANNERS["smalops at home"], made_ts=0)
    scanned, _ = smalops_scan(counts, options, 0, greedy_arrays)
    if {move.key: move.target for move in plan.moves} != scanned:
        raise AssertionError("the two sides do not make the same moves")
    context.say(f"{len(plan.moves)} moves")
    ours, rival = alternating(
        lambda: PLANNERS["smalops at home"](counts),
        lambda: smalops_scan(counts, options, 0, greedy_arrays),
        runs=runs,
    )
    each = {name: planned(counts, planner=planner, made_ts=0) for name, planner in PLANNERS.items()}
    return Sides(
        ours=ours,
        rival=rival,
        settings={
            "partitions": counts.partitions,
            "seed": SEED,
            "guide_s": 1.0,
            "plan_s": {name: _short(_seconds(counts, p)) for name, p in PLANNERS.items()},
            "moves": {name: len(made.moves) for name, made in each.items()},
            "imbalance": {name: _short(made.after.imbalance) for name, made in each.items()},
        },
    )


def plan_keys_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    """Time per n log n of the planner that grows more, from a hundredth of `rows` to `rows`."""
    sizes = [max(200, rows * times // SIZES[-1]) for times in SIZES]
    names = ("smalops", "trim")
    spent: dict[str, dict[int, list[float]]] = {name: {n: [] for n in sizes} for name in names}
    windows = {n: window_of(n) for n in sizes}
    for name in names:
        context.say(f"plans of {name}")
        for counts in windows.values():
            planned(counts, planner=PLANNERS[name], made_ts=0)  # warm-up
        for _ in range(runs):
            for n, counts in windows.items():
                times = min(20, max(1, sizes[-1] // n))
                spent[name][n].append(_seconds(counts, PLANNERS[name], times=times))

    def nanos(name: str, n: int) -> list[float]:
        return [1e9 * s / (n * math.log2(n)) for s in spent[name][n]]

    def growth(name: str) -> float:
        return median(nanos(name, sizes[-1])) / median(nanos(name, sizes[0]))

    worst = max(names, key=growth)
    return Sides(
        ours=tuple(nanos(worst, sizes[-1])),
        rival=tuple(nanos(worst, sizes[0])),
        settings={
            "worst": worst,
            "growth": {name: _short(growth(name)) for name in names},
            "curve": {str(n): _short(median(nanos(worst, n))) for n in sizes},
            "seconds": {
                str(n): {name: _short(median(spent[name][n])) for name in names} for n in sizes
            },
            "keys_per_partition": KEYS_PER_PARTITION,
            "seed": SEED,
        },
    )


def window_of(keys: int) -> KeyCounts:
    """A window of so many hot keys at home, with random counts around a power law."""
    rng = np.random.default_rng(SEED)
    partitions = max(2, keys // KEYS_PER_PARTITION)
    mean = 100 * keys / (np.arange(keys) + 2.72) ** 0.6
    counts = (10 + rng.poisson(mean)).tolist()
    names = [b"%d" % number for number in range(keys)]
    at_home = homes(names, partitions).tolist()
    totals = rng.poisson(sum(counts) / partitions, partitions).tolist()
    for place, count in zip(at_home, counts, strict=True):
        totals[place] += count
    return KeyCounts(
        partitions=partitions,
        window_s=10,
        threshold=10,
        keys=tuple(
            KeyCount(key=key, count=count, partition=place)
            for key, count, place in zip(names, counts, at_home, strict=True)
        ),
        partition_totals=tuple(totals),
    )


def _seconds(
    counts: KeyCounts,
    planner: KeyPlanner,
    *,
    times: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The mean time of one plan."""
    start = clock()
    for _ in range(times):
        planned(counts, planner=planner, made_ts=0)
    return (clock() - start) / times


def _short(value: float) -> float:
    return float(f"{value:.3g}")
