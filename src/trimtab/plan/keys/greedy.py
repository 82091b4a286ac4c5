"""Greedy rebalancing: overloaded partitions give keys away, the smallest first.

Promise  Every move lowers the balancing error `Σ |R_p − R_avg|`. The overloaded partitions are
         those at the start, the largest first. One gives its keys by (count, key) until it is at
         the mean; each goes to the partition below the mean that comes nearest to the mean with
         it, ties by (load, number), among those where the distance of the two loads shrinks.
Cost     O(k log m) for k keys: partitions below the mean are in a sorted list.
Paper    Bhattacharya & Wood, equation (3), in integers. Differs: the order across partitions,
         ties, and that a partition stops at the mean are not said there.

>>> keys = [KeyCount(key=b"a", count=6, partition=0), KeyCount(key=b"b", count=3, partition=0)]
>>> [(s.key.key, s.source, s.target) for s in rebalanced([9, 0, 1], {0: keys})]
[(b'b', 0, 1)]
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from trimtab.model.key_counts import KeyCount


class GreedyStep(NamedTuple):
    """A key goes to another partition; the loads are those just before."""

    key: KeyCount
    source: int
    target: int
    load_from: int
    load_to: int


Accepts = Callable[[GreedyStep], bool]


def rebalanced(
    loads: list[int], keys: Mapping[int, Sequence[KeyCount]], accepts: Accepts | None = None
) -> Iterator[GreedyStep]:
    """Yields the moves of one pass, and changes `loads` after each.

    `keys` are the keys of each partition that may move. A key whose move is not accepted stays.
    """
    m, total = len(loads), sum(loads)
    below = sorted((load, p) for p, load in enumerate(loads) if m * load < total)
    over = sorted((-load, p) for p, load in enumerate(loads) if m * load > total)
    for _, source in over:
        for key in sorted(keys.get(source, ()), key=lambda k: (k.count, k.key)):
            load = loads[source]
            if m * load <= total:
                break
            at = best_fit(below, key.count, room=load - key.count, m=m, total=total)
            if at is None:
                continue
            load_to, target = below[at]
            step = GreedyStep(key, source, target, load, load_to)
            if accepts is not None and not accepts(step):
                continue
            del below[at]
            loads[source], loads[target] = load - key.count, load_to + key.count
            if m * loads[target] < total:
                insort(below, (loads[target], target))
            yield step
        if m * loads[source] < total:
            insort(below, (loads[source], source))


def best_fit(
    below: Sequence[tuple[int, int]], count: int, *, room: int, m: int, total: int
) -> int | None:
    """The place in `below` of the partition for a key; None if there is none.

    `below` are (load, partition) below the mean, ascending; only loads below `room` are allowed.
    """
    if count <= 0:
        return None
    end = bisect_left(below, (room, -1))
    if end == 0:
        return None
    # |m·(count + load) − total| falls up to load = (total − m·count) / m and then rises.
    rises = min(end, bisect_left(below, (-((m * count - total) // m), -1)))
    best = None
    if rises > 0:
        best = bisect_left(below, (below[rises - 1][0], -1))
    if rises < end:
        near = abs(m * (count + below[rises][0]) - total)
        if best is None or near < abs(m * (count + below[best][0]) - total):
            best = rises
    return best
