"""Runs a planner over a stream of loads: each step starts from the previous assignment.

Promise  Figures are computed from the assignments, not by the planner. Departures are dropped and
         arrivals placed; neither is a move. Partitions of dead consumers are orphans. Equal
         arguments give equal runs, except for the run time of the planner.
Cost     That of the planner at each step, plus O(n log n) for the figures.
Paper    Landau et al., section VI.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from trimtab.evaluate.rscore import Iteration, judged, orphan_load, over_all
from trimtab.model.assignment import Assignment
from trimtab.model.load import GroupLimits, Loads
from trimtab.plan.consumers.bins import check_countable
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PackingPlanner

NO_FAILURES: Mapping[int, frozenset[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingStep(Iteration):
    """One step: its figures, the assignment, and the run time of the planner."""

    orphan_load: float
    assignment: Assignment
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingRun:
    """The run of a planner over a stream."""

    planner: str
    steps: tuple[PackingStep, ...]
    capacity: float


def simulate(
    stream: Loads,
    planner: PackingPlanner,
    context: PackingContext = NO_CONTEXT,
    *,
    dead: Mapping[int, frozenset[int]] = NO_FAILURES,
    on_step: Callable[[int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> PackingRun:
    """Runs a planner over every step of a stream.

    `dead` names the consumers that fail before a step. `on_step` is called with the number of
    finished steps.
    """
    limits = GroupLimits(capacity=stream.capacity, capacities=stream.capacities, unit=stream.unit)
    sla_s = stream.sla_s if context.sla_s is None else context.sla_s
    before, steps = stream.assignment, []
    for k, step in enumerate(stream.steps):
        gone = dead.get(k, frozenset())
        present = before.only(step.loads)
        current = present.without(gone)
        check_countable(step.loads, limits)
        told = replace(context, iteration=k, lags=step.lags, sla_s=sla_s)
        began = clock()
        after = planner(step.loads, current, limits, told)
        seconds = clock() - began
        found = judged(current, after, step.loads, limits)
        steps.append(
            PackingStep(
                consumers=found.consumers,
                moves=found.moves,
                moved_load=found.moved_load,
                rscore=found.rscore,
                total_load=found.total_load,
                overload=found.overload,
                utilisation=found.utilisation,
                orphan_load=orphan_load(present, gone, step.loads),
                assignment=after,
                seconds=seconds,
            )
        )
        before = after
        if on_step is not None:
            on_step(k + 1)
    return PackingRun(planner=planner.name, steps=tuple(steps), capacity=stream.capacity)


def summary(run: PackingRun) -> dict[str, float]:
    """The figures of a run: means over its steps; moves, orphan load and seconds are sums."""
    return {
        **over_all(run.steps)._asdict(),
        "orphan_load": sum(step.orphan_load for step in run.steps),
        "seconds": sum(step.seconds for step in run.steps),
    }
