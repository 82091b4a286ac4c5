"""Any-fit packing, made sticky: one pass over the partitions, each to the place its rule prefers.

Why      The classic answer to "how few consumers will do"; the yardstick for planners that also
         care how much they move.
Promise  Deterministic. Best fit decreasing needs at most 11/9 of the fewest consumers, plus one.
         It does not try to leave partitions where they are: only the index of a new consumer is
         taken from the past, so even a balanced group may be repacked.
Cost     O(n log n).
Paper    Landau et al., sections II-B and VI-A.

>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> loads = dict(zip(orders, (60, 50, 40)))
>>> plan = ANY_FIT["bfd"](loads, Assignment(), GroupLimits(capacity=100))
>>> [plan[p] for p in orders]
[0, 1, 0]
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.packing.bins import Bins, Rule, bigger_first, check_loads
from trimtab.plan.planner import PackingPlanner


def any_fit(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    *,
    rule: Rule,
) -> Assignment:
    """Packs partitions, the biggest first, by the rule."""
    check_loads(loads)
    bins = Bins(loads, current, limits, rule)
    for partition in bigger_first(loads, loads):
        bins.place(partition)
    return bins.assignment()


ANY_FIT: Mapping[str, PackingPlanner] = {
    "bfd": partial(any_fit, rule=Rule.BEST),
}
