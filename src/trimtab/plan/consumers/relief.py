"""How much overload a plan removes, and which overload no plan can remove.

Why      A partition that is too big for every consumer keeps its consumer overloaded. Judged by
         the highest load of the group, it would hide every other overload.
Promise  Pure. Removable overload is the load of a consumer above its capacity, or above its biggest
         partition if that alone exceeds the capacity. Every sum is rounded once (`math.fsum`);
         a billionth of a capacity counts as 0.
Cost     O(partitions).

>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> loads, limits = dict(zip(orders, (150, 60, 55))), GroupLimits(capacity=100)
>>> before = Assignment(dict(zip(orders, (0, 1, 1))))
>>> overloads(before, loads, limits)
{1: 15.0}
>>> relieves(before, Assignment(dict(zip(orders, (0, 1, 2)))), loads, limits)
True
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import count

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits

_ROUNDING = 1e-9
_NAMED = 3


def overloads(
    assignment: Assignment, loads: Mapping[TopicPartition, float], limits: GroupLimits
) -> dict[int, float]:
    """The removable overload of each overloaded consumer."""
    held: dict[int, list[float]] = {}
    for partition in sorted(assignment):
        held.setdefault(assignment[partition], []).append(loads.get(partition, 0.0))
    found = {}
    for consumer in sorted(held):
        limit, mine = limits.of(consumer), held[consumer]
        over = math.fsum((*mine, -max(limit, *mine)))
        if over > limit * _ROUNDING:
            found[consumer] = over
    return found


def overload(
    assignment: Assignment, loads: Mapping[TopicPartition, float], limits: GroupLimits
) -> float:
    """The removable overload of all consumers together."""
    return math.fsum(overloads(assignment, loads, limits).values())


def relieves(
    before: Assignment,
    after: Assignment,
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
) -> bool:
    """Whether `after` has less removable overload than `before`."""
    if before == after:
        return False
    removed = overload(before, loads, limits) - overload(after, loads, limits)
    return removed > limits.capacity * _ROUNDING


def shared_peak(assignment: Assignment, loads: Mapping[TopicPartition, float]) -> float:
    """The highest load of a consumer with at least two loaded partitions; 0 if there is none."""
    held: dict[int, list[float]] = {}
    for partition in sorted(assignment):
        if loads.get(partition, 0.0) > 0:
            held.setdefault(assignment[partition], []).append(loads[partition])
    return max((math.fsum(mine) for mine in held.values() if len(mine) > 1), default=0.0)


def first_aid(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    *,
    most: int | None = None,
    max_moves: int | None = None,
    max_moved_load: float | None = None,
) -> Assignment:
    """Removes as much overload as single moves can, within a budget, and assigns unread partitions.

    The worst overload comes first. The smallest partition that ends it moves, else the biggest, to
    the consumer with the most room, or to a new one (if allowed) if it fits nowhere. A partition
    without a consumer is assigned whether it fits or not.
    """
    owners = dict(given_out(loads, current, limits, most=most))
    moves = len(loads) if max_moves is None else max_moves
    budget = math.inf if max_moved_load is None else max_moved_load
    for _ in range(moves):
        move = _next_move(owners, loads, limits, most, budget)
        if move is None:
            break
        partition, target = move
        owners[partition] = target
        budget -= loads[partition]
    return Assignment({p: owners[p] for p in sorted(owners)})


def given_out(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    *,
    most: int | None = None,
    idle: Collection[int] = (),
) -> Assignment:
    """Assigns every partition without a consumer, the biggest first, and moves nothing.

    It goes to the consumer with the most room, among equals to the one with the fewest partitions,
    or to a new one (if allowed) if it fits nowhere. Consumers in `idle` are used as far as the
    maximum number of consumers allows.
    """
    owners = dict(current.only(loads))
    carried = Assignment(owners).loads(loads)
    allowed = len(loads) if most is None else max(0, most - len(carried))
    carried |= dict.fromkeys([c for c in sorted(idle) if c not in carried][:allowed], 0.0)
    held = Counter(owners.values())
    for partition in sorted(loads.keys() - owners.keys(), key=lambda p: (-loads[p], p)):
        best = max(carried, key=lambda c: (limits.of(c) - carried[c], -held[c], -c), default=None)
        if best is None or (
            carried[best] > 0
            and carried[best] + loads[partition] > limits.of(best)
            and (most is None or len(carried) < most)
        ):
            best = next(c for c in count() if c not in carried)
        owners[partition] = best
        carried[best] = carried.get(best, 0.0) + loads[partition]
        held[best] += 1
    return Assignment({p: owners[p] for p in sorted(owners)})


def _next_move(
    owners: Mapping[TopicPartition, int],
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    most: int | None,
    budget: float,
) -> tuple[TopicPartition, int] | None:
    """The most useful move now; None if there is none."""
    over = overloads(Assignment(owners), loads, limits)
    for consumer in sorted(over, key=lambda c: (-over[c], c)):
        mine = [p for p in sorted(owners) if owners[p] == consumer and 0 < loads[p] <= budget]
        enough = sorted((p for p in mine if loads[p] >= over[consumer]), key=lambda p: loads[p])
        less = sorted((p for p in mine if loads[p] < over[consumer]), key=lambda p: -loads[p])
        for partition in (*enough, *less):
            place = _place(loads[partition], owners, loads, limits, most, but=consumer)
            if place is not None:
                return partition, place
    return None


def _place(
    load: float,
    owners: Mapping[TopicPartition, int],
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    most: int | None,
    *,
    but: int,
) -> int | None:
    """The consumer with the most room for this load, else a new one if allowed."""
    carried = Assignment(owners).loads(loads)
    room = {c: limits.of(c) - total for c, total in carried.items() if c != but}
    best = max(room, key=lambda c: (room[c], -c), default=None)
    if best is not None and room[best] >= load:
        return best
    if most is not None and len(carried) >= most:
        return None
    return next(c for c in count() if c not in carried)


def too_big(loads: Mapping[TopicPartition, float], limits: GroupLimits) -> list[TopicPartition]:
    """Partitions above the capacity of every consumer, biggest first."""
    most = limits.largest * (1 + _ROUNDING)
    found = [p for p in loads if loads[p] > most]
    return sorted(found, key=lambda p: (-loads[p], p))


def too_big_said(
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    *,
    arrivals: Mapping[TopicPartition, float] | None = None,
) -> str | None:
    """A text that names the partitions too big for every consumer, and what helps.

    With `arrivals`, loads include backlogs: a partition whose arrivals alone fit is too big only
    until its backlog has been read.

    >>> limits = GroupLimits(capacity=100)
    >>> too_big_said({TopicPartition("orders", 0): 150}, limits)
    'orders-0 alone needs 1.5 consumers: split its keys or raise capacity'
    """
    rates = loads if arrivals is None else arrivals
    found = too_big(loads, limits)
    for_good = [p for p in found if rates.get(p, 0.0) > limits.largest]
    behind = [p for p in found if p not in for_good]
    said = []
    if for_good:
        need = _listed(f"{p} alone needs {_parts(rates[p], limits)}" for p in for_good)
        said.append(f"{need}: split {_its(for_good)} keys or raise capacity")
    if behind:
        need = _listed(f"{p} alone needs {_parts(loads[p], limits)}" for p in behind)
        backlogs = "its backlog is" if len(behind) == 1 else "their backlogs are"
        said.append(f"{need} until {backlogs} read")
    return "; ".join(said) or None


def _its(partitions: list[TopicPartition]) -> str:
    return "its" if len(partitions) == 1 else "their"


def _parts(load: float, limits: GroupLimits) -> str:
    """The number of consumers needed for this load, rounded up to a tenth."""
    tenths = math.ceil(load / limits.largest * 10 * (1 - _ROUNDING))
    return f"{tenths / 10:g} consumers"


def _listed(words: Iterable[str]) -> str:
    found = list(words)
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more
