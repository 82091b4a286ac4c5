"""Exact packing with a solver: the fewest consumers, then the least load moved.

Promise  The notes say `optimal`, or `feasible` with the bounds reached within the time limit.
         Without a solution in time it returns its start (BFD's packing, or LL-FFD's with an SLA),
         or raises if consumers differ and that does not fit. Capacities hold exactly: every answer
         is checked, and an overfull set is excluded before the solver runs again. Without a time
         limit equal input gives equal plans.
Cost     Exponential at worst. 48 partitions on 25 consumers take 1–2 s; 200 need a time limit.
Paper    Landau et al. (3-11), lexicographic; with an SLA Ezzeddine et al., section 3.2, capped.
         Both with x <= y. Oversize and empty partitions are placed outside the model.

>>> orders = [TopicPartition("orders", n) for n in range(3)]
>>> loads, now = dict(zip(orders, (60, 50, 40))), Assignment(dict(zip(orders, (0, 1, 2))))
>>> plan = exact(loads, now, GroupLimits(capacity=100))
>>> [plan[p] for p in orders], plan.notes["status"]
([0, 1, 0], 'optimal')
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

from trimtab.errors import NoFeasiblePlan
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import fit_decreasing
from trimtab.plan.consumers.bin_model import BinModel, alike_bins, solved
from trimtab.plan.consumers.bins import Rule, bigger_first, check_loads
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.deadline import Deadline, TimeLimit
from trimtab.plan.consumers.latency_demand import demand_of
from trimtab.plan.consumers.least_loaded_ffd import assigned, fewest, packed
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    PackingContext,
    PackingPlanner,
    PlannerOptions,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactOptions(PlannerOptions):
    """Options of `exact`."""

    time_limit_s: TimeLimit = None


_EXACT = ExactOptions()


def exact(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: ExactOptions = _EXACT,
    /,
) -> Assignment:
    """Packs onto the fewest consumers and moves the least load; the notes state the gap."""
    deadline = Deadline(options.time_limit_s, context.clock)
    if context.sla_s is None:
        return _by_load(loads, current.only(loads), limits, deadline)
    return _by_latency(loads, current, limits, context, deadline)


def _by_latency(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext,
    deadline: Deadline,
) -> Assignment:
    """Ezzeddine's model: the fewest consumers for rate and lag."""
    demand = demand_of(loads, limits, context)
    bins = packed(demand)
    least, most = fewest(demand), len(bins)
    notes: dict[str, Any] = {"status": "optimal"}
    if least < most:
        items = tuple(demand.in_order())
        rates = tuple(demand.rate_share(p) for p in items)
        lags = tuple(demand.lag_share(p) for p in items)
        answer = solved(
            alike_bins((rates, lags), (demand.mu, demand.most_lag), least, most - 1), deadline
        )
        if answer.bin_of is not None:
            bins = answer.bins(items)
        if not answer.proven:
            notes = {"status": "feasible", "bound_consumers": max(least, answer.bound_up)}
    return assigned(bins, demand, current, notes=notes)


def _by_load(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    deadline: Deadline,
) -> Assignment:
    """Landau's model: the fewest consumers, then the least load moved."""
    check_loads(loads)
    oversize = [p for p in bigger_first(loads, loads) if loads[p] > limits.largest]
    owners = _at_home(oversize, current, limits)
    pinned = frozenset(owners.values())
    items = {p: loads[p] for p in sorted(loads) if 0 < loads[p] <= limits.largest}
    stranded = _stranded(items, limits, deadline)
    task = _Task(
        loads={p: load for p, load in items.items() if p not in stranded},
        homes={p: c for p, c in current.items() if c not in pinned},
        limits=limits,
        pinned=pinned,
        displaced=math.fsum(items[p] for p in items if current.get(p) in pinned),
    )
    found, notes = _least_moved(task, deadline) if task.loads else ({}, {"status": "optimal"})
    owners |= found
    alone = bigger_first({*oversize, *stranded}, loads)
    for p in alone:
        if p not in owners:
            owners[p] = _own(current.get(p), owners.values())
    full = frozenset(owners[p] for p in alone)
    empty = [p for p in sorted(loads) if loads[p] == 0]
    owners |= _empty_at_home(empty, current, frozenset(owners.values()) - full, full)
    return Assignment({p: owners[p] for p in sorted(owners)}, notes)


