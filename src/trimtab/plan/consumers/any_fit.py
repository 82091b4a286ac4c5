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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

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


class SortOrder(StrEnum):
    """The order in which fits that do not sort take partitions."""

    CANONICAL = "canonical"  # by topic, then number
    SHUFFLE = "shuffle"  # a new permutation at every iteration, from the seed


class FirstBin(StrEnum):
    """The consumer with which next fit begins."""

    STICKY = "sticky"  # the one that the first partition was on
    ZERO = "zero"  # consumer 0, always


_Order = Annotated[
    SortOrder,
    "Order in which nf, ff, bf and wf take partitions; shuffle: a new random order per step.",
]
_FirstBin = Annotated[
    FirstBin,
    "Consumer that nf and nfd fill first: the one that the first partition was on, or 0.",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitOptions(PlannerOptions):
    """Options of `ff`, `bf` and `wf`."""

    order: _Order = SortOrder.CANONICAL


@dataclass(frozen=True, slots=True, kw_only=True)
class NextFitOptions(FitOptions):
    """Options of `nf`."""

    nf_first_bin: _FirstBin = FirstBin.STICKY


@dataclass(frozen=True, slots=True, kw_only=True)
class NextFitDecreasingOptions(PlannerOptions):
    """Options of `nfd`."""

    nf_first_bin: _FirstBin = FirstBin.STICKY


_FIT, _NEXT_FIT, _NEXT_FIT_DECREASING = FitOptions(), NextFitOptions(), NextFitDecreasingOptions()


def fit(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: FitOptions = _FIT,
    /,
    *,
    rule: Rule,
) -> Assignment:
    """Packs partitions in their own order, or in a shuffled one."""
    return _placed(_in_order(loads, options.order, context), loads, current, limits, rule)


def next_fit(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: NextFitOptions = _NEXT_FIT,
    /,
) -> Assignment:
    """Packs in order, each into the last opened consumer or a new one."""
    order, first = _in_order(loads, options.order, context), options.nf_first_bin
    return _placed(order, loads, current, limits, Rule.NEXT, first)


def fit_decreasing(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    _context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
    *,
    rule: Rule,
) -> Assignment:
    """Packs the biggest partition first."""
    return _placed(bigger_first(loads, loads), loads, current, limits, rule)


def next_fit_decreasing(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    _context: PackingContext = NO_CONTEXT,
    options: NextFitDecreasingOptions = _NEXT_FIT_DECREASING,
    /,
) -> Assignment:
    """Packs the biggest first, each into the last opened consumer or a new one."""
    order = bigger_first(loads, loads)
    return _placed(order, loads, current, limits, Rule.NEXT, options.nf_first_bin)


def _placed(
    order: Sequence[TopicPartition],
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    rule: Rule,
    first_bin: FirstBin = FirstBin.STICKY,
) -> Assignment:
    """Packs partitions one by one by the rule."""
    check_loads(loads)
    bins = Bins(loads, current, limits, rule)
    if order and first_bin is FirstBin.ZERO:
        first, *order = order
        bins.add(first, 0 if bins.fits(0, loads[first]) else bins.name_for(first))
    for partition in order:
        bins.place(partition)
    return bins.assignment()


def _in_order(
    loads: Mapping[TopicPartition, float], order: SortOrder, context: PackingContext
) -> list[TopicPartition]:
    """Ascending, or a permutation derived from the seed and the iteration."""
    ascending = sorted(loads)
    if order is not SortOrder.SHUFFLE:
        return ascending
    from numpy.random import default_rng

    shuffled = default_rng([context.seed, context.iteration]).permutation(len(ascending))
    return [ascending[place] for place in shuffled.tolist()]


_CHANCE = frozenset({"seed", "iteration"})


def _in_own_order(name: str, rule: Rule) -> PackingPlanner:
    return PackingPlanner(name=name, rule=partial(fit, rule=rule), options=_FIT, uses=_CHANCE)


def _decreasing(name: str, rule: Rule) -> PackingPlanner:
    return PackingPlanner(name=name, rule=partial(fit_decreasing, rule=rule))


ANY_FIT: tuple[PackingPlanner, ...] = (
    PackingPlanner(name="nf", rule=next_fit, options=_NEXT_FIT, uses=_CHANCE),
    PackingPlanner(name="nfd", rule=next_fit_decreasing, options=_NEXT_FIT_DECREASING),
    _in_own_order("ff", Rule.FIRST),
    _decreasing("ffd", Rule.FIRST),
    _in_own_order("bf", Rule.BEST),
    _decreasing("bfd", Rule.BEST),
    _in_own_order("wf", Rule.WORST),
    _decreasing("wfd", Rule.WORST),
)
