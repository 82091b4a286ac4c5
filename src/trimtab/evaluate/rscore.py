"""Rscore: what a rebalance costs, as the load it moves counted in consumers.

Why      While a partition is handed over nobody reads it. The load moved, divided by what one
         consumer carries, is how many seconds of one consumer's work each second of the hand-over
         leaves behind.
Promise  Arrivals, departures and orphans count nothing: nobody could have left them in place.
Cost     O(n log n).
Paper    Landau et al., eq. 11, with the new loads and the packing capacity.

>>> a, b = TopicPartition("orders", 0), TopicPartition("orders", 1)
>>> before, after = Assignment({a: 0, b: 0}), Assignment({a: 0, b: 1})
>>> rscore(before, after, {a: 30, b: 50}, capacity=100)
0.5
"""

from __future__ import annotations

from collections.abc import Mapping

from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition


def moved_load(
    before: Assignment, after: Assignment, loads: Mapping[TopicPartition, float]
) -> float:
    """The load of all partitions that stand on both sides with different consumers."""
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
