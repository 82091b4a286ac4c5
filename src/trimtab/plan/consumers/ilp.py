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
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, count, islice, product
from typing import TYPE_CHECKING, Any

from trimtab.errors import NoFeasiblePlan
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import any_fit
from trimtab.plan.consumers.bins import Rule, bigger_first, check_loads
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.least_loaded_ffd import assigned, demand_of, fewest, packed
from trimtab.plan.consumers.planner import DEFAULTS, PackingOptions, PackingPlanner

if TYPE_CHECKING:
    from scipy.optimize import LinearConstraint


def exact(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Packs onto the fewest consumers and moves the least load; the notes state the gap."""
    clock = _Clock(options.time_limit_s)
    if options.sla_s is None:
        return _by_load(loads, current.only(loads), limits, clock)
    return _by_latency(loads, current, limits, options, clock)


class _Clock:
    """The remaining part of the time limit; without a limit it is infinite."""

    def __init__(self, limit_s: float | None) -> None:
        if limit_s is not None and not limit_s > 0:
            raise ValueError(f"the time limit must be a positive number of seconds, not {limit_s}")
        self.limit_s = limit_s
        self._end = None if limit_s is None else time.monotonic() + limit_s

    def left_s(self) -> float:
        """The remaining seconds, always above 0, so that the solver itself reports the timeout."""
        return math.inf if self._end is None else max(1e-3, self._end - time.monotonic())


def _by_latency(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions,
    clock: _Clock,
) -> Assignment:
    """Ezzeddine's model: the fewest consumers for rate and lag."""
    demand = demand_of(loads, limits, options)
    bins = packed(demand)
    least, most = fewest(demand), len(bins)
    notes: dict[str, Any] = {"status": "optimal"}
    if least < most:
        items = tuple(demand.in_order())
        rates = tuple(demand.rate_share(p) for p in items)
        lags = tuple(demand.lag_share(p) for p in items)
        answer = _solved(
            _alike((rates, lags), (demand.mu, demand.most_lag), least, most - 1), clock
        )
        if answer.bin_of is not None:
            bins = answer.bins(items)
        if not answer.proven:
            notes = {"status": "feasible", "bound_consumers": max(least, answer.bound_up)}
    return assigned(bins, demand, current, notes=notes)


def _by_load(
    loads: Mapping[TopicPartition, float], current: Assignment, limits: GroupLimits, clock: _Clock
) -> Assignment:
    """Landau's model: the fewest consumers, then the least load moved."""
    check_loads(loads)
    oversize = [p for p in bigger_first(loads, loads) if loads[p] > limits.largest]
    owners = _at_home(oversize, current, limits)
    pinned = frozenset(owners.values())
    items = {p: loads[p] for p in sorted(loads) if 0 < loads[p] <= limits.largest}
    stranded = _stranded(items, limits, clock)
    task = _Task(
        loads={p: load for p, load in items.items() if p not in stranded},
        homes={p: c for p, c in current.items() if c not in pinned},
        limits=limits,
        pinned=pinned,
        displaced=math.fsum(items[p] for p in items if current.get(p) in pinned),
    )
    found, notes = _least_moved(task, clock) if task.loads else ({}, {"status": "optimal"})
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
    items: Mapping[TopicPartition, float], limits: GroupLimits, clock: _Clock
) -> frozenset[TopicPartition]:
    """The fewest partitions without room, if only some consumers are large enough for them."""
    big = tuple(p for p in bigger_first(items, items) if items[p] > limits.capacity)
    if not big:
        return frozenset()
    large = sorted(c for c, own in limits.capacities.items() if own > limits.capacity)
    sizes = tuple(items[p] for p in big)
    model = _Model(
        sizes=(sizes,),
        rooms=(
            (*(limits.of(c) for c in large), *sizes),
        ),  # followed by one bin for each partition alone
        price=(*(0 for _ in large), *(1 for _ in big)),
        barred=frozenset(
            (len(large) + own, k) for own in range(len(big)) for k in range(len(big)) if k != own
        ),
    )
    answer = _solved(model, clock)
    if answer.bin_of is None or not answer.proven:
        raise _out_of_time(len(big), clock)
    return frozenset(p for p, b in zip(big, answer.bin_of, strict=True) if b >= len(large))


