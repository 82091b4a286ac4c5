"""Trim: repairs the current assignment with as few consumers as `bfd` and the least load moved.

Promise  Never more consumers than `bfd` needs (plus `slack`), and no more load moved than by `bfd`
         with equal consumers renamed to fit. Deterministic for a seed. A budget of moves or moved
         load is respected, with as few consumers as it allows; at timeout the best plan so far.
Cost     Sweeps: about 0.5 s for 200 partitions, seconds for 10 000; none if nothing must move.
Paper    Ours, an alternative to Landau et al. A sweep splits each consumer's partitions in two:
         one part stays, the others are reassigned, one to each consumer, at the least price of
         moves and overload: a linear assignment problem, solved exactly. Splits and decreasing
         noise come from the seed. It starts from the current assignment and from `bfd`'s packing.
         With slack, the number of consumers changes only when the need leaves a band.

>>> orders = [TopicPartition("orders", n) for n in range(4)]
>>> loads = dict(zip(orders, (70, 40, 30, 10)))
>>> before = Assignment(dict(zip(orders, (0, 0, 1, 2))))
>>> after = trim(loads, before, GroupLimits(capacity=100))
>>> [after[p] for p in orders]
[0, 1, 1, 0]
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Annotated

from trimtab.errors import NoFeasiblePlan
from trimtab.evaluate.rscore import moved_load
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import fit_decreasing
from trimtab.plan.consumers.bins import Rule, check_loads
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.deadline import Deadline, TimeLimit
from trimtab.plan.consumers.matching import named
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    MoveBudget,
    PackingContext,
    PackingPlanner,
    PlannerOptions,
)
from trimtab.plan.consumers.repair import smallest_repairs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_OVERLOAD = 1000.0
"""Price of a unit of overload, relative to the price of a unit moved."""
_A_MOVE = 1e-4
"""Fixed price of a move, as a share of the capacity: fewer partitions move for equal load."""
_HEAT = 0.6
"""Noise on the prices in the first sweep, as a share of the capacity."""
_WORK, _FEWEST_SWEEPS, _MOST_SWEEPS = 90_000, 60, 900
_TIGHT = 0.97
_BLOCK = 160
"""Consumers that exchange partitions within one assignment problem."""
_STIRRED, _ALL_STIRRED = 0.3, 20
"""The share of unaffected consumers in a sweep; if there are few, all take part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrimOptions(PlannerOptions):
    """Options of `trim`."""

    slack: Annotated[float, "Extra consumers that trim may use, as a share of those bfd needs."] = (
        0.0
    )
    max_moves: Annotated[
        int | None, "Most partitions that one plan may move to another consumer."
    ] = None
    max_moved_load: Annotated[
        float | None, "Most load that one plan may move to other consumers."
    ] = None
    time_limit_s: TimeLimit = None

    @property
    def budget(self) -> MoveBudget:
        """The limits for moves."""
        return MoveBudget(max_moves=self.max_moves, max_moved_load=self.max_moved_load)


_TRIM = TrimOptions()


def trim(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: TrimOptions = _TRIM,
    /,
) -> Assignment:
    """Packs with as few consumers as `bfd`, or a little more, moving little load."""
    check_loads(loads)
    before = current.only(loads)
    if _is_best(loads, before, limits):
        return Assignment(dict(sorted(before.items())))
    return searched(loads, before, limits, context, options)


def _is_best(
    loads: Mapping[TopicPartition, float], before: Assignment, limits: GroupLimits
) -> bool:
    """Whether no plan has fewer consumers, and nothing must move.

    With unequal capacities the search may prefer to move an oversize partition.
    """
    return (
        len(before) == len(loads)
        and not limits.capacities
        and _has_room(before, loads, limits)
        and len(before.consumers) == fewest_consumers(loads.values(), limits)
    )


