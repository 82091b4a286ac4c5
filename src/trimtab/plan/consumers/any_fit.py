"""Sticky any-fit packing: one pass over the partitions, each to the consumer its rule prefers.

Promise  Deterministic. With equal consumers, best and first fit decreasing use at most 11/9 of the
         minimum plus one; next fit at most twice the minimum. Partitions are not kept in place:
         only the index of a new consumer comes from the current assignment. Cost O(n log n).
Paper    Landau et al., sections II-B and VI-A. A partition goes to an open consumer with room: the
         first by index (ff), the fullest (bf), the emptiest (wf); next fit (nf) considers the last
         opened one only. If none has room, one is opened. Names ending in d take the biggest
         partition first; the others go by topic and number, or with `order=shuffle` in a new order
         per iteration, as published. `nf_first_bin=zero` starts nf and nfd with consumer 0.

>>> planners = {planner.name: planner for planner in ANY_FIT}
>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> loads = dict(zip(orders, (60, 50, 40)))
>>> plan = planners["bfd"](loads, Assignment(), GroupLimits(capacity=100))
>>> [plan[p] for p in orders]
[0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import Bins, Rule, bigger_first, check_loads
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    FirstBin,
    PackingOptions,
    PackingPlanner,
    SortOrder,
)


def any_fit(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
    *,
    rule: Rule,
    decreasing: bool,
) -> Assignment:
    """Packs partitions one by one by the rule."""
    check_loads(loads)
    bins = Bins(loads, current, limits, rule)
    order = bigger_first(loads, loads) if decreasing else _in_order(loads, options)
    if order and rule is Rule.NEXT and options.nf_first_bin is FirstBin.ZERO:
        first, *order = order
        bins.add(first, 0 if bins.fits(0, loads[first]) else bins.name_for(first))
    for partition in order:
        bins.place(partition)
    return bins.assignment()


def _in_order(
    loads: Mapping[TopicPartition, float], options: PackingOptions
) -> list[TopicPartition]:
    """Ascending, or a permutation derived from the seed and the iteration."""
    order = sorted(loads)
    if options.order is SortOrder.SHUFFLE:
        from numpy.random import default_rng

        shuffled = default_rng([options.seed, options.iteration]).permutation(len(order))
        order = [order[place] for place in shuffled.tolist()]
    return order


_CHANCE = frozenset({"order", "seed", "iteration"})
_BEGIN = frozenset({"nf_first_bin"})


def _planner(name: str, rule: Rule, *, decreasing: bool) -> PackingPlanner:
    return PackingPlanner(
        name=name,
        rule=partial(any_fit, rule=rule, decreasing=decreasing),
        reads=(frozenset() if decreasing else _CHANCE)
        | (_BEGIN if rule is Rule.NEXT else frozenset()),
    )


ANY_FIT: tuple[PackingPlanner, ...] = (
    _planner("nf", Rule.NEXT, decreasing=False),
    _planner("nfd", Rule.NEXT, decreasing=True),
    _planner("ff", Rule.FIRST, decreasing=False),
    _planner("ffd", Rule.FIRST, decreasing=True),
    _planner("bf", Rule.BEST, decreasing=False),
    _planner("bfd", Rule.BEST, decreasing=True),
    _planner("wf", Rule.WORST, decreasing=False),
    _planner("wfd", Rule.WORST, decreasing=True),
)