def _least_moved(task: _Task, clock: _Clock) -> tuple[dict[TopicPartition, int], dict[str, Any]]:
    """The assignment and its notes: first the fewest consumers, then the least load moved."""
    least, most, found = _fewest(task, clock)
    homed = [(k, p) for k, p in enumerate(task.items) if p in task.homes]
    total, bound = math.fsum(task.loads[p] for _, p in homed), 0.0
    proven = least == most
    if homed or found is None:
        consumers, new = task.candidates(most)
        number = {c: i for i, c in enumerate(consumers)}
        unit = _unit(task.loads.values(), task.limits.capacity)
        model = _Model(
            sizes=(task.sizes,),
            rooms=(tuple(task.limits.of(c) for c in consumers),),
            gain={(number[task.homes[p]], k): task.loads[p] / unit for k, p in homed},
            most=most,
            alike=range(len(consumers) - new, len(consumers)),
        )
        answer = _solved(model, clock)
        if answer.bin_of is not None:
            found = {p: consumers[b] for p, b in zip(task.items, answer.bin_of, strict=True)}
        elif found is None:
            raise _out_of_time(len(task.items), clock)
        proven = proven and answer.proven and answer.bin_of is not None
        bound = max(0.0, total + answer.bound * unit)
    if proven:
        return found, {"status": "optimal"}
    return found, {
        "status": "feasible",
        "bound_consumers": least,
        "bound_moved_load": bound + task.displaced,
    }


def _fewest(task: _Task, clock: _Clock) -> tuple[int, int, dict[TopicPartition, int] | None]:
    """Lower and upper bound of the number of consumers, and a packing for the latter if known."""
    least = fewest_consumers(task.loads.values(), task.limits)
    easy = any_fit(task.loads, Assignment(), task.limits, rule=Rule.BEST, decreasing=True)
    carried = easy.loads(task.loads)
    fits = all(load <= task.limits.of(c) for c, load in carried.items())
    most = len(carried) if fits else len(task.loads)
    names = list(islice(_unused(task.pinned), most))
    if not task.equal:
        # Consumers are not interchangeable here, and an unavailable one may be among them.
        backup = dict(easy.items()) if fits and not carried.keys() & task.pinned else None
        if least == most:
            return least, most, backup
        return _fewest_unequal(task, least, most, backup, clock)
    first = {p: names[c] for p, c in easy.items()}
    if least == most:
        return least, most, first
    capacity = task.limits.capacity
    answer = _solved(_alike((task.sizes,), (capacity,), least, most - 1), clock)
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
    clock: _Clock,
) -> tuple[int, int, dict[TopicPartition, int] | None]:
    consumers, new = task.candidates(most)
    model = _Model(
        sizes=(task.sizes,),
        rooms=(tuple(task.limits.of(c) for c in consumers),),
        price=(1,) * len(consumers),
        least=least,
        most=most,
        alike=range(len(consumers) - new, len(consumers)),
    )
    answer = _solved(model, clock)
    if answer.bin_of is None:
        if backup is None:
            raise _out_of_time(len(task.items), clock)
        return max(least, answer.bound_up), most, backup
    used = len(set(answer.bin_of))
    found = {p: consumers[b] for p, b in zip(task.items, answer.bin_of, strict=True)}
    return used if answer.proven else max(least, answer.bound_up), used, found


def _unit(loads: Collection[float], capacity: float) -> float:
    """The unit of moved load: the solver distinguishes relative differences of about 1e-6."""
    if all(float(load).is_integer() for load in loads):
        return math.gcd(*(int(load) for load in loads))
    return capacity / 1e6