def _has_room(
    answer: Assignment,
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
    pinned: Collection[TopicPartition] = (),
) -> bool:
    """Whether no consumer is overloaded, exactly summed, except with one oversize partition."""
    holders = Counter(answer.values())
    alone = {
        c
        for p, c in answer.items()
        if holders[c] == 1 and (loads[p] > limits.largest or p in pinned)
    }
    carried = answer.loads(loads)
    return all(load <= limits.of(c) or c in alone for c, load in carried.items())


def searched(
    loads: Mapping[TopicPartition, float],
    before: Assignment,
    limits: GroupLimits,
    context: PackingContext,
    options: TrimOptions,
) -> Assignment:
    """The plan found by packing and sweeps, also where nothing must move."""
    packed = fit_decreasing(loads, before, limits, rule=Rule.BEST)
    if not before:
        return packed
    renamed = _renamed(packed, before, loads, limits)
    deadline = Deadline(options.time_limit_s, context.clock)
    task = _Task(loads, before, limits, renamed, options, context.seed, deadline)
    if options.max_moves is None and options.max_moved_load is None:
        return task.best(task.consumers_wanted)
    return _within_budget(task)


def _renamed(
    packed: Assignment,
    before: Assignment,
    loads: Mapping[TopicPartition, float],
    limits: GroupLimits,
) -> Assignment:
    """The packing with its consumers renamed to fit the current assignment, if all are equal."""
    if limits.capacities:
        return packed
    bins: dict[int, list[TopicPartition]] = {}
    for partition in sorted(packed):
        bins.setdefault(packed[partition], []).append(partition)
    names = dict(zip(bins, named([*bins.values()], before, loads), strict=True))
    return Assignment({p: names[c] for p, c in packed.items()})


def _within_budget(task: _Task) -> Assignment:
    """The plan with the fewest consumers within the budget; more consumers need fewer moves."""
    affordable = [r for r in task.repairs if task.valid(r) and task.affordable(r)]
    if not affordable:
        answer = task.best(task.consumers_wanted)
        if not task.affordable(answer):
            raise _budget_too_small(task, answer)
        affordable = [answer]
    found = min(affordable, key=lambda repair: len(repair.consumers))
    low, high = task.consumers_wanted, len(found.consumers)
    middle = low
    while low < high and not task.deadline.is_over():
        answer = task.best(middle)
        if task.affordable(answer):
            found, high = answer, min(middle, len(answer.consumers))
        else:
            low = middle + 1
        middle = (low + high) // 2
    return found


def _budget_too_small(task: _Task, found: Assignment) -> NoFeasiblePlan:
    lightest, fewest = task.repairs
    needs = "Removing every overload needs at least"
    if not (task.valid(lightest) and task.valid(fewest)):  # a new partition fits nowhere as it is
        lightest = fewest = found
        needs = "The cheapest plan found without an overload needs"
    moves, load = len(moved(task.before, fewest)), moved_load(task.before, lightest, task.loads)
    return NoFeasiblePlan(
        f"{needs} {moves} move{'s'[: moves != 1]} and {load:g} of moved load.",
        hint="Raise --max-moves or --max-moved-load, or leave them out.",
    )


