"""Benchmarks of the consumer planners: speed, growth with size, and the quality of `trim`.

All run on one core, on integer loads of Landau's stream, with steps of up to 10 % of a consumer's
capacity. The timed plan is the second one of its stream, so that there is a current assignment.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Any

import numpy as np

from trimtab.evaluate.rscore import TWELVE
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Loads, LoadStep, Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner, PackingRule
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.packing import PackingRun, simulate
from trimtab.workload.rate_streams import landau_stream
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating
from trimtab_lab.reference_scans.packing import SCANS

SEED = 7
CAPACITY = 100
DELTA = 10
CONSUMERS = PLANNERS[Layer.CONSUMERS]

SCANNED = ("bfd", "mwf")
"""The heuristics that are compared with their reference scans: one classic, one modified."""

SIZES = (1, 10, 100)
"""Factors by which the number of partitions grows."""

STEPS = 4
"""Plans per stream that are evaluated; the first one is not, having no current assignment."""

MU, SLA_S = 1000, 5.0
"""Of the group that `ll-ffd` plans for: records/s per consumer, and the SLA in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """The input of a planner, so that it can be planned repeatedly."""

    loads: Mapping[TopicPartition, float]
    current: Assignment
    limits: GroupLimits
    context: PackingContext

    def plan(self, rule: PackingPlanner | PackingRule[Any]) -> Assignment:
        """Returns the assignment that a planner makes for this input."""
        return rule(self.loads, self.current, self.limits, self.context)


