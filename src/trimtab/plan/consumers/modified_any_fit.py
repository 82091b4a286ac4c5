"""Modified any-fit: moves small partitions to open consumers, keeps big ones in place.

Promise  Deterministic; ties between consumers go to the lower index. A consumer is closed if all
         its partitions fit elsewhere. For a new group it equals the plain decreasing fit of the
         same rule. Cost O(n log n).
Paper    Landau et al., algorithm 1. Consumers are visited by descending load (mwf, mbf), or by
         their largest partition (mwfp, mbfp). For each, from the smallest partition up: to an open
         consumer, until one fits nowhere. Then, from the biggest down: back to its own consumer,
         until one does not fit. The rest, biggest first, go by the rule, opening new consumers as
         needed. The rule is worst fit (mwf, mwfp) or best fit (mbf, mbfp).

>>> planners = {planner.name: planner for planner in MODIFIED_ANY_FIT}
>>> orders = [TopicPartition("orders", n) for n in range(4)]
>>> loads = dict(zip(orders, (70, 40, 30, 10)))
>>> before = Assignment(dict(zip(orders, (0, 0, 1, 2))))
>>> after = planners["mwf"](loads, before, GroupLimits(capacity=100))
>>> [after[p] for p in orders]
[0, 2, 0, 2]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import Bins, Rule, bigger_first, check_loads
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    NO_OPTIONS,
    PackingContext,
    PackingPlanner,
    PlannerOptions,
)

Key = Callable[[list[float]], float]


def modified_any_fit(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    _context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
    *,
    rule: Rule,
    by: Key,
) -> Assignment:
    """Packs by the rule, starting from the current assignment."""
    check_loads(loads)
    bins = Bins(loads, current, limits, rule)
    owned: dict[int, list[TopicPartition]] = {}
    homeless: list[TopicPartition] = []
    for partition in bigger_first(loads, loads):
        if partition in current:
            owned.setdefault(current[partition], []).append(partition)
        else:
            homeless.append(partition)
    weights = {c: by([loads[p] for p in partitions]) for c, partitions in owned.items()}
    for consumer in sorted(owned, key=lambda c: (-weights[c], c)):
        rest = _dissolved(owned[consumer], loads, bins)
        homeless += _kept_at_home(consumer, rest, loads, bins)
    for partition in bigger_first(homeless, loads):
        bins.place(partition)
    return bins.assignment()


def _dissolved(
    partitions: list[TopicPartition], loads: Mapping[TopicPartition, float], bins: Bins
) -> list[TopicPartition]:
    """Offers partitions to open consumers, the smallest first; returns those that remain."""
    rest = list(partitions)
    while rest:
        chosen = bins.choose(loads[rest[-1]])
        if chosen is None:
            break
        bins.add(rest.pop(), chosen)
    return rest


def _kept_at_home(
    home: int,
    partitions: list[TopicPartition],
    loads: Mapping[TopicPartition, float],
    bins: Bins,
) -> list[TopicPartition]:
    """Puts partitions back on their own consumer, biggest first; returns the rest."""
    # An empty consumer can be too small only with unequal capacities: then a larger one exists.
    carried = (place for place, p in enumerate(partitions) if bins.fits(home, loads[p]))
    start = next(carried, len(partitions))
    for place, partition in enumerate(partitions[start:], start):
        if not bins.fits(home, loads[partition]):
            return partitions[:start] + partitions[place:]
        bins.add(partition, home)
    return partitions[:start]


MODIFIED_ANY_FIT: tuple[PackingPlanner, ...] = tuple(
    PackingPlanner(name=name, rule=partial(modified_any_fit, rule=rule, by=by))
    for name, rule, by in (
        ("mwf", Rule.WORST, sum),
        ("mbf", Rule.BEST, sum),
        ("mwfp", Rule.WORST, max),
        ("mbfp", Rule.BEST, max),
    )
)
