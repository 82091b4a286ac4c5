"""Names for new bins: each is matched with the consumer that already holds most of it.

Why      A packing says what belongs together, not who reads it. Naming its bins well is free, and
         every partition that keeps its reader is one that need not be handed over.
Promise  No other naming keeps more load in place, and of those that keep as much none keeps more
         partitions, so that empty ones stay too. Ties are settled consumer by consumer, the
         smallest index first: it is matched if it can be, with the smallest bin that it can get.
         A bin that shares no partition with a consumer is never matched with it; such bins take
         the lowest indexes left, in bin order. All sums are exact, those of floats too.
Cost     Shortest augmenting paths over the pairs that share a partition: O(bins · pairs · log n)
         at worst, and far less for groups as they are met. Where thousands of pairs are worth the
         same, settling the ties costs several times as much as the matching.
Paper    Ezzeddine et al. leave the names to the group. Kuhn (1955) and Munkres (1957) for the
         matching; its dual values also say which pairs any best matching may use.

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
    """The consumer of each bin, such that the least weight changes its consumer.

    `idle` are consumers that a bin without a match takes before any other index.
    """
    matched = matching(_worth(bins, current, weights))
    taken = set(matched.values())
    spare = set(idle) - taken
    free = chain(sorted(spare), (n for n in count() if n not in taken and n not in spare))
    return [matched[b] if b in matched else next(free) for b in range(len(bins))]


def matching(pairs: _Pairs) -> dict[int, int]:
    """Bin → consumer: the most valuable matching, and of equal ones the first as promised above."""
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
    """The weight that a pair shares, then the number of partitions, as one exact integer."""
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
    """A maximum-weight matching with its proof: prices that no pair beats.

    `bin_price + consumer_price >= worth` for every pair, with equality where matched; whoever is
    left over has price 0. Bins enter one by one, each along a shortest path of slack.
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
        """The pairs that a matching of the same worth may use."""
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
        # Every bin of the path takes the consumer it came to, and gives its own to the one before.
        end = self.consumer_of.pop(path.left_over, None) if path.free is None else path.free
        while end is not None:
            b = path.came_from[end]
            self._bin_of[end] = b
            before = self.consumer_of.get(b)
            self.consumer_of[b], end = end, before

    def _shortest(self, start: int) -> _Path:
        """The least that must be given up: up to a free consumer, or to a bin to leave over."""
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
    """How far a search has come: bins and consumers met, each with its distance."""

    left_over: int
    length: int
    free: int | None = None
    bins: dict[int, int] = field(default_factory=dict)
    consumers: dict[int, int] = field(default_factory=dict)
    came_from: dict[int, int] = field(default_factory=dict)


def _parts(pairs: _Pairs) -> list[dict[int, Mapping[int, int]]]:
    """The connected parts of a graph, each as pairs of its own."""
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
    """The same worths with a digit per consumer below them: higher for smaller bins.

    Consumers stand in the order of their digits, so the sum of a matching compares as promised.
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
