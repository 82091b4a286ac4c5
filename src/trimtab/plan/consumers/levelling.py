"""Spreads load evenly over a given number of consumers, with few moves.

Why      If fewer consumers are allowed than the load needs, they must share the overload evenly.
Promise  Pure. All partitions are placed, on exactly `wanted` consumers if there are enough
         partitions. The consumers with the most load stay. Then single partitions move to the
         lightest consumer, from the heaviest one for which this lowers the heavier of the two. Ties
         go to the lowest index and partition. A budget of moves is respected: surplus consumers
         keep what it does not allow to move. Partitions without a consumer are placed regardless.
Cost     O(n log n) to place, O(n log n) per partition moved after that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import count

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.plan.consumers.bins import bigger_first, check_loads


def level(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    consumers: int,
    *,
    max_moves: int | None = None,
    max_moved_load: float | None = None,
) -> Assignment:
    """The assignment with this number of consumers.

    >>> orders = [TopicPartition("orders", n) for n in range(4)]
    >>> after = level(dict(zip(orders, (60, 60, 60, 50))), Assignment({p: 0 for p in orders}), 3)
    >>> [after[p] for p in orders]
    [1, 2, 0, 0]
    """
    check_loads(loads)
    present = current.only(loads)
    budget = _Budget(present, loads, max_moves, max_moved_load)
    chosen = _chosen(present, loads, min(consumers, len(loads)))
    stays = _kept_by_budget(present, loads, frozenset(chosen), budget)
    held = {c: {p for p, owner in present.items() if owner == c} for c in chosen}
    carried = {c: sum(loads[p] for p in sorted(mine)) for c, mine in held.items()}
    placed = set().union(stays, *held.values())
    for p in bigger_first(loads.keys() - placed, loads):
        _give(p, min(carried, key=lambda c: (carried[c], len(held[c]), c)), held, carried, loads)
    for _ in range(2 * len(loads)):
        if not _relieve(held, carried, loads, budget):
            break
    owners = stays | {p: c for c, mine in held.items() for p in mine}
    return Assignment({p: owners[p] for p in sorted(owners)})


class _Budget:
    """The remaining moves; moving a partition back returns what its first move cost."""

    def __init__(
        self,
        present: Assignment,
        loads: Mapping[TopicPartition, float],
        max_moves: int | None,
        max_moved_load: float | None,
    ) -> None:
        self._homes, self._loads = present, loads
        self._moves = math.inf if max_moves is None else max_moves
        self._load = math.inf if max_moved_load is None else max_moved_load

    def allows(self, partition: TopicPartition, source: int | None, target: int | None) -> bool:
        """Whether the budget allows this move."""
        moves = self._moved(partition, source, target)
        return moves <= 0 or (moves <= self._moves and self._loads[partition] <= self._load)

    def spend(self, partition: TopicPartition, source: int | None, target: int | None) -> None:
        """Subtracts this move from the budget."""
        moves = self._moved(partition, source, target)
        self._moves -= moves
        self._load -= moves * self._loads[partition]

    def _moved(self, partition: TopicPartition, source: int | None, target: int | None) -> int:
        home = self._homes.get(partition)
        return 0 if home is None else (target != home) - (source != home)


def _kept_by_budget(
    present: Assignment,
    loads: Mapping[TopicPartition, float],
    chosen: frozenset[int],
    budget: _Budget,
) -> dict[TopicPartition, int]:
    """What surplus consumers keep because of the budget; those easiest to empty go first."""
    leaving: dict[int, list[TopicPartition]] = {}
    for partition in bigger_first(present, loads):
        if present[partition] not in chosen:
            leaving.setdefault(present[partition], []).append(partition)
    stays = {}
    carried = present.loads(loads)
    for consumer in sorted(leaving, key=lambda c: (len(leaving[c]), carried[c], c)):
        for partition in leaving[consumer]:
            if budget.allows(partition, consumer, None):
                budget.spend(partition, consumer, None)
            else:
                stays[partition] = consumer
    return stays


def _chosen(present: Assignment, loads: Mapping[TopicPartition, float], wanted: int) -> list[int]:
    """The consumers with the most load, and new ones if these are too few."""
    carried = present.loads(loads)
    chosen = sorted(carried, key=lambda c: (-carried[c], c))[:wanted]
    fresh = (c for c in count() if c not in carried)
    return sorted([*chosen, *(next(fresh) for _ in range(wanted - len(chosen)))])


def _relieve(
    held: dict[int, set[TopicPartition]],
    carried: dict[int, float],
    loads: Mapping[TopicPartition, float],
    budget: _Budget,
) -> bool:
    """Moves one partition to the lightest consumer, from the heaviest that this relieves."""
    light = min(carried, key=lambda c: (carried[c], len(held[c]), c))
    idle = not held[light]
    others = [c for c in carried if c != light and len(held[c]) > idle]
    for heavy in sorted(others, key=lambda c: (-carried[c], -len(held[c]), c)):
        best, heavier = _best_move(heavy, light, held, carried, loads, budget)
        if best is not None and (idle or heavier < carried[heavy]):
            budget.spend(best, heavy, light)
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
    budget: _Budget,
) -> tuple[TopicPartition | None, float]:
    """The partition whose move balances the two best, and the resulting heavier load."""

    def heavier(p: TopicPartition) -> float:
        return max(carried[heavy] - loads[p], carried[light] + loads[p])

    allowed = [p for p in sorted(held[heavy]) if budget.allows(p, heavy, light)]
    best = min(allowed, key=heavier, default=None)
    return best, carried[heavy] if best is None else heavier(best)


def _give(
    partition: TopicPartition,
    consumer: int,
    held: dict[int, set[TopicPartition]],
    carried: dict[int, float],
    loads: Mapping[TopicPartition, float],
) -> None:
    held[consumer].add(partition)
    carried[consumer] += loads[partition]
