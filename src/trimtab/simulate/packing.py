"""A planner over a stream of loads: each step starts from where the one before left the group.

Why      One plan says little of a planner: what it leaves behind is what the next one starts from.
Promise  Figures are computed from the assignments, never asked of the planner. Departures are
         dropped and arrivals placed, neither being a move; what dead consumers had is an orphan.
         Equal arguments give equal runs, but for the seconds that the planner took.
Cost     That of the planner at each step, and O(n log n) to judge it.
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
from trimtab.plan.consumers.planner import DEFAULTS, PackingOptions, PackingPlanner

NOBODY_DIES: Mapping[int, frozenset[int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingStep(Iteration):
    """One step: its figures, who got what, and how long the planner took."""

    orphan_load: float
    assignment: Assignment
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PackingRun:
    """A planner's way through a stream."""

    planner: str
    steps: tuple[PackingStep, ...]
    capacity: float


def simulate(
    stream: Loads,
    planner: PackingPlanner,
    options: PackingOptions = DEFAULTS,
    *,
    dead: Mapping[int, frozenset[int]] = NOBODY_DIES,
    on_step: Callable[[int], None] | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> PackingRun:
    """Runs a planner over every step of a stream.

    `dead` names the consumers that are gone when a step begins. `on_step` hears how many steps
    are done.
    """
    limits = GroupLimits(capacity=stream.capacity, capacities=stream.capacities, unit=stream.unit)
    sla_s = stream.sla_s if options.sla_s is None else options.sla_s
    before, steps = stream.assignment, []
    for k, step in enumerate(stream.steps):
        gone = dead.get(k, frozenset())
        present = before.only(step.loads)
        current = present.without(gone)
        check_countable(step.loads, limits)
        told = replace(options, iteration=k, lags=step.lags, sla_s=sla_s)
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
    """What the run cost: means over its steps; moves, orphan load and seconds are sums."""
    return {
        **over_all(run.steps)._asdict(),
        "orphan_load": sum(step.orphan_load for step in run.steps),
        "seconds": sum(step.seconds for step in run.steps),
    }
