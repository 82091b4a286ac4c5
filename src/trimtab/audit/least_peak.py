"""The least possible peak: the lowest highest broker load that any partitioner can reach.

Why      Records of a topic go to its leaders only. If the topics S have only the brokers N(S), one
         of these has at least λ(S) / |N(S)|. If that is too much, leaders must move.
Promise  The highest λ(S) / |N(S)| over all sets of topics, and a set that attains it. No split of
         the rates has a lower peak, and some split reaches it. Exact: floating-point rates are
         converted to integers. Items are groups: topics with the same leaders are one item.
Cost     One maximum flow if the first guess (the mean, or the worst single item) is right; one
         more for each cut with a higher peak.
Paper    Burato claims that a shared SQF balances everything; it balances down to this bound. The
         theorem is ours: linear programming duality, the sets S being the cuts of the flow.

>>> least_peak([1.0, 1.0, 2.0], [[0, 1], [1, 2], [0, 2]])  # every broker can have 4/3
Bottleneck(peak=1.3333333333333333, items=(0, 1, 2), brokers=(0, 1, 2))
>>> least_peak([6.0, 2.0], [[0, 1], [1, 2]])  # even would be 8/3, but the first has only two
Bottleneck(peak=3.0, items=(0,), brokers=(0, 1))
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from math import fsum
from typing import NamedTuple

import numpy as np

from trimtab.audit.groups import as_bits, bits
from trimtab.audit.layout import Floats, Ints


class Bottleneck(NamedTuple):
    """Items that can use only these brokers, and the peak that results."""

    peak: float
    items: tuple[int, ...]
    brokers: tuple[int, ...]


def least_peak(rates: Sequence[float], brokers: Sequence[Sequence[int]]) -> Bottleneck:
    """The least possible peak; each item may be split over its brokers (at least one)."""
    sizes = np.fromiter(map(len, brokers), np.int64, len(brokers))
    start = np.concatenate(([0], np.cumsum(sizes)))
    flat = np.fromiter((b for of in brokers for b in of), np.int64, int(start[-1]))
    return least_peak_of(np.asarray(rates, dtype=np.float64), flat, start)


def least_peak_of(rates: Floats, brokers: Ints, start: Ints) -> Bottleneck:
    """The same, with the brokers of all items in one array; item i begins at `start[i]`."""
    if not rates.size or not rates.max() > 0:
        return Bottleneck(0.0, (), ())
    problem = _Problem(rates, brokers, start)
    best = max((problem.of_all(), problem.of_one()), key=lambda found: found.peak)
    return _by_flow(problem, best)


class _Problem:
    """Rows of item and broker, brokers numbered without gaps, items without a rate left out."""

    def __init__(self, rates: Floats, brokers: Ints, start: Ints) -> None:
        self.item = np.flatnonzero(rates > 0)
        self.rate = rates[self.item]
        size = np.diff(start)[self.item]
        rows = np.repeat(start[self.item] - np.cumsum(size) + size, size) + np.arange(size.sum())
        self.name, self.broker = np.unique(brokers[rows], return_inverse=True)
        self.start = np.concatenate(([0], np.cumsum(size)))
        self.size = size

    def of_all(self) -> Bottleneck:
        """The mean of all brokers, as the first guess."""
        return self.named(np.arange(self.item.size))

    def of_one(self) -> Bottleneck:
        """The single item with the highest peak by itself."""
        return self.named(np.array([np.argmax(self.rate / self.size)]))

    def named(self, items: Ints) -> Bottleneck:
        """A set of items with all the brokers that they may use."""
        inside = np.zeros(self.item.size, dtype=bool)
        inside[items] = True
        used = np.unique(self.broker[np.repeat(inside, self.size)])
        return Bottleneck(
            fsum(self.rate[items].tolist()) / used.size,
            tuple(self.item[items].tolist()),
            tuple(self.name[used].tolist()),
        )


def _by_flow(problem: _Problem, best: Bottleneck) -> Bottleneck:
    """Raises the bound to that of the cut while the rates do not fit under it."""
    ratios = [rate.as_integer_ratio() for rate in problem.rate.tolist()]
    unit = max(below for _, below in ratios)  # powers of two
    rates = [above * (unit // below) for above, below in ratios]
    edges = problem.start.tolist()
    flat = problem.broker.tolist()
    ways = [flat[edges[i] : edges[i + 1]] for i in range(len(rates))]
    item = np.repeat(np.arange(len(rates)), problem.size)
    masks = as_bits(item, problem.broker, rows=len(rates), width=problem.name.size)
    inside = {int(at) for at in np.flatnonzero(np.isin(problem.item, best.items))}
    peak = _ratio(rates, ways, inside)
    while True:
        # In units that make the peak a whole number.
        needs = [rate * peak.denominator for rate in rates]
        cut = _unplaced(needs, ways, masks, [peak.numerator] * problem.name.size)
        if not cut:
            return problem.named(np.array(sorted(inside)))
        inside, peak = cut, _ratio(rates, ways, cut)


def _ratio(rates: Sequence[int], ways: Sequence[Sequence[int]], items: set[int]) -> Fraction:
    return Fraction(sum(rates[i] for i in items), len({b for i in items for b in ways[i]}))


def _unplaced(
    needs: list[int], ways: Sequence[Sequence[int]], masks: Sequence[int], room: list[int]
) -> set[int]:
    """Items that do not fit on their brokers with this capacity; empty if all fit.

    A maximum flow by shortest augmenting paths, after a greedy first fill of the emptiest brokers.
    """
    flow = _Flow(needs, ways, masks, room)
    for item in sorted(range(len(needs)), key=lambda i: (len(ways[i]), -needs[i])):
        flow.deal(item)
    while True:
        reached, path = flow.path()
        if path is None:
            return reached
        flow.push(path)


class _Flow:
    """What is left of each item, what is free on each broker, and what each broker holds."""

    def __init__(
        self, left: list[int], ways: Sequence[Sequence[int]], masks: Sequence[int], free: list[int]
    ) -> None:
        self.left, self.ways, self.masks, self.free = left, ways, masks, free
        self.roomy = (1 << len(free)) - 1  # brokers with room, as bits
        self.unfinished: set[int] = set()
        self.given: list[dict[int, int]] = [{} for _ in left]
        self.holders: list[set[int]] = [set() for _ in free]

    def deal(self, item: int) -> None:
        """Gives an item to the emptiest of its brokers, then to the next."""
        while self.left[item]:
            broker = max(self.ways[item], key=self.free.__getitem__)
            put = min(self.left[item], self.free[broker])
            if not put:
                self.unfinished.add(item)
                return
            self.given[item][broker] = put
            self.holders[broker].add(item)
            self._take(item, broker, put)

    def path(self) -> tuple[set[int], list[tuple[int, int]] | None]:
        """A shortest augmenting path, as steps (item, target broker); else all items reached."""
        came: dict[int, tuple[int, int] | None] = dict.fromkeys(sorted(self.unfinished))
        ahead, seen = deque(came), 0
        while ahead:
            item = ahead.popleft()
            for broker in bits(self.masks[item] & ~seen):
                for other in self.holders[broker]:
                    if other in came:
                        continue
                    came[other] = (item, broker)
                    if self.masks[other] & self.roomy:
                        return set(), self._steps(other, came)
                    ahead.append(other)
            seen |= self.masks[item]
        return set(came), None

    def _steps(self, item: int, came: dict[int, tuple[int, int] | None]) -> list[tuple[int, int]]:
        steps = [(item, next(bits(self.masks[item] & self.roomy)))]
        while (before := came[steps[-1][0]]) is not None:
            steps.append(before)
        return steps[::-1]

    def push(self, path: list[tuple[int, int]]) -> None:
        """Moves as much as possible along a path: each step frees room for the previous item."""
        first, last = path[0][0], path[-1][1]
        ways = [(item, broker) for (_, broker), (item, _) in pairwise(path)]
        given = [self.given[item][broker] for item, broker in ways]
        amount = min(self.left[first], self.free[last], *given)
        for item, broker in path:
            self.given[item][broker] = self.given[item].get(broker, 0) + amount
            self.holders[broker].add(item)
        for item, broker in ways:
            self.given[item][broker] -= amount
            if not self.given[item][broker]:
                self.holders[broker].discard(item)
        self._take(first, last, amount)
        if not self.left[first]:
            self.unfinished.discard(first)

    def _take(self, item: int, broker: int, amount: int) -> None:
        self.left[item] -= amount
        self.free[broker] -= amount
        if not self.free[broker]:
            self.roomy &= ~(1 << broker)
