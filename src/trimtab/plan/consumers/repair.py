"""The smallest repairs of an assignment: what must leave overloaded consumers, and little else.

Promise  Partitions without a consumer are placed too. The removal is the cheapest for a consumer of
         up to 10 partitions, by load or by number; for more it is approximate.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, combinations

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import Bins, Rule, bigger_first

_Price = Callable[[float, int], tuple[float, float]]

_ENUMERATED = 10
"""Up to this many partitions of a consumer are tried in every combination."""


def smallest_repairs(
    loads: Mapping[TopicPartition, float], before: Assignment, limits: GroupLimits
) -> tuple[Assignment, Assignment]:
    """The repairs that move the least load, and the fewest partitions."""
    return (
        _repair(loads, before, limits, lambda load, number: (load, number)),
        _repair(loads, before, limits, lambda load, number: (number, load)),
    )


def _repair(
    loads: Mapping[TopicPartition, float], before: Assignment, limits: GroupLimits, cheaper: _Price
) -> Assignment:
    held: dict[int, list[TopicPartition]] = {}
    for partition in bigger_first(before, loads):
        held.setdefault(before[partition], []).append(partition)
    bins = Bins(loads, before, limits, Rule.BEST)
    homeless = [p for p in loads if p not in before]
    for home, partitions in sorted(held.items()):
        gone = _least_removal(partitions, loads, limits, limits.of(home), cheaper)
        homeless += gone
        for partition in partitions:
            if partition not in gone:
                bins.add(partition, home)
    for partition in bigger_first(homeless, loads):
        bins.place(partition)
    return bins.assignment()


def _least_removal(
    heavy: Sequence[TopicPartition],
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    capacity: float,
    cheaper: _Price,
) -> tuple[TopicPartition, ...]:
    """The cheapest partitions to remove so that the rest fits; approximate if many."""

    def load(partitions: Iterable[TopicPartition]) -> float:
        return sum(loads[p] for p in partitions)

    def may_stay(gone: Collection[TopicPartition]) -> bool:
        left = frozenset(gone)
        rest = [p for p in heavy if p not in left]
        alone = len(rest) == 1 and loads[rest[0]] > limits.largest
        return alone or load(rest) <= capacity

    def runs() -> Iterator[tuple[TopicPartition, ...]]:
        """From each partition downwards, the fewest that are enough."""
        sums = [0, *accumulate(loads[p] for p in heavy)]
        for at in range(len(heavy)):
            end = bisect_left(sums, sums[at] + sums[-1] - capacity)
            yield tuple(heavy[at:end])
        yield tuple(heavy[1:])
        yield tuple(heavy)

    if may_stay(()):
        return ()
    sizes = range(1, len(heavy) + 1)
    subsets = (c for size in sizes for c in combinations(heavy, size))
    choices = subsets if len(heavy) <= _ENUMERATED else runs()
    enough = (c for c in choices if may_stay(c))
    return min(enough, key=lambda c: cheaper(load(c), len(c)))