def _out_of_time(items: int, clock: _Clock) -> NoFeasiblePlan:
    return NoFeasiblePlan(
        f"The solver found no valid assignment of {items} partitions within {clock.limit_s:g} s."
        if clock.limit_s is not None
        else f"The solver found no valid assignment of {items} partitions.",
        hint='Raise the time limit, or use a planner without a solver, such as "bfd".',
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """Items into bins, each item once: min Σ price·y − Σ gain·x.

    Attributes:
        sizes: Sizes of the items, in each dimension.
        rooms: Capacities of the bins, in each dimension.
        price: Price of each bin in use; without it all are free.
        gain: Gain of each (bin, item).
        least: Minimum number of bins in use.
        most: Maximum number of bins in use.
        alike: Interchangeable bins, used from the first on.
        barred: Forbidden pairs (bin, item).
    """

    sizes: tuple[tuple[float, ...], ...]
    rooms: tuple[tuple[float, ...], ...]
    price: tuple[int, ...] = ()
    gain: Mapping[tuple[int, int], float] = field(default_factory=dict)
    least: int = 0
    most: int | None = None
    alike: range = range(0)
    barred: frozenset[tuple[int, int]] = frozenset()

    def overfull(self, bin_of: Sequence[int]) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Dimension and items of each overfull bin, compared exactly."""
        for b in sorted(set(bin_of)):
            inside = tuple(k for k, at in enumerate(bin_of) if at == b)
            for d, sizes in enumerate(self.sizes):
                if _sum(sizes, inside) > self.rooms[d][b]:
                    yield d, inside
                    break


def _sum(sizes: Sequence[float], inside: Iterable[int]) -> float:
    return sum(sizes[k] for k in inside)


def _alike(
    sizes: tuple[tuple[float, ...], ...], rooms: tuple[float, ...], least: int, bins: int
) -> _Model:
    """Breaks symmetry: bins are ordered by their first item, so item k is in bins 0..k."""
    return _Model(
        sizes=sizes,
        rooms=tuple((room,) * bins for room in rooms),
        price=(1,) * bins,
        least=least,
        alike=range(bins),
        barred=frozenset((b, k) for b in range(bins) for k in range(min(b, len(sizes[0])))),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The bin of each item, None if none was found; whether proven optimal or infeasible."""

    bin_of: tuple[int, ...] | None
    proven: bool
    bound: float

    @property
    def bound_up(self) -> int:
        """The bound, rounded up to an integer."""
        return math.ceil(self.bound - 1e-6) if math.isfinite(self.bound) else 0

    def bins(self, items: Sequence[TopicPartition]) -> list[list[TopicPartition]]:
        """The items bin by bin, without bins that are not in use."""
        held: dict[int, list[TopicPartition]] = {}
        for item, b in zip(items, self.bin_of or (), strict=True):
            held.setdefault(b, []).append(item)
        return [held[b] for b in sorted(held)]


def _solved(model: _Model, clock: _Clock) -> _Answer:
    """Runs HiGHS, again and again while its answer has an overfull bin."""
    too_much: set[tuple[int, tuple[int, ...]]] = set()
    while True:
        answer = _asked(model, too_much, clock)
        found = set(model.overfull(answer.bin_of or ()))
        if not found:
            return answer
        if found <= too_much:  # within its tolerance the solver may ignore an exclusion
            return _Answer(bin_of=None, proven=False, bound=answer.bound)
        too_much |= found


def _asked(
    model: _Model, too_much: Collection[tuple[int, tuple[int, ...]]], clock: _Clock
) -> _Answer:
    """One run of the solver. Its variables: x of bin 0, of bin 1, …, then y of all bins."""
    import numpy as np
    from scipy.optimize import Bounds, milp

    bins, items = len(model.rooms[0]), len(model.sizes[0])
    if not bins:
        return _Answer(bin_of=None, proven=True, bound=math.inf)
    cost = np.zeros(bins * (items + 1))
    for (b, k), gain in model.gain.items():
        cost[b * items + k] = -gain
    cost[bins * items :] = model.price or 0
    upper = np.ones(len(cost))
    for b, k in model.barred:
        upper[b * items + k] = 0
    for sizes, rooms in zip(model.sizes, model.rooms, strict=True):
        upper[: bins * items][np.less.outer(rooms, sizes).ravel()] = 0
    result = milp(
        cost,
        integrality=np.ones(len(cost), dtype=np.int64),
        bounds=Bounds(np.zeros(len(cost)), upper),
        constraints=_rows(model, too_much).constraint(len(cost)),
        options={"mip_rel_gap": 0.0, "time_limit": clock.left_s()},
    )
    if result.status not in _ANSWERS:
        raise RuntimeError(f"the solver failed: {result.message}")
    bound = -math.inf if result.mip_dual_bound is None else float(result.mip_dual_bound)
    chosen = None
    if result.x is not None:
        x = result.x[: bins * items].reshape(bins, items)
        chosen = tuple(int(b) for b in x.argmax(axis=0))
    return _Answer(bin_of=chosen, proven=result.status != _OUT_OF_TIME, bound=bound)


_OUT_OF_TIME, _INFEASIBLE = 1, 2
_ANSWERS = (0, _OUT_OF_TIME, _INFEASIBLE)


def _rows(model: _Model, too_much: Collection[tuple[int, tuple[int, ...]]]) -> _Rows:
    """The constraints of a model, and exclusions of sets that were found overfull."""
    bins, items = range(len(model.rooms[0])), range(len(model.sizes[0]))
    x = [[b * len(items) + k for k in items] for b in bins]
    y = [len(bins) * len(items) + b for b in bins]
    rows = _Rows()
    for k in items:
        rows.add({x[b][k]: 1.0 for b in bins}, low=1, high=1)
    for d, b in product(range(len(model.rooms)), bins):
        # Sizes relative to the room, so that the solver's tolerance is relative to it.
        parts = {x[b][k]: model.sizes[d][k] / model.rooms[d][b] for k in items}
        rows.add({**parts, y[b]: -1.0}, high=0)
    for b, k in product(bins, items):
        rows.add({x[b][k]: 1.0, y[b]: -1.0}, high=0)
    for b in model.alike[1:]:
        rows.add({y[b]: 1.0, y[b - 1]: -1.0}, high=0)
    rows.add(
        {y[b]: 1.0 for b in bins},
        low=model.least,
        high=len(bins) if model.most is None else model.most,
    )
    for (d, inside), b in product(sorted(too_much), bins):
        if _sum(model.sizes[d], inside) > model.rooms[d][b]:
            rows.add({x[b][k]: 1.0 for k in inside}, high=len(inside) - 1)
    return rows


@dataclass(slots=True)
class _Rows:
    """Linear constraints, row by row."""

    rows: list[dict[int, float]] = field(default_factory=list)
    lows: list[float] = field(default_factory=list)
    highs: list[float] = field(default_factory=list)

    def add(self, row: dict[int, float], *, low: float = -math.inf, high: float) -> None:
        self.rows.append(row)
        self.lows.append(low)
        self.highs.append(high)

    def constraint(self, variables: int) -> LinearConstraint:
        from scipy.optimize import LinearConstraint
        from scipy.sparse import csr_array

        values = [value for row in self.rows for value in row.values()]
        columns = [column for row in self.rows for column in row]
        starts = [0, *accumulate(len(row) for row in self.rows)]
        matrix = csr_array((values, columns, starts), shape=(len(self.rows), variables))
        return LinearConstraint(matrix, self.lows, self.highs)


EXACT: tuple[PackingPlanner, ...] = (
    PackingPlanner(name="exact", rule=exact, reads=frozenset({"time_limit_s", "sla_s", "lags"})),
)