@dataclass(frozen=True)
class _Task:
    """The problem; `packed` is the packing of best fit decreasing, with the best names."""

    loads: Mapping[TopicPartition, float]
    before: Assignment
    limits: GroupLimits
    packed: Assignment
    options: TrimOptions
    seed: int
    deadline: Deadline

    @cached_property
    def pinned(self) -> dict[TopicPartition, int]:
        """Oversize partitions, each alone on a consumer."""
        owners = self.packed.items()
        return {p: c for p, c in owners if self.loads[p] > self.limits.of(c)}

    @cached_property
    def free(self) -> list[TopicPartition]:
        """All other partitions, ascending."""
        return [p for p in sorted(self.loads) if p not in self.pinned]

    @cached_property
    def homes(self) -> dict[TopicPartition, int]:
        """The current consumers of free partitions, without consumers of pinned partitions."""
        taken = set(self.pinned.values())
        found = ((p, self.before.get(p)) for p in self.free)
        return {p: c for p, c in found if c is not None and c not in taken}

    @property
    def consumers_wanted(self) -> int:
        """As many as best fit decreasing, or the present number if it is within the slack."""
        least = len(self.packed.consumers)
        most = math.floor(least * (1 + self.options.slack))
        wanted = min(most, least + math.ceil(self.options.slack * least / 4))
        return min(most, max(wanted, len(self.before.consumers)))

    def best(self, consumers: int) -> Assignment:
        """The cheapest valid plan found with at most this many consumers."""
        found = []
        if consumers <= 2 * _BLOCK or not self._tight(consumers) or self._may_stay(consumers):
            found.append(self._searched(*self._past(consumers - len(self.pinned))))
            if self.valid(found[0]) and not moved(self.before, found[0]):
                return found[0]  # nothing is cheaper
        # The packing does not use the slack, so it is useful only without slack.
        if consumers <= len(self.packed.consumers) or not any(map(self.valid, found)):
            found.append(self._searched(*self._packing()))
        return min(filter(self.valid, (*found, self.packed)), key=self._price)

    def _searched(self, slots: list[int], owners: Mapping[TopicPartition, int]) -> Assignment:
        return self._named(_Search(self, slots, owners).run())

    def _tight(self, consumers: int) -> bool:
        """Whether too little room is left to repair a large group with overloads."""
        room = consumers * self.limits.capacity
        return sum(self.loads.values()) > _TIGHT * room

    def _may_stay(self, consumers: int) -> bool:
        """Whether the current assignment is complete and needs no repair."""
        return (
            len(self.before) == len(self.loads)
            and len(self.before.consumers) <= consumers
            and self.valid(self.before)
        )

    def valid(self, answer: Assignment) -> bool:
        """Whether no consumer is overloaded, except with one oversize partition."""
        return _has_room(answer, self.loads, self.limits, self.pinned)

    def affordable(self, answer: Assignment) -> bool:
        """Whether the plan is within the budget."""
        moves, load = self.options.max_moves, self.options.max_moved_load
        return (moves is None or len(moved(self.before, answer)) <= moves) and (
            load is None or moved_load(self.before, answer, self.loads) <= load
        )

    @cached_property
    def repairs(self) -> tuple[Assignment, Assignment]:
        """The smallest repairs: what must leave overloaded consumers, by load and by number."""
        return smallest_repairs(self.loads, self.before, self.limits)

    def _price(self, answer: Assignment) -> tuple[float, int]:
        away = moved(self.before, answer)
        return sum(self.loads[p] for p in away), len(away)

    def _past(self, wanted: int) -> tuple[list[int], dict[TopicPartition, int]]:
        """The consumers to keep, the fullest ones, and the partitions that stay."""
        carried = Assignment(self.homes).loads(self.loads)
        kept = sorted(sorted(carried, key=lambda c: (-carried[c], c))[:wanted])
        fresh = self._others({*kept, *self.pinned.values()})
        slots = kept + [next(fresh) for _ in range(wanted - len(kept))]
        staying = set(kept)
        return slots, {p: c for p, c in self.homes.items() if c in staying}

    def _packing(self) -> tuple[list[int], dict[TopicPartition, int]]:
        """The packing of best fit decreasing."""
        owners = {p: self.packed[p] for p in self.free}
        return sorted(set(owners.values())), owners

    def closed(self, slots: Collection[int]) -> list[int]:
        """Current consumers that are not among these and could replace one of them."""
        taken = {*slots, *self.pinned.values()}
        return [c for c in self.before.consumers if c not in taken]

    def _others(self, taken: set[int]) -> Iterator[int]:
        """Free indexes: those of the packing, then the lowest."""
        proven = [
            c for c in self.packed.consumers if c not in taken and c in self.limits.capacities
        ]
        yield from proven
        yield from (c for c in count() if c not in taken and c not in proven)

    def _named(self, owners: dict[TopicPartition, int]) -> Assignment:
        """The owners with the pinned ones; new consumers get the lowest free indexes."""
        together = {**owners, **self.pinned}
        fixed = {*self.before.consumers, *self.pinned.values(), *self.limits.capacities}
        new = sorted(set(owners.values()) - fixed)
        taken = (fixed & set(together.values())) | set(self.limits.capacities)
        lowest = (c for c in count() if c not in taken)
        names = dict(zip(new, lowest, strict=False))
        return Assignment({p: names.get(c, c) for p, c in sorted(together.items())})