def plan_fits(context: BenchContext, rows: int, runs: int) -> Sides:
    """Compares two heuristics with their reference scans; `rows` is the number of partitions."""
    problems = {name: second_plan(name, rows) for name in TWELVE}

    def plans(
        rules: Mapping[str, PackingPlanner] | Mapping[str, PackingRule[Any]],
        size: Mapping[str, Problem],
    ) -> None:
        for name in SCANNED:
            size[name].plan(rules[name])

    context.say("warming up: heuristics at full size, reference scans at a tenth of it")
    each_s = {name: _seconds(problem, name, times=3) for name, problem in problems.items()}
    plans(SCANS, {name: second_plan(name, max(1, rows // 10)) for name in SCANNED})
    ours, rival = alternating(
        lambda: plans(CONSUMERS, problems),
        lambda: plans(SCANS, problems),
        runs=runs,
        warm_up=False,
    )
    return Sides(
        ours=ours,
        rival=rival,
        settings={
            "planners": list(SCANNED),
            "delta": DELTA,
            "seed": SEED,
            "guide_s": 0.25,
            "each_of_twelve_s": {name: _short(s) for name, s in each_s.items()},
        },
    )


def plan_growth(context: BenchContext, rows: int, runs: int) -> Sides:
    """Time per n log n of the heuristic that grows most, from a hundredth of `rows` to `rows`."""
    sizes = [max(2, rows * times // SIZES[-1]) for times in SIZES]
    spent: dict[str, dict[int, list[float]]] = {name: {n: [] for n in sizes} for name in TWELVE}
    for name in TWELVE:
        context.say(f"plans of {name}")
        problems = {n: second_plan(name, n) for n in sizes}
        for problem in problems.values():
            problem.plan(CONSUMERS[name])  # warm-up
        for _ in range(runs):
            for n, problem in problems.items():
                # Small plans are repeated: a single one is too short to be timed exactly.
                times = min(20, max(1, sizes[-1] // n))
                spent[name][n].append(_seconds(problem, name, times=times))

    def nanos(name: str, n: int) -> list[float]:
        return [1e9 * s / (n * math.log2(n)) for s in spent[name][n]]

    def growth(name: str) -> float:
        return median(nanos(name, sizes[-1])) / median(nanos(name, sizes[0]))

    worst = max(TWELVE, key=growth)
    return Sides(
        ours=tuple(nanos(worst, sizes[-1])),
        rival=tuple(nanos(worst, sizes[0])),
        settings={
            "worst": worst,
            "growth": {name: _short(growth(name)) for name in TWELVE},
            "curve": {str(n): _short(median(nanos(worst, n))) for n in sizes},
            "seconds": {
                str(n): {name: _short(median(spent[name][n])) for name in TWELVE} for n in sizes[1:]
            },
            "guides_s": {"10000": 0.25, "100000": 4.0},
            "delta": DELTA,
            "seed": SEED,
        },
    )


def trim(context: BenchContext, rows: int, runs: int) -> Sides:
    """Mean Rscore of `trim` and `bfd` over a few steps; each run uses a different stream."""
    found: dict[str, list[PackingRun]] = {"trim": [], "bfd": [], "mwf": []}
    for run in range(runs):
        context.say(f"stream {run + 1} of {runs}")
        stream = _stream(rows, seed=SEED + run, steps=STEPS)
        for name, of_streams in found.items():
            of_streams.append(simulate(stream, CONSUMERS[name]))

    def mean(name: str, figure: str) -> float:
        return fmean(fmean(_after_the_first(run, figure)) for run in found[name])

    seconds = [s for run in found["trim"] for s in _after_the_first(run, "seconds")]
    return Sides(
        ours=tuple(fmean(_after_the_first(run, "rscore")) for run in found["trim"]),
        rival=tuple(fmean(_after_the_first(run, "rscore")) for run in found["bfd"]),
        settings={
            "steps": STEPS,
            "delta": DELTA,
            "seeds": [SEED + run for run in range(runs)],
            "rscore": {name: _short(mean(name, "rscore")) for name in found},
            "consumers": {name: round(mean(name, "consumers"), 2) for name in found},
            "plan_s": {"median": _short(median(seconds)), "longest": _short(max(seconds))},
            "guide_s": {"1000": 1.0, "10000": 10.0}.get(str(rows), "none at this size"),
        },
    )


def ll_ffd(context: BenchContext, rows: int, runs: int, *, most: float = 0.1) -> Sides:
    """The time of one `ll-ffd` plan, compared with one second; `rows` is the number of partitions.

    Rates are uniform between 0 and a consumer's rate, lags between 0 and a fraction of what it can
    read within the SLA. With the default, a tenth, the rates determine the plan.
    """
    context.say(f"lags up to {most:.0%}")
    problem = _latency_problem(rows, most=most)
    plan = problem.plan(CONSUMERS["ll-ffd"])  # warm-up
    return Sides(
        ours=tuple(_seconds(problem, "ll-ffd", times=1) for _ in range(runs)),
        rival=(1.0,),
        settings={
            "mu": MU,
            "sla_s": SLA_S,
            "lags_up_to": most,
            "consumers": len(plan.consumers),
            "delta": DELTA,
            "seed": SEED,
        },
    )


def ll_ffd_lag(context: BenchContext, rows: int, runs: int) -> Sides:
    """The same with lags that determine the plan: up to nine tenths, and once up to the whole."""
    sides = ll_ffd(context, rows, runs, most=0.9)
    (full,) = (worst := ll_ffd(context, rows, 1, most=1.0)).ours
    with_full_lags = {"consumers": worst.settings["consumers"], "plan_s": _short(full)}
    return replace(sides, settings={**sides.settings, "up_to_1.0": with_full_lags})


def second_plan(name: str, partitions: int) -> Problem:
    """The input at the second step of a stream; the current assignment is the planner's first."""
    stream = _stream(partitions, seed=SEED, steps=1)
    limits = GroupLimits(capacity=CAPACITY)
    first = CONSUMERS[name](stream.steps[0].loads, Assignment(), limits)
    return Problem(
        loads=stream.steps[1].loads,
        current=first,
        limits=limits,
        context=PackingContext(iteration=1),
    )


def _stream(partitions: int, *, seed: int, steps: int) -> Loads:
    rows = landau_stream(
        seed=seed,
        partitions=partitions,
        iterations=steps,
        delta=DELTA,
        capacity=CAPACITY,
        integer=True,
    ).tolist()
    names = _names(partitions)
    return Loads(
        capacity=CAPACITY,
        steps=tuple(LoadStep(loads=dict(zip(names, row, strict=True))) for row in rows),
    )


def _latency_problem(partitions: int, *, most: float) -> Problem:
    """Rates and lags that have changed by one step since the previous plan.

    `most` is the largest lag, as a fraction of what one consumer can read within the SLA.
    """
    rng = np.random.default_rng(SEED)
    names = _names(partitions)
    rates, lags = rng.integers(0, MU, (2, partitions), endpoint=True)
    limits = GroupLimits(capacity=MU, unit=Unit.RECORDS_S)
    most_lag = int(most * MU * SLA_S)

    def context() -> PackingContext:
        return PackingContext(
            lags=dict(zip(names, (lags * most_lag // MU).tolist(), strict=True)), sla_s=SLA_S
        )

    def loads() -> dict[TopicPartition, float]:
        return dict(zip(names, rates.tolist(), strict=True))

    before = CONSUMERS["ll-ffd"](loads(), Assignment(), limits, context())
    step = MU * DELTA // 100
    rates, lags = np.clip(
        np.stack([rates, lags]) + rng.integers(-step, step, (2, partitions), endpoint=True), 0, MU
    )
    return Problem(loads=loads(), current=before, limits=limits, context=context())


def _names(partitions: int) -> list[TopicPartition]:
    return [TopicPartition("stream", number) for number in range(partitions)]


def _seconds(
    problem: Problem,
    name: str,
    *,
    times: int,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """The mean time of one plan."""
    began = clock()
    for _ in range(times):
        problem.plan(CONSUMERS[name])
    return (clock() - began) / times


def _after_the_first(run: PackingRun, figure: str) -> Sequence[float]:
    return [float(getattr(step, figure)) for step in run.steps[1:]]


def _short(value: float) -> float:
    return float(f"{value:.3g}")
