"""A fluid simulation of a consumer group: partitions fill, consumers read, a controller scales.

Why      Users notice how long records wait and how many replicas run; a single plan shows neither.
Promise  Deterministic. Partitions are first in, first out, to the step. Consumers share their time
         equally among partitions with unread records, without idle time. A partition that changes
         its owner is not read for a while; one that waits for a starting consumer stays with its
         old owner. A controller sees only observable facts: rates since its last decision, lags.
Cost     O(partitions) in a few array operations per time step, twice that while some fall behind.
Paper    Ezzeddine et al., section 4, as a fluid.

>>> group = fluid(RateSchedule.constant([60, 60], duration_s=10), unchanged, world=FluidWorld())
>>> round(group.max_lag), group.replica_minutes * 60, group.delays.maximum_s
(200, 10.0, 2.0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from trimtab.evaluate.latency import Delays
from trimtab.evaluate.rscore import moved_load
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.workload.rate_streams import RateSchedule

_CHUNK = 4096  # steps between two updates of the waiting times
_ROUNDING = 1 + 1e-9  # at exactly full utilisation only a rounding error remains
_DIGITS = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidView:
    """What a controller can observe: rates since the last decision, lags, and the ordered group.

    `decision` counts from 0. `consumers` are those alive or already requested, with or without
    partitions.
    `since_scaling_s` is infinite before the first scaling.
    """

    t_s: float
    decision: int
    rates: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, float]
    assignment: Assignment
    consumers: frozenset[int]
    since_scaling_s: float


class FluidOrder(NamedTuple):
    """An order of a controller: the assignment, and the consumers that should run."""

    assignment: Assignment
    consumers: frozenset[int]

    @classmethod
    def using(cls, assignment: Assignment) -> FluidOrder:
        """An order with exactly the consumers that have partitions."""
        return cls(assignment, frozenset(assignment.consumers))

    @classmethod
    def of(cls, assignment: Assignment, consumers: int) -> FluidOrder:
        """An order with this number of consumers, some of which may have no partitions."""
        busy = frozenset(assignment.consumers)
        free = (index for index in count() if index not in busy)
        return cls(assignment, busy.union(islice(free, consumers - len(busy))))


class FluidController(Protocol):
    """Decides at every interval; None changes nothing."""

    def __call__(self, seen: FluidView, /) -> FluidOrder | None:
        """Returns an order for the observed state, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidWorld:
    """The parameters of the simulated consumers."""

    service_rate: float = 100.0
    service_rates: Mapping[int, float] = field(default_factory=dict)
    step_s: float = 0.1
    decision_interval_s: float = 1.0
    block_s: float = 1.0
    startup_s: float = 0.0

    def __post_init__(self) -> None:
        rates = (self.service_rate, *self.service_rates.values())
        if not all(0 < rate < math.inf for rate in rates):
            raise ValueError(f"service rates must be positive and finite, not {rates}")
        if not 0 < self.step_s <= self.decision_interval_s:
            raise ValueError(
                f"the step must be positive and at most the decision interval, not {self.step_s}"
            )
        if self.block_s < 0 or self.startup_s < 0:
            raise ValueError("block and startup times must not be negative")

    def steps(self, seconds: float) -> int:
        """The number of steps for this time."""
        return round(seconds / self.step_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidChange:
    """An order that changed something."""

    t_s: float
    action: Action
    replicas_before: int
    replicas: int
    moves: int
    moved_load: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FluidOutcome:
    """The outcome of a simulated workload.

    `replicas` and `lag` are those at `times_s`, one per step, until the last queue was empty.
    """

    delays: Delays
    replica_minutes: float
    max_lag: float
    times_s: NDArray[np.float64]
    replicas: NDArray[np.int64]
    lag: NDArray[np.float64]
    changes: tuple[FluidChange, ...]
    decisions: int

    @property
    def moves(self) -> int:
        """The total number of moves."""
        return sum(change.moves for change in self.changes)

    @property
    def replica_schedule(self) -> tuple[tuple[float, int], ...]:
        """When the group was scaled, and to how many consumers."""
        return tuple((c.t_s, c.replicas) for c in self.changes if c.action is not Action.REASSIGN)


def fluid(
    schedule: RateSchedule,
    controller: FluidController,
    *,
    world: FluidWorld,
    start: FluidOrder | None = None,
    names: Sequence[TopicPartition] | None = None,
    backlog: Mapping[TopicPartition, float] | None = None,
    on_step: Callable[[int, int], None] | None = None,
) -> FluidOutcome:
    """Runs a workload to its end, and on until every queue is empty.

    A group begins as `start`, by default with one consumer that reads everything, and with
    `backlog` unread. The controller decides while the workload lasts; its last order stays in
    effect. `on_step` is called with (done, total) steps of the workload.
    """
    partitions = names or [TopicPartition("workload", n) for n in range(len(schedule.partitions))]
    if len(partitions) != len(schedule.partitions) or len(set(partitions)) != len(partitions):
        raise ValueError("every partition of the workload needs a unique name")
    begin = start or FluidOrder.using(Assignment(dict.fromkeys(partitions, 0)))
    waiting = np.array([(backlog or {}).get(p, 0.0) for p in partitions], dtype=np.float64)
    run = _Fluid(schedule, world, partitions, begin, waiting)
    total = world.steps(schedule.duration_s)
    every = world.steps(world.decision_interval_s)
    for step in range(total):
        if step and step % every == 0:
            run.decide(controller, step, every)
        run.go(step)
        if on_step is not None and step % _CHUNK == 0:
            on_step(step, total)
    if on_step is not None:
        on_step(total, total)
    step = total
    while run.left > 0:
        run.go(step)
        step += 1
    return run.outcome(total)


class _Fluid:
    """The state of the simulation: totals received and read, owners, blocked partitions."""

    def __init__(
        self,
        schedule: RateSchedule,
        world: FluidWorld,
        names: Sequence[TopicPartition],
        start: FluidOrder,
        backlog: NDArray[np.float64],
    ) -> None:
        if set(start.assignment) != set(names) or not start.consumers >= set(
            start.assignment.consumers
        ):
            raise ValueError("the group must start with a running consumer for every partition")
        self.schedule, self.world, self.names = schedule, world, names
        self.backlog = backlog
        self.ordered = start
        self.slots = {c: i for i, c in enumerate(sorted(start.consumers))}
        self.ready = dict.fromkeys(start.consumers, 0)
        self.owner = self._slots_of(start.assignment)
        self.target = self.owner.copy()
        self.blocked_until = np.zeros(len(names), dtype=np.int64)
        self.room = self._rooms()
        self.received = backlog.copy()
        self.read = np.zeros(len(names))
        self.left = float(backlog.sum())
        self.seen_received = backlog.copy()
        self.scaled_at = -math.inf
        self.changes: list[FluidChange] = []
        self.decisions = 0
        self.replicas: list[int] = []
        self.lag: list[float] = []
        self.waited = _Waited(backlog)
        self.arriving = np.empty((0, len(names)))
        self.first = 0
        self.last_start = 0
        self.alive: int | None = None  # None: must be recomputed

    def decide(self, controller: FluidController, step: int, every: int) -> None:
        """Calls the controller and applies its order."""
        t_s, elapsed = round(step * self.world.step_s, 9), every * self.world.step_s
        rates = _observed((self.received - self.seen_received) / elapsed)
        self.seen_received = self.received.copy()
        seen = FluidView(
            t_s=t_s,
            decision=self.decisions,
            rates=dict(zip(self.names, rates.tolist(), strict=True)),
            lags=dict(zip(self.names, (self.received - self.read).tolist(), strict=True)),
            assignment=self.ordered.assignment,
            consumers=self.ordered.consumers,
            since_scaling_s=round(t_s - self.scaled_at, 9),
        )
        self.decisions += 1
        order = controller(seen)
        if order is not None and order != self.ordered:
            self._apply_order(order, seen, step)

    def _apply_order(self, order: FluidOrder, seen: FluidView, step: int) -> None:
        old = self.ordered
        if set(order.assignment) != set(self.names):
            raise ValueError("an order must place every partition")
        if not order.consumers >= set(order.assignment.consumers):
            raise ValueError(
                "an order must not assign partitions to a consumer that should not run"
            )
        before, after = len(old.consumers), len(order.consumers)
        action = Action.SCALE_UP if after > before else Action.SCALE_DOWN
        if after == before:
            action = Action.REASSIGN
        else:
            self.scaled_at = seen.t_s
        self.changes.append(
            FluidChange(
                t_s=seen.t_s,
                action=action,
                replicas_before=before,
                replicas=after,
                moves=len(moved(old.assignment, order.assignment)),
                moved_load=moved_load(old.assignment, order.assignment, seen.rates),
            )
        )
        for consumer in sorted(order.consumers - old.consumers):
            self.slots.setdefault(consumer, len(self.slots))
            self.ready[consumer] = self.last_start = step + self.world.steps(self.world.startup_s)
        self.ordered, self.alive = order, None
        self.target = self._slots_of(order.assignment)
        self.room = self._rooms()

    def go(self, step: int) -> None:
        """One step: hand over, receive, read."""
        self._hand_over(step)
        if step - self.first >= len(self.arriving):
            self._look(step)
        self.received = self.arriving[step - self.first]
        readable = np.where(step >= self.blocked_until, self.received - self.read, 0.0)
        asked = np.bincount(self.owner, weights=readable, minlength=len(self.room))
        read = np.where(readable > 0, self.received, self.read)
        short = (asked > self.room * _ROUNDING)[self.owner] & (readable > 0)
        if short.any():
            given = _shared(readable[short], self.owner[short], self.room)
            read[short] = np.minimum(self.read[short] + given, self.received[short])
        self.read = read
        self.left = float((self.received - read).sum())
        self.waited.note(self.received, read)
        self.lag.append(self.left)
        self.replicas.append(self._alive(step))

    def _hand_over(self, step: int) -> None:
        if (self.owner == self.target).all():
            return
        for i in np.flatnonzero(self.owner != self.target).tolist():
            consumer = self.ordered.assignment[self.names[i]]
            if self.ready[consumer] <= step:
                self.owner[i], self.alive = self.target[i], None
                self.blocked_until[i] = step + self.world.steps(self.world.block_s)

    def _alive(self, step: int) -> int:
        """The number of running consumers, including those that still hand over partitions.

        A consumer that should stop does so once its partitions have moved.
        """
        if self.alive is None or step <= self.last_start:
            started = {self.slots[c] for c in self.ordered.consumers if self.ready[c] <= step}
            self.alive = len(started.union(self.owner.tolist()))
        return self.alive

    def _look(self, step: int) -> None:
        """Computes what will have arrived by the end of each of the next steps."""
        self.waited.settle()
        ends = np.arange(step + 1.0, step + 1.0 + _CHUNK) * self.world.step_s
        self.first = step
        self.arriving = received(self.schedule, ends) + self.backlog

    def _slots_of(self, assignment: Assignment) -> NDArray[np.int64]:
        return np.array([self.slots[assignment[name]] for name in self.names], dtype=np.int64)

    def _rooms(self) -> NDArray[np.float64]:
        rate = self.world.service_rate
        rates = (self.world.service_rates.get(consumer, rate) for consumer in self.slots)
        return np.fromiter(rates, dtype=np.float64) * self.world.step_s

    def outcome(self, steps: int) -> FluidOutcome:
        """The outcome of the simulation."""
        self.waited.settle()
        return FluidOutcome(
            delays=Delays(self.world.step_s, self.waited.amounts),
            replica_minutes=sum(self.replicas[:steps]) * self.world.step_s / 60,
            max_lag=max(self.lag, default=0.0),
            times_s=np.arange(1.0, len(self.lag) + 1.0) * self.world.step_s,
            replicas=np.array(self.replicas, dtype=np.int64),
            lag=np.array(self.lag),
            changes=tuple(self.changes),
            decisions=self.decisions,
        )


class _Waited:
    """Amounts by the steps they waited, from running totals of arrivals and reads.

    Per partition the k-th unit to come is the k-th to be read. Between two neighbouring totals,
    whether of arrivals or of reads, all units came in one step and were read in one step.
    """

    def __init__(self, backlog: NDArray[np.float64]) -> None:
        self.amounts: NDArray[np.float64] = np.zeros(1)
        self.settled = np.zeros_like(backlog)  # read totals that are already counted
        self.came: list[NDArray[np.float64]] = []
        self.went: list[NDArray[np.float64]] = []
        # Per partition the totals received in the last steps that are not completely read.
        self.open = [np.empty(0) for _ in backlog]

    def note(self, received: NDArray[np.float64], read: NDArray[np.float64]) -> None:
        """Stores the totals after one step."""
        self.came.append(received)
        self.went.append(read)

    def settle(self) -> None:
        """Counts everything read since the last call."""
        if not self.came:
            return
        came, went = np.array(self.came), np.array(self.went)
        prompt = (came == went).all(axis=0) & np.array([not len(o) for o in self.open])
        self.amounts[0] += (went[-1] - self.settled)[prompt].sum()
        for p in np.flatnonzero(~prompt).tolist():
            arrivals = np.concatenate((self.open[p], came[:, p]))
            self._count(arrivals, went[:, p], self.settled[p], ahead=len(self.open[p]))
            self.open[p] = arrivals[np.searchsorted(arrivals, went[-1, p], side="right") :]
        self.settled = went[-1]
        self.came, self.went = [], []

    def _count(
        self,
        arrivals: NDArray[np.float64],
        reads: NDArray[np.float64],
        done: float,
        *,
        ahead: int,
    ) -> None:
        """Adds one partition's amounts; its arrivals begin `ahead` steps before its reads do."""
        cuts = np.sort(np.concatenate((arrivals, reads)))
        cuts = cuts[(cuts > done) & (cuts <= reads[-1])]
        amounts = np.diff(cuts, prepend=done)
        waited = np.searchsorted(reads, cuts) + ahead - np.searchsorted(arrivals, cuts)
        longest = max(int(waited.max(initial=0)) + 1, len(self.amounts))
        counted = np.zeros(longest)
        counted[: len(self.amounts)] = self.amounts
        self.amounts = counted + np.bincount(np.maximum(waited, 0), amounts, longest)


def received(schedule: RateSchedule, times_s: NDArray[np.float64]) -> NDArray[np.float64]:
    """What each partition has received by each time: a row per time, a column per partition."""
    out = np.empty((len(times_s), len(schedule.partitions)))
    times = np.minimum(times_s, schedule.duration_s)
    for p, segments in enumerate(schedule.partitions):
        starts, first, last = (np.array(column) for column in zip(*segments, strict=True))
        lengths = np.diff(np.append(starts, schedule.duration_s))
        before = np.concatenate(([0.0], np.cumsum((first + last) / 2 * lengths)))
        at = np.searchsorted(starts, times, side="right") - 1
        spent = times - starts[at]
        slope = (last - first)[at] / lengths[at]
        out[:, p] = before[at] + first[at] * spent + slope * spent**2 / 2
    return np.maximum.accumulate(out, axis=0)  # rounding must not decrease the totals


def _observed(rates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rates truncated to nine digits, so that rounding alone cannot overload a consumer.

    >>> _observed(np.array([20.000000000001, 19.999999999999, 200 / 3, 0.0])).tolist()
    [20.0, 20.0, 66.6666666, 0.0]
    """
    nudged = rates * (1 + 1e-11)
    powers = _DIGITS - 1 - np.floor(np.log10(np.maximum(nudged, 1e-290)))
    up, down = 10.0 ** np.maximum(powers, 0), 10.0 ** np.maximum(-powers, 0)  # one of them is 1
    seen: NDArray[np.float64] = np.floor(nudged * up / down) / up * down
    return seen


def _shared(
    wanted: NDArray[np.float64], owner: NDArray[np.int64], room: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Max-min fair shares of each owner's room: equal parts, at most what is wanted.

    With the smallest demands filled first, the equal share of the others rises while demands are
    met and falls afterwards: its maximum is the upper limit of a share. All owners must have less
    room than is wanted of them.

    >>> _shared(np.array([1.0, 9.0, 9.0, 4.0]), np.array([0, 0, 0, 1]), np.array([7.0, 2.0]))
    array([1., 3., 3., 2.])
    """
    order = np.lexsort((wanted, owner))
    sizes, owners = wanted[order], owner[order]
    firsts = np.flatnonzero(np.diff(owners, prepend=-1))
    counts = np.diff(firsts, append=len(owners))
    before = np.cumsum(sizes) - sizes
    met = before - np.repeat(before[firsts], counts)
    others = np.repeat(firsts + counts, counts) - np.arange(len(owners))
    parts = np.maximum.reduceat((room[owners] - met) / others, firsts)
    given = np.empty_like(wanted)
    given[order] = np.minimum(sizes, np.repeat(parts, counts))
    return given


def unchanged(seen: FluidView, /) -> None:
    """Never changes the group: fixed provisioning."""