class _Search:
    """Partitions and consumers as arrays, and the sweeps over them."""

    def __init__(self, task: _Task, slots: list[int], owners: Mapping[TopicPartition, int]) -> None:
        import numpy as np

        self.names, self.slots = task.free, slots + task.closed(slots)
        self.open = np.arange(len(self.slots)) < len(slots)
        place = {consumer: slot for slot, consumer in enumerate(self.slots)}
        self.size = np.array([task.loads[p] for p in task.free], float)
        self.room = np.array([task.limits.of(c) for c in self.slots], float)
        self.home = np.array([place.get(task.homes.get(p, -1), -1) for p in task.free], int)
        self.unit = task.limits.capacity
        known = np.array([p in task.before for p in task.free], bool)
        self.price = np.where(known, self.size + _A_MOVE * self.unit, 0.0)
        self.slot = np.array([place.get(owners.get(p, -1), -1) for p in task.free], int)
        self.rng = np.random.default_rng(task.seed)
        self.is_over = task.deadline.is_over
        self._settle()

    def run(self) -> dict[TopicPartition, int]:
        """Sweeps until the result is good or the effort is spent; returns partition → consumer."""
        best, cost = self.slot.copy(), self._cost()
        sweeps = _sweeps(int(self.open.sum()))
        for number in range(sweeps):
            if cost == 0 or self.is_over():
                break
            left = 1 - number / sweeps
            self._sweep(self._cut(number), heat=_HEAT * self.unit * left**2 if left > 0.02 else 0.0)
            if (now := self._cost()) < cost:
                best, cost = self.slot.copy(), now
        return {p: self.slots[s] for p, s in zip(self.names, best.tolist(), strict=True)}

    def _settle(self) -> None:
        """Puts unplaced partitions on the emptiest open consumers, even if they overload."""
        import numpy as np

        filled = np.bincount(self.slot[self.slot >= 0], self.size[self.slot >= 0], len(self.slots))
        for at in sorted(np.flatnonzero(self.slot < 0).tolist(), key=lambda i: (-self.size[i], i)):
            emptiest = int(np.argmax(np.where(self.open, self.room - filled, -np.inf)))
            self.slot[at] = emptiest
            filled[emptiest] += self.size[at]

    def _cost(self) -> float:
        import numpy as np

        filled = np.bincount(self.slot, self.size, len(self.slots))
        overload = np.maximum(filled - self.room, 0).sum()
        return float(_OVERLOAD * overload + self.price[self.slot != self.home].sum())

    def _cut(self, number: int) -> NDArray[np.bool_]:
        """Which partitions are reassigned: in turn the smallest, the moved ones, random ones."""
        import numpy as np

        match number % 4:
            case 0:
                order = np.lexsort((self.size, self.slot))
                owner = self.slot[order]
                cut = np.zeros(len(order), bool)
                cut[order[np.append(True, owner[1:] != owner[:-1])]] = True
                return cut
            case 1:
                away: NDArray[np.bool_] = self.slot != self.home
                return np.logical_xor(away, self.rng.random(len(self.slot)) < 0.15)
            case 2:
                return self.rng.random(len(self.slot)) < 0.3
            case _:
                return self.rng.random(len(self.slot)) < 0.5

    def _sweep(self, cut: NDArray[np.bool_], *, heat: float) -> None:
        import numpy as np

        stirred = self._participants()
        blocks = math.ceil(stirred.sum() / _BLOCK)
        block = np.full(len(self.slots), -1)
        if blocks == 1:
            block[stirred] = 0
        else:
            order = [slot for slot in self._neighbours() if stirred[slot]]
            block[order] = np.arange(len(order)) * blocks // len(order)
        items = np.argsort(block[self.slot], kind="stable")
        ends = np.searchsorted(block[self.slot][items], np.arange(blocks + 1))
        for number in range(blocks):
            inside = items[ends[number] : ends[number + 1]]
            self._deal(np.flatnonzero(block == number), inside, cut[inside], heat)

    def _participants(self) -> NDArray[np.bool_]:
        """The consumers in a sweep: all with a move or an overload, and some of the rest."""
        import numpy as np

        rest = max(_STIRRED, _ALL_STIRRED / len(self.slots))
        takes_part = ~self.open | (self.rng.random(len(self.slots)) < rest)
        takes_part |= np.bincount(self.slot, self.size, len(self.slots)) > self.room
        away = self.slot != self.home
        takes_part[self.slot[away]] = True
        takes_part[self.home[away & (self.home >= 0)]] = True
        return takes_part

    def _neighbours(self) -> list[int]:
        """All consumers, ordered so that a partition and its old consumer are close."""
        import numpy as np

        away = np.flatnonzero((self.home >= 0) & (self.home != self.slot))
        links: dict[int, list[int]] = {}
        for here, home in zip(self.slot[away].tolist(), self.home[away].tolist(), strict=True):
            links.setdefault(here, []).append(home)
            links.setdefault(home, []).append(here)
        seen = [False] * len(self.slots)
        order: list[int] = []
        for root in self.rng.permutation(len(self.slots)).tolist():
            waiting = deque([root])
            while waiting:
                slot = waiting.popleft()
                if not seen[slot]:
                    seen[slot] = True
                    order.append(slot)
                    waiting.extend(links.get(slot, ()))
        return order

    def _deal(
        self,
        slots: NDArray[np.int_],
        items: NDArray[np.int_],
        cut: NDArray[np.bool_],
        heat: float,
    ) -> None:
        """Assigns the split-off parts to these consumers, one to each, at the least price."""
        import numpy as np
        from scipy.optimize import linear_sum_assignment

        local = np.full(len(self.slots), -1)
        local[slots] = np.arange(len(slots))
        size, owner = self.size[items], local[self.slot[items]]
        home = np.where(self.home[items] >= 0, local[self.home[items]], -1)
        stays = np.bincount(owner[~cut], size[~cut], len(slots))
        goes = np.bincount(owner[cut], size[cut], len(slots))
        over = stays[:, None] + goes[None, :] - self.room[slots][:, None]
        prices = np.maximum(over, 0, out=over)
        prices *= _OVERLOAD
        back = cut & (home >= 0)
        np.subtract.at(prices, (home[back], owner[back]), self.price[items][back])
        if heat:
            prices += heat * self.rng.random(prices.shape)
        # A closed consumer gets an empty part, so nothing may stay there.
        closed = ~self.open[slots]
        occupied = np.bincount(owner[~cut], minlength=len(slots)) > 0
        prices[:, closed] = np.where(occupied, np.inf, 0.0)[:, None]
        takes, parts = linear_sum_assignment(prices)
        goes_to = np.empty(len(slots), int)
        goes_to[parts] = slots[takes]
        self.open[slots] = True
        self.open[goes_to[closed]] = False
        self.slot[items[cut]] = goes_to[owner[cut]]


def _sweeps(consumers: int) -> int:
    """The effort: enough for small groups, bounded for large ones."""
    return min(10 * consumers + 10, _MOST_SWEEPS, max(_FEWEST_SWEEPS, _WORK // max(1, consumers)))


TRIM: tuple[PackingPlanner, ...] = (
    PackingPlanner(name="trim", rule=trim, options=_TRIM, uses=frozenset({"seed", "clock"})),
)
