"""What no plan can beat that moves whole keys and leaves all other keys where they are.

Promise  `least_peak` is a lower bound of the busiest partition: the mean, rounded up; the other
         keys of a partition; and the largest key with the fewest other keys beside it.
Cost     O(keys + partitions).

>>> keys = [KeyCount(key=b"a", count=60, partition=0), KeyCount(key=b"b", count=20, partition=0)]
>>> least_peak([90, 20, 10], keys)
70
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fractions import Fraction

from trimtab.model.key_counts import KeyCount


def least_peak(totals: Sequence[int], movable: Collection[KeyCount]) -> int:
    """The fewest records that the busiest partition can have."""
    others = list(totals)
    for key in movable:
        others[key.partition] -= key.count
    largest = max((key.count for key in movable), default=0)
    mean = -(-sum(totals) // len(totals))
    return max(mean, *others, largest + min(others))


def imbalance(totals: Sequence[int]) -> Fraction:
    """The load of the busiest partition divided by the mean; 1 without load."""
    return relative(max(totals), totals)


def relative(load: int, totals: Sequence[int]) -> Fraction:
    """A load divided by the mean load of a partition; 1 without load."""
    total = sum(totals)
    return Fraction(load * len(totals), total) if total else Fraction(1)


def balancing_error(loads: Sequence[int]) -> Fraction:
    """`Σ |R_p − R_avg|`, the paper's equation (2).

    >>> balancing_error([4, 1, 1])
    Fraction(4, 1)
    """
    m, total = len(loads), sum(loads)
    return Fraction(sum(abs(m * load - total) for load in loads), m)
