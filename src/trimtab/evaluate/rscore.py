"""What a planner costs: Rscore and moved load, cardinal bin score, utilisation, Pareto front.

Why      A partition is not read during its hand-over. Rscore is the load moved divided by the
         capacity of a consumer. The cardinal bin score (CBS) is how many more consumers a planner
         uses than the best of a fixed reference set.
Promise  Computed from loads and assignments only. Arrivals, departures and orphans are not moves,
         since they cannot stay in place. The reference set is an argument, so that adding a planner
         to a comparison does not change the CBS of the others.
Cost     O(n log n) per iteration; the front O(n²) in the planners compared.
Paper    Landau et al., eqs 11 (new loads, packing capacity), 28 and 29. Added: the moved fraction,
         which unlike the Rscore compares groups of different size.

>>> a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
>>> before, after = Assignment({a: 0, b: 0}), Assignment({a: 0, b: 1})
>>> rscore(before, after, {a: 30, b: 50}, capacity=100)
0.5
>>> cbs({"bfd": [4, 2], "mwf": [5, 2]}, reference=["bfd"])["mwf"]
Cbs(value=0.125, skipped=0)
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits

TWELVE: tuple[str, ...] = (
    *("nf", "nfd", "ff", "ffd", "bf", "bfd", "wf", "wfd"),
    *("mwf", "mbf", "mwfp", "mbfp"),
)
"""The heuristics that Landau et al. compare: the reference set of the cardinal bin score."""


def moved_load(
    before: Assignment, after: Assignment, loads: Mapping[TopicPartition, float]
) -> float:
    """The load of all partitions that are in both assignments with different consumers."""
    return sum(loads[p] for p in moved(before, after))


def rscore(
    before: Assignment,
    after: Assignment,
    loads: Mapping[TopicPartition, float],
    *,
    capacity: float,
) -> float:
    """The load moved, in multiples of one consumer's capacity."""
    return moved_load(before, after, loads) / capacity


def moved_fraction(moved_load: float, total_load: float) -> float:
    """The share of the load that moved; 0 if there is no load."""
    return moved_load / total_load if total_load else 0.0


def utilisation(
    after: Assignment, loads: Mapping[TopicPartition, float], limits: GroupLimits
) -> float | None:
    """The load over the capacity of the consumers in use; None if none is in use."""
    room = sum(limits.of(c) for c in after.consumers)
    return sum(loads[p] for p in sorted(after)) / room if room else None


def overload(
    after: Assignment, loads: Mapping[TopicPartition, float], limits: GroupLimits
) -> float:
    """The load above the capacities of its consumers; planners may ignore capacities."""
    carried = after.loads(loads)
    return sum(max(0, carried[c] - limits.of(c)) for c in sorted(carried))


def orphan_load(
    before: Assignment, dead: Collection[int], loads: Mapping[TopicPartition, float]
) -> float:
    """The load of partitions of dead consumers, without departed partitions."""
    return sum(loads[p] for p in sorted(before) if before[p] in dead and p in loads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """The figures of one iteration: load, consumers and moves."""

    consumers: int
    moves: int
    moved_load: float
    rscore: float
    total_load: float
    overload: float
    utilisation: float | None


def judged(
    before: Assignment,
    after: Assignment,
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
) -> Iteration:
    """The figures of one iteration; partitions of dead consumers are not part of `before`."""
    load = moved_load(before, after, loads)
    return Iteration(
        consumers=len(after.consumers),
        moves=len(moved(before, after)),
        moved_load=load,
        rscore=load / limits.capacity,
        total_load=sum(loads[p] for p in sorted(loads)),
        overload=overload(after, loads, limits),
        utilisation=utilisation(after, loads, limits),
    )


class PackingScore(NamedTuple):
    """The figures of a whole run; all but `moves`, which is a sum, are means over iterations.

    `overload` is the share of the load above the capacities of its consumers.
    """

    mean_consumers: float
    e_rscore: float
    moves: int
    moved_fraction: float
    utilisation: float
    overload: float


def over_all(iterations: Sequence[Iteration]) -> PackingScore:
    """The figures of a run. Utilisation is the mean over iterations with a consumer in use."""
    used = [i.utilisation for i in iterations if i.utilisation is not None]
    return PackingScore(
        mean_consumers=fmean(i.consumers for i in iterations),
        e_rscore=e_rscore([i.rscore for i in iterations]),
        moves=sum(i.moves for i in iterations),
        moved_fraction=fmean(moved_fraction(i.moved_load, i.total_load) for i in iterations),
        utilisation=fmean(used) if used else 0.0,
        overload=fmean(i.overload / i.total_load if i.overload else 0.0 for i in iterations),
    )


def e_rscore(scores: Sequence[float]) -> float:
    """The mean over all iterations, including the first one, which is 0 (eq. 29)."""
    return fmean(scores)


class Cbs(NamedTuple):
    """A cardinal bin score, and the number of iterations without partitions, which are skipped."""

    value: float
    skipped: int


def cbs(counts: Mapping[str, Sequence[int]], *, reference: Collection[str]) -> dict[str, Cbs]:
    """How many more consumers each planner uses than the best of `reference` (eq. 28).

    `counts` are the consumers of each planner, one number per iteration. A planner outside the
    reference set may be below 0. If no iteration has a partition the value is NaN.
    """
    missing = sorted(set(reference) - counts.keys())
    if missing or not reference:
        raise ValueError(
            f"the reference set has no counts of {', '.join(missing) or 'any planner'}"
        )
    least = [min(row) for row in zip(*(counts[name] for name in reference), strict=True)]

    def score(used: Sequence[int]) -> Cbs:
        excess = [(z - m) / m for z, m in zip(used, least, strict=True) if m]
        return Cbs(fmean(excess) if excess else math.nan, len(least) - len(excess))

    return {name: score(used) for name, used in counts.items()}


def pareto_front(points: Mapping[str, tuple[float, float]]) -> frozenset[str]:
    """The names of points that no other point dominates; both coordinates are costs.

    >>> sorted(pareto_front({"a": (0, 2), "b": (1, 1), "c": (1, 1), "d": (1, 2)}))
    ['a', 'b', 'c']
    """

    def dominated(name: str) -> bool:
        x, y = points[name]
        return any(u <= x and v <= y and (u, v) != (x, y) for u, v in points.values())

    return frozenset(name for name in points if not dominated(name))