def _at_home(
    oversize: Iterable[TopicPartition], current: Assignment, limits: GroupLimits
) -> dict[TopicPartition, int]:
    """The largest oversize partition of each consumer stays there.

    A consumer of more than the usual capacity is not used so: another partition may need it.
    """
    owners: dict[TopicPartition, int] = {}
    for p in oversize:
        home = current.get(p)
        if home is not None and home not in owners.values() and limits.of(home) <= limits.capacity:
            owners[p] = home
    return owners


def _own(home: int | None, taken: Iterable[int]) -> int:
    """A consumer for a single partition: its current one, else the lowest free index."""
    used = set(taken)
    return home if home is not None and home not in used else next(_unused(used))


def _unused(*used: Iterable[int]) -> Iterator[int]:
    taken = set().union(*used)
    return (n for n in count() if n not in taken)


def _empty_at_home(
    empty: Sequence[TopicPartition],
    current: Assignment,
    readers: frozenset[int],
    full: frozenset[int],
) -> dict[TopicPartition, int]:
    """Places empty partitions: on their current consumer if it is in use, else on the lowest."""
    if empty and not readers:
        held = [current[p] for p in empty if p in current and current[p] not in full]
        readers = frozenset(
            {max(sorted(set(held)), key=held.count) if held else next(_unused(full))}
        )
    return {p: home if (home := current.get(p, -1)) in readers else min(readers) for p in empty}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """Loads above 0 that all fit, their current consumers, and the unavailable consumers."""

    loads: Mapping[TopicPartition, float]
    homes: Mapping[TopicPartition, int]
    limits: GroupLimits
    pinned: frozenset[int]
    displaced: float  # load that must leave a pinned consumer

    @property
    def items(self) -> tuple[TopicPartition, ...]:
        return tuple(bigger_first(self.loads, self.loads))

    @property
    def sizes(self) -> tuple[float, ...]:
        return tuple(self.loads[p] for p in self.items)

    @property
    def equal(self) -> bool:
        """Whether all consumers are interchangeable."""
        return all(own == self.limits.capacity for own in self.limits.capacities.values())

    def candidates(self, most: int) -> tuple[list[int], int]:
        """Consumers that a plan with `most` of them may need, and how many are interchangeable.

        Among equal consumers, a new one is needed only if all current ones are in use.
        """
        today = set(self.homes.values())
        if not self.equal:
            today |= set(self.limits.capacities) - self.pinned
        new = max(0, most - len(today)) if self.equal else most
        fresh = islice(_unused(today, self.pinned, self.limits.capacities), new)
        return [*sorted(today), *fresh], new


def _stranded(
    items: Mapping[TopicPartition, float], limits: GroupLimits, deadline: Deadline
) -> frozenset[TopicPartition]:
    """The fewest partitions without room, if only some consumers are large enough for them."""
    big = tuple(p for p in bigger_first(items, items) if items[p] > limits.capacity)
    if not big:
        return frozenset()
    large = sorted(c for c, own in limits.capacities.items() if own > limits.capacity)
    sizes = tuple(items[p] for p in big)
    model = BinModel(
        sizes=(sizes,),
        rooms=(
            (*(limits.of(c) for c in large), *sizes),
        ),  # followed by one bin for each partition alone
        price=(*(0 for _ in large), *(1 for _ in big)),
        barred=frozenset(
            (len(large) + own, k) for own in range(len(big)) for k in range(len(big)) if k != own
        ),
    )
    answer = solved(model, deadline)
    if answer.bin_of is None or not answer.proven:
        raise _out_of_time(len(big), deadline)
    return frozenset(p for p, b in zip(big, answer.bin_of, strict=True) if b >= len(large))


