"""As even as it gets over a given number of consumers, moving little.

Why      Planners ask for as many consumers as the load needs. Where there may not be so many, those
         there are must share what is too much for them, and none may stand idle meanwhile.
Promise  Pure. All partitions are placed, on exactly so many consumers while there are partitions
         for all of them. Consumers that carry most stay. Then single partitions go to the lightest
         for as long as that lowers the heavier of the two, from the heaviest consumer of which that
         is true: one with a single partition cannot be relieved, and does not hold up the others.
         Ties go to the lowest index and the lowest partition.
Cost     O(n log n) to place, O(n log n) per partition moved after that.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.plan.packing.bins import bigger_first, check_loads


def level(loads: Mapping[TopicPartition, float], current: Assignment, consumers: int) -> Assignment:
    """Who reads what, with so many consumers.

    >>> orders = [TopicPartition("orders", n) for n in range(4)]
    >>> after = level(dict(zip(orders, (60, 60, 60, 50))), Assignment({p: 0 for p in orders}), 3)
    >>> [after[p] for p in orders]
    [1, 2, 0, 0]
    """
    check_loads(loads)
    present = current.only(loads)
    held = {
        c: {p for p, owner in present.items() if owner == c}
        for c in _chosen(present, loads, min(consumers, len(loads)))
    }
    carried = {c: sum(loads[p] for p in sorted(mine)) for c, mine in held.items()}
    placed = set().union(*held.values())
    for p in bigger_first(loads.keys() - placed, loads):
        _give(p, min(carried, key=lambda c: (carried[c], len(held[c]), c)), held, carried, loads)
    for _ in range(2 * len(loads)):
        if not _relieve(held, carried, loads):
            break
    owners = {p: c for c, mine in held.items() for p in mine}
    return Assignment({p: owners[p] for p in sorted(owners)})


def _chosen(present: Assignment, loads: Mapping[TopicPartition, float], wanted: int) -> list[int]:
    """Those that carry most today, and new ones where that are too few."""
    carried = present.loads(loads)
    chosen = sorted(carried, key=lambda c: (-carried[c], c))[:wanted]
    fresh = (c for c in count() if c not in carried)
    return sorted([*chosen, *(next(fresh) for _ in range(wanted - len(chosen)))])


def _relieve(
    held: dict[int, set[TopicPartition]],
    carried: dict[int, float],
    loads: Mapping[TopicPartition, float],
) -> bool:
    """Moves one partition to the lightest, from the heaviest consumer that this makes lighter."""
    light = min(carried, key=lambda c: (carried[c], len(held[c]), c))
    idle = not held[light]
    others = [c for c in carried if c != light and len(held[c]) > idle]
    for heavy in sorted(others, key=lambda c: (-carried[c], -len(held[c]), c)):
        best, heavier = _best_move(heavy, light, held, carried, loads)
        if idle or heavier < carried[heavy]:
            held[heavy].discard(best)
            carried[heavy] = sum(loads[p] for p in sorted(held[heavy]))
            _give(best, light, held, carried, loads)
            return True
    return False


def _best_move(
    heavy: int,
    light: int,
    held: Mapping[int, set[TopicPartition]],
    carried: Mapping[int, float],
    loads: Mapping[TopicPartition, float],
) -> tuple[TopicPartition, float]:
    """The partition whose move levels the two best, and the heavier load that this leaves."""

    def heavier(p: TopicPartition) -> float:
        return max(carried[heavy] - loads[p], carried[light] + loads[p])

    best = min(sorted(held[heavy]), key=heavier)
    return best, heavier(best)


def _give(
    partition: TopicPartition,
    consumer: int,
    held: dict[int, set[TopicPartition]],
    carried: dict[int, float],
    loads: Mapping[TopicPartition, float],
) -> None:
    held[consumer].add(partition)
    carried[consumer] += loads[partition]
