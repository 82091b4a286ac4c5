"""Lower bounds of any plan: the number of consumers, and the load that must move.

Why      A plan states how far it is from the best possible.
Promise  No valid plan is better than either bound; each may be below the true optimum.
Cost     O(n log n).
Paper    Martello & Toth, lower bound L2 of bin packing (1990). Partitions too big for every
         consumer take one consumer each; with unequal capacities the largest is used for all.

>>> fewest_consumers([60, 60, 60, 30], GroupLimits(capacity=100))
3
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping
from itertools import accumulate

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits

# Sums of non-integer loads are rounded, here and in the planners. A capacity
# larger by this share, far more than the rounding, keeps the bound below every plan.
_ROUNDING = 1e-9


def fewest_consumers(loads: Iterable[float], limits: GroupLimits) -> int:
    """No valid assignment of these loads uses fewer consumers."""
    capacity, sizes = _exact(limits.largest, loads)
    oversize = len(sizes) - bisect_right(sizes, capacity)
    rest = sizes[: len(sizes) - oversize]
    return oversize + (max(1, _l2(rest, capacity)) if rest else 0)


def least_moved_load(
    loads: Mapping[TopicPartition, float], before: Assignment, limits: GroupLimits
) -> float:
    """Every overloaded consumer must give up its excess, or all but its largest partition."""
    total: dict[int, float] = {}
    largest: dict[int, float] = {}
    for partition in sorted(p for p in before if p in loads):
        consumer, load = before[partition], loads[partition]
        total[consumer] = total.get(consumer, 0) + load
        largest[consumer] = max(largest.get(consumer, 0), load)
    return sum(_excess(total[c], max(limits.of(c), largest[c])) for c in sorted(total))


def _excess(total: float, room: float) -> float:
    """The load above the room; 0 if it is only rounding."""
    above = total - room
    return above if above > (0 if isinstance(above, int) else _ROUNDING * room) else 0


def _exact(capacity: float, loads: Iterable[float]) -> tuple[float, list[float]]:
    """Integers if all loads are, which add exactly; else a slightly larger capacity."""
    sizes = sorted(loads)
    if all(float(size).is_integer() for size in (capacity, *sizes)):
        return int(capacity), [int(size) for size in sizes]
    return capacity * (1 + _ROUNDING), sizes


def _l2(sizes: list[float], capacity: float) -> int:
    """L2 of ascending sizes, none above the capacity.

    For a threshold k: those above capacity - k share with none of size k or more; those above half
    share with no other such; what remains of size k or more fills their gaps, then new consumers.
    """
    sums = [0, *accumulate(sizes)]
    half = bisect_right(sizes, capacity, key=lambda size: 2 * size)
    best = 0
    for threshold in sorted({0, *sizes[:half]}):
        first = bisect_left(sizes, threshold)
        alone = max(half, bisect_right(sizes, capacity - threshold))
        gaps = (alone - half) * capacity - (sums[alone] - sums[half])
        overflow = max(0, sums[half] - sums[first] - gaps)
        best = max(best, len(sizes) - half + _ceil_div(overflow, capacity))
        if alone == half:  # as for all higher thresholds, which have less to fill in
            break
    return best


def _ceil_div(amount: float, by: float) -> int:
    if isinstance(amount, int) and isinstance(by, int):
        return -(-amount // by)
    return math.ceil(amount / by)
