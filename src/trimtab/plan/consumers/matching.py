"""Assigns new bins to consumers, so that as much load as possible keeps its consumer.

Promise  No other matching keeps more load in place, and none with equal load keeps more
         partitions. Ties: consumers in ascending order are matched if possible, each with the
         smallest possible bin. A bin is matched only with a consumer that has one of its
         partitions; other bins take the lowest free indexes, in bin order. All sums are exact.
Cost     Shortest augmenting paths over the pairs that share a partition: O(bins · pairs · log n)
         at worst, usually far less; many equal pairs make it several times slower.
Paper    Ezzeddine et al. do not specify it. Kuhn (1955) and Munkres (1957); the dual values show
         which pairs an optimal matching may use.

>>> first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
>>> named([{first}, {second}], Assignment({first: 4, second: 0}), {first: 10, second: 20})
[4, 0]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

_Pairs = Mapping[int, Mapping[int, int]]  # bin → consumer → what the pair is worth, above 0


def named(
    bins: Sequence[Collection[TopicPartition]],
    current: Assignment,
    weights: Mapping[TopicPartition, float],
    *,
    idle: Collection[int] = (),
) -> list[int]:
    """The consumer of each bin, such that the least load changes its consumer.

    `idle` are consumers that a bin without a match takes before any other index.
    """
    matched = matching(_worth(bins, current, weights))
    taken = set(matched.values())
    spare = set(idle) - taken
    free = chain(sorted(spare), (n for n in count() if n not in taken and n not in spare))
    return [matched[b] if b in matched else next(free) for b in range(len(bins))]


def matching(pairs: _Pairs) -> dict[int, int]:
    """Bin → consumer: the matching of maximum weight; ties as described above."""
    best = _Matching(pairs)
    ties = best.tight_pairs()
    found = best.consumer_of
    for part in _parts(ties):
        if len(part) > 1 or any(len(row) > 1 for row in part.values()):
            for b in part:
                found.pop(b, None)
            found |= _Matching(_with_ties_settled(part)).consumer_of
    return found


def _worth(
    bins: Sequence[Collection[TopicPartition]],
    current: Assignment,
    weights: Mapping[TopicPartition, float],
) -> dict[int, dict[int, int]]:
    """The load that a pair shares, then the number of partitions, as one exact integer."""
    shared = [
        (b, current[p], weights[p]) for b, bin_ in enumerate(bins) for p in bin_ if p in current
    ]
    ratios = [weight.as_integer_ratio() for _, _, weight in shared]
    scale = max((below for _, below in ratios), default=1)  # a power of two, so all divide it
    pairs: dict[int, dict[int, int]] = {}
    for (b, consumer, _), (above, below) in zip(shared, ratios, strict=True):
        row = pairs.setdefault(b, {})
        worth = above * (scale // below) * (len(shared) + 1) + 1
        row[consumer] = row.get(consumer, 0) + worth
    return pairs


class _Matching:
    """A maximum-weight matching with its dual prices, which prove that it is optimal.

    `bin_price + consumer_price >= worth` for every pair, with equality if matched; unmatched bins
    and consumers have price 0. Bins enter one by one, each along a shortest path of slack.
    """

    def __init__(self, pairs: _Pairs) -> None:
        self._rows = {b: sorted(pairs[b].items()) for b in sorted(pairs)}
        self._bin_price: dict[int, int] = {}
        self._consumer_price: dict[int, int] = {}
        self._bin_of: dict[int, int] = {}
        self.consumer_of: dict[int, int] = {}
        for b in self._rows:
            self._enter(b)

    def tight_pairs(self) -> dict[int, dict[int, int]]:
        """The pairs that a matching of the same weight may use."""
        tight: dict[int, dict[int, int]] = {}
        for b, row in self._rows.items():
            price = self._bin_price[b]
            equal = {c: w for c, w in row if price + self._consumer_price.get(c, 0) == w}
            if equal:
                tight[b] = equal
        return tight

    def _enter(self, start: int) -> None:
        prices = self._consumer_price
        self._bin_price[start] = max(0, *(w - prices.get(c, 0) for c, w in self._rows[start]))
        path = self._shortest(start)
        for b, far in path.bins.items():
            self._bin_price[b] -= max(0, path.length - far)
        for c, far in path.consumers.items():
            prices[c] = prices.get(c, 0) + max(0, path.length - far)
        # Every bin of the path takes the next consumer, and gives its own to the bin before.
        end = self.consumer_of.pop(path.left_over, None) if path.free is None else path.free
        while end is not None:
            b = path.came_from[end]
            self._bin_of[end] = b
            before = self.consumer_of.get(b)
            self.consumer_of[b], end = end, before

    def _shortest(self, start: int) -> _Path:
        """The shortest path to a free consumer, or to a bin that is left unmatched."""
        path = _Path(left_over=start, length=self._bin_price[start])
        heap: list[tuple[int, bool, int, int]] = []
        at, far = start, 0
        while True:
            path.bins[at] = far
            passed = far + self._bin_price[at]
            if passed < path.length:
                path.left_over, path.length = at, passed
            for c, w in self._rows[at]:
                distance = passed + self._consumer_price.get(c, 0) - w
                if distance <= path.length and c not in path.consumers:
                    heappush(heap, (distance, c in self._bin_of, c, at))
            while heap and heap[0][2] in path.consumers:
                heappop(heap)
            if not heap or heap[0][0] > path.length:
                return path
            far, taken, c, path.came_from[c] = heappop(heap)
            path.consumers[c] = far
            if not taken:
                path.free, path.length = c, far
                return path
            at = self._bin_of[c]


@dataclass(slots=True, kw_only=True)
class _Path:
    """The state of a search: visited bins and consumers with their distances."""

    left_over: int
    length: int
    free: int | None = None
    bins: dict[int, int] = field(default_factory=dict)
    consumers: dict[int, int] = field(default_factory=dict)
    came_from: dict[int, int] = field(default_factory=dict)


def _parts(pairs: _Pairs) -> list[dict[int, Mapping[int, int]]]:
    """The connected components of the graph, each as its own pairs."""
    bins_of: dict[int, list[int]] = {}
    for b, row in pairs.items():
        for c in row:
            bins_of.setdefault(c, []).append(b)
    seen: set[int] = set()
    parts = []
    for first in pairs:
        if first in seen:
            continue
        seen.add(first)
        part, waiting = {}, [first]
        while waiting:
            b = waiting.pop()
            part[b] = pairs[b]
            for c in pairs[b]:
                waiting += (other for other in bins_of.pop(c, ()) if other not in seen)
                seen.update(waiting)
        parts.append(part)
    return parts


def _with_ties_settled(pairs: _Pairs) -> dict[int, dict[int, int]]:
    """The same weights with an extra digit per consumer as tie-break: higher for smaller bins.

    Digits are ordered by consumer, so that sums compare matchings as promised.
    """
    bins_of: dict[int, list[int]] = {}
    for b in sorted(pairs):
        for c in pairs[b]:
            bins_of.setdefault(c, []).append(b)
    unit = 1
    digits: dict[tuple[int, int], int] = {}
    for c in sorted(bins_of, reverse=True):
        for digit, b in enumerate(reversed(bins_of[c]), 1):
            digits[b, c] = digit * unit
        unit *= len(bins_of[c]) + 1
    return {b: {c: w * unit + digits[b, c] for c, w in row.items()} for b, row in pairs.items()}