def _least_moved(
    task: _Task, deadline: Deadline
) -> tuple[dict[TopicPartition, int], dict[str, Any]]:
    """The assignment and its notes: first the fewest consumers, then the least load moved."""
    least, most, found = _fewest(task, deadline)
    homed = [(k, p) for k, p in enumerate(task.items) if p in task.homes]
    total, bound = math.fsum(task.loads[p] for _, p in homed), 0.0
    proven = least == most
    if homed or found is None:
        consumers, new = task.candidates(most)
        number = {c: i for i, c in enumerate(consumers)}
        unit = _unit(task.loads.values(), task.limits.capacity)
        model = BinModel(
            sizes=(task.sizes,),
            rooms=(tuple(task.limits.of(c) for c in consumers),),
            gain={(number[task.homes[p]], k): task.loads[p] / unit for k, p in homed},
            most=most,
            alike=range(len(consumers) - new, len(consumers)),
        )
        answer = solved(model, deadline)
        if answer.bin_of is not None:
            found = {p: consumers[b] for p, b in zip(task.items, answer.bin_of, strict=True)}
        elif found is None:
            raise _out_of_time(len(task.items), deadline)
        proven = proven and answer.proven and answer.bin_of is not None
        bound = max(0.0, total + answer.bound * unit)
    if proven:
        return found, {"status": "optimal"}
    return found, {
        "status": "feasible",
        "bound_consumers": least,
        "bound_moved_load": bound + task.displaced,
    }


def _fewest(task: _Task, deadline: Deadline) -> tuple[int, int, dict[TopicPartition, int] | None]:
    """Lower and upper bound of the number of consumers, and a packing for the latter if known."""
    least = fewest_consumers(task.loads.values(), task.limits)
    easy = fit_decreasing(task.loads, Assignment(), task.limits, rule=Rule.BEST)
    carried = easy.loads(task.loads)
    fits = all(load <= task.limits.of(c) for c, load in carried.items())
    most = len(carried) if fits else len(task.loads)
    names = list(islice(_unused(task.pinned), most))
    if not task.equal:
        # Consumers are not interchangeable here, and an unavailable one may be among them.
        backup = dict(easy.items()) if fits and not carried.keys() & task.pinned else None
        if least == most:
            return least, most, backup
        return _fewest_unequal(task, least, most, backup, deadline)
    first = {p: names[c] for p, c in easy.items()}
    if least == most:
        return least, most, first
    capacity = task.limits.capacity
    answer = solved(alike_bins((task.sizes,), (capacity,), least, most - 1), deadline)
    if answer.bin_of is not None:
        used = len(set(answer.bin_of))
        first = {p: names[b] for p, b in zip(task.items, answer.bin_of, strict=True)}
        return used if answer.proven else max(least, answer.bound_up), used, first
    if answer.proven:
        return most, most, first
    return max(least, answer.bound_up), most, first


def _fewest_unequal(
    task: _Task,
    least: int,
    most: int,
    backup: dict[TopicPartition, int] | None,
    deadline: Deadline,
) -> tuple[int, int, dict[TopicPartition, int] | None]:
    consumers, new = task.candidates(most)
    model = BinModel(
        sizes=(task.sizes,),
        rooms=(tuple(task.limits.of(c) for c in consumers),),
        price=(1,) * len(consumers),
        least=least,
        most=most,
        alike=range(len(consumers) - new, len(consumers)),
    )
    answer = solved(model, deadline)
    if answer.bin_of is None:
        if backup is None:
            raise _out_of_time(len(task.items), deadline)
        return max(least, answer.bound_up), most, backup
    used = len(set(answer.bin_of))
    found = {p: consumers[b] for p, b in zip(task.items, answer.bin_of, strict=True)}
    return used if answer.proven else max(least, answer.bound_up), used, found


def _unit(loads: Collection[float], capacity: float) -> float:
    """The unit of moved load: the solver distinguishes relative differences of about 1e-6."""
    if all(float(load).is_integer() for load in loads):
        return math.gcd(*(int(load) for load in loads))
    return capacity / 1e6


def _out_of_time(items: int, deadline: Deadline) -> NoFeasiblePlan:
    return NoFeasiblePlan(
        f"The solver found no valid assignment of {items} partitions within {deadline.limit_s:g} s."
        if deadline.limit_s is not None
        else f"The solver found no valid assignment of {items} partitions.",
        hint='Raise the time limit, or use a planner without a solver, such as "bfd".',
    )


EXACT: tuple[PackingPlanner, ...] = (
    PackingPlanner(
        name="exact",
        rule=exact,
        options=_EXACT,
        uses=frozenset({"sla_s", "lags", "clock"}),
    ),
)
