"""Brokers simulated as queues, with leaders, speeds, foreign load and speed changes.

Why      A partitioner sees its own records only. In a simulation every queue is known, so it shows
         the value of more knowledge.
Promise  Every record is served once, in order of arrival at its broker. Equal arguments give equal
         records and waits. Policies are compared on the same arrivals and work. The unit of time is
         the mean service time of a broker of speed 1; a wait ends where service begins.
Cost     O(records), in arrays: about 0.1 s for a million, plus the choice of brokers.
Paper    Burato, chapter 5: producers are dispatchers, brokers are queues. Ours: unequal speeds,
         foreign load, speeds that change, leaders that move.

>>> world = QueueWorld.even(2)
>>> some = Records.of(at=[0.0, 0.1, 0.2], work=[1.0, 1.0, 1.0])
>>> served(world, some, [0, 1, 0]).wait.tolist()
[0.0, 0.0, 0.8]
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Self

import numpy as np
import numpy.typing as npt

from trimtab.plan.records.leaders import LeaderSnapshot

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

TOPIC = "t"
_NOISE = 1e-9


class Service(StrEnum):
    """The distribution of the work of records; its mean is 1."""

    EXPONENTIAL = "exponential"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedChange:
    """The broker has another speed from `at` on; 0 means that it hangs."""

    broker: int
    at: float
    speed: float

    def __post_init__(self) -> None:
        if not (self.at > 0 and self.speed >= 0):
            raise ValueError(
                f"a speed change needs a time above 0 and a speed of at least 0, not {self}"
            )


@dataclass(frozen=True, slots=True)
class SteadyBroker:
    """A broker of constant speed."""

    speed: float

    def done(self, at: Floats) -> Floats:
        """The work that it has done until then if it was always busy."""
        return at * self.speed

    def begun(self, work: Floats) -> Floats:
        """When it goes beyond that much work."""
        return work / self.speed

    def ended(self, work: Floats) -> Floats:
        """When it has done that much work."""
        return work / self.speed

    def after(self, at: float, work: float) -> float:
        """When work is done that is begun then."""
        return at + work / self.speed

    def left(self, at: float, free: float) -> float:
        """How long what is done at `free` seems to take from now on, the future being unknown."""
        return max(0.0, free - at)


class VaryingBroker:
    """A broker whose speed changes, and is above 0 at the end."""

    def __init__(self, speed: float, changes: Sequence[SpeedChange]) -> None:
        ordered = sorted(changes, key=lambda change: change.at)
        self._times = [0.0, *(change.at for change in ordered), math.inf]
        self._speeds = [speed, *(change.speed for change in ordered)]
        if self._speeds[-1] <= 0:
            raise ValueError(
                f"broker {changes[0].broker} ends at speed 0: its queue would never be served"
            )
        self._at, self._speed = np.array(self._times[:-1]), np.array(self._speeds)
        self._done = np.concatenate(([0.0], np.cumsum(np.diff(self._at) * self._speed[:-1])))

    def done(self, at: Floats) -> Floats:
        """The work that it has done until then if it was always busy."""
        i = np.searchsorted(self._at, at, side="right") - 1
        found: Floats = self._done[i] + (at - self._at[i]) * self._speed[i]
        return found

    def begun(self, work: Floats) -> Floats:
        """When it goes beyond that much work."""
        return self._when(work, np.searchsorted(self._done, work, side="right") - 1)

    def ended(self, work: Floats) -> Floats:
        """When it has done that much work."""
        i = np.searchsorted(self._done, work, side="left") - 1
        return self._when(work, np.maximum(i, 0))

    def _when(self, work: Floats, i: Ints) -> Floats:
        found: Floats = self._at[i] + (work - self._done[i]) / self._speed[i]
        return found

    def after(self, at: float, work: float) -> float:
        """When work is done that is begun then."""
        i = bisect_right(self._times, at) - 1
        while (room := (self._times[i + 1] - at) * self._speeds[i]) < work:
            at, work, i = self._times[i + 1], work - room, i + 1
        return at + work / self._speeds[i] if work else at

    def left(self, at: float, free: float) -> float:
        """How long what is done at `free` seems to take from now on, the future being unknown."""
        speed = self._speeds[bisect_right(self._times, at) - 1]
        if not speed or free <= at:
            return 0.0 if speed else math.inf
        now, then = self.done(np.array([at, free])).tolist()
        return float(then - now) / speed


Pace = SteadyBroker | VaryingBroker


@dataclass(frozen=True, kw_only=True)
class QueueWorld:
    """Brokers, their leaders, and scheduled changes.

    Attributes:
        leaders: Snapshots of leaders with their start times, the first at 0. Each topic has a
            leader.
        speeds: The speed of every broker: work per time.
        rates: The relative rate of each topic; 1 if not given.
        foreign: Load of a broker that no dispatcher sends, as a share of its speed.
        changes: Speed changes of brokers.
        service: The distribution of the work of records.
    """

    leaders: tuple[tuple[float, LeaderSnapshot], ...]
    speeds: Mapping[int, float]
    rates: Mapping[str, float] = field(default_factory=dict)
    foreign: Mapping[int, float] = field(default_factory=dict)
    changes: tuple[SpeedChange, ...] = ()
    service: Service = Service.EXPONENTIAL

    def __post_init__(self) -> None:
        starts = [at for at, _ in self.leaders]
        if not starts or starts[0] != 0 or sorted(set(starts)) != starts:
            raise ValueError("leaders must be given from time 0 on, in order of time")
        if not self.speeds or min(self.speeds.values()) <= 0:
            raise ValueError("there must be a broker, and each must have a speed above 0")
        for _, snapshot in self.leaders:
            self._check_leaders(snapshot)
        named = {*self.foreign, *(change.broker for change in self.changes)}
        if unknown := sorted(named - self.speeds.keys()):
            raise ValueError(f"broker {unknown[0]} does not exist")
        if not all(0 <= part < 1 for part in self.foreign.values()):
            raise ValueError(
                "foreign load must be a share of a broker's speed, at least 0 and below 1"
            )
        rates = [self.rate_of(topic) for topic in self.topics]
        if min(rates, default=0) < 0 or not sum(rates) > 0:
            raise ValueError("rates of topics must be at least 0, and one of them above 0")

    def _check_leaders(self, snapshot: LeaderSnapshot) -> None:
        for topic in self.topics:
            brokers = snapshot.topic(topic).brokers
            if not brokers:
                raise ValueError(f"topic {topic} has no leader")
            if unknown := sorted(set(brokers) - self.speeds.keys()):
                raise ValueError(f"broker {unknown[0]}, which leads {topic}, does not exist")

    @classmethod
    def even(cls, brokers: int) -> Self:
        """Brokers 1, 2, … of speed 1 and a topic that has one partition on each."""
        leaders = LeaderSnapshot({TOPIC: {n: n + 1 for n in range(brokers)}})
        return cls(leaders=((0.0, leaders),), speeds=dict.fromkeys(range(1, brokers + 1), 1.0))

    @cached_property
    def brokers(self) -> tuple[int, ...]:
        """Broker ids, ascending; choices are positions in this tuple."""
        return tuple(sorted(self.speeds))

    @cached_property
    def topics(self) -> tuple[str, ...]:
        """Topic names, ascending."""
        return self.leaders[0][1].topics

    @cached_property
    def paces(self) -> tuple[Pace, ...]:
        """The speed of each broker, by position."""
        return tuple(self._pace(broker) for broker in self.brokers)

    def _pace(self, broker: int) -> Pace:
        changes = [change for change in self.changes if change.broker == broker]
        speed = self.speeds[broker]
        return VaryingBroker(speed, changes) if changes else SteadyBroker(speed)

    @cached_property
    def led(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the leaders of each topic, for each span between leader changes."""
        place = {broker: at for at, broker in enumerate(self.brokers)}
        return tuple(
            tuple(place[broker] for broker in snapshot.topic(topic).brokers)
            for _, snapshot in self.leaders
            for topic in self.topics
        )

    def spans(self, at: Floats) -> Ints:
        """The index of the span between leader changes for each time."""
        return np.searchsorted([start for start, _ in self.leaders], at, side="right") - 1

    def rows(self, records: Records) -> Ints:
        """The row of `led` for each record."""
        return self.spans(records.at) * len(self.topics) + records.topic

    def rate_of(self, topic: str) -> float:
        """The relative rate of a topic."""
        return self.rates.get(topic, 1.0)

    def own_rate(self, utilisation: float) -> float:
        """The rate of dispatchers that gives this utilisation of all brokers together."""
        capacity = sum(self.speeds.values())
        own = utilisation * capacity - sum(self.foreign_rates.values())
        if own <= 0:
            raise ValueError(
                f"foreign load alone uses {utilisation - own / capacity:.3g} of all brokers"
            )
        return own

    @cached_property
    def foreign_rates(self) -> Mapping[int, float]:
        """Foreign records per time, by broker."""
        return {b: part * self.speeds[b] for b, part in self.foreign.items() if part}


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """Arriving records, in order of time.

    Attributes:
        at: Arrival times.
        work: Service times on a broker of speed 1.
        topic: Positions of the topics.
        dispatcher: Numbers of the dispatchers, from 0; −1 for foreign records.
        foreign: Positions of the brokers of foreign records; −1 for the others.
    """

    at: Floats
    work: Floats
    topic: Ints
    dispatcher: Ints
    foreign: Ints

    def __post_init__(self) -> None:
        if bool(np.any(np.diff(self.at) < 0)):
            raise ValueError("records must be in the order of time")

    def __len__(self) -> int:
        return len(self.at)

    @property
    def dispatchers(self) -> int:
        """The number of dispatchers."""
        return int(self.dispatcher.max(initial=0)) + 1

    @classmethod
    def of(
        cls,
        *,
        at: npt.ArrayLike,
        work: npt.ArrayLike,
        topic: npt.ArrayLike = 0,
        dispatcher: npt.ArrayLike = 0,
    ) -> Self:
        """Records with given times and work, without foreign records."""
        times = np.asarray(at, np.float64)
        count = len(times)
        return cls(
            at=times,
            work=np.asarray(work, np.float64),
            topic=np.broadcast_to(np.asarray(topic, np.int64), count),
            dispatcher=np.broadcast_to(np.asarray(dispatcher, np.int64), count),
            foreign=np.full(count, -1, np.int64),
        )


def sending_rates(world: QueueWorld, dispatchers: int) -> tuple[float, ...]:
    """The relative rate of each dispatcher; see `arrivals`."""
    rates = [0.0] * dispatchers
    for number, topic in enumerate(world.topics):
        senders = range(number, dispatchers, len(world.topics)) or (number % dispatchers,)
        for sender in senders:
            rates[sender] += world.rate_of(topic) / len(senders)
    return tuple(rates)


def arrivals(
    world: QueueWorld, *, utilisation: float, count: int, dispatchers: int = 1, seed: int = 0
) -> Records:
    """Records at random times (Poisson), including foreign ones, for this utilisation.

    Topics are assigned to dispatchers: with fewer dispatchers than topics each sends several, with
    more each topic has several that send equal shares. Gaps and work depend on the seed only, so
    all policies and numbers of dispatchers get the same.
    """
    own, foreign = world.own_rate(utilisation), world.foreign_rates
    gaps, work, kinds, senders = (np.random.default_rng([seed, purpose]) for purpose in range(4))
    rates = np.array([world.rate_of(topic) for topic in world.topics])
    shares = np.concatenate((own * rates / rates.sum(), list(foreign.values())))
    edges = np.cumsum(shares) / shares.sum()
    kind = np.minimum(np.searchsorted(edges, kinds.random(count), side="right"), len(shares) - 1)
    place = {broker: at for at, broker in enumerate(world.brokers)}
    topics = len(rates)
    there = np.array([*(-1 for _ in range(topics)), *(place[broker] for broker in foreign)])
    sent = kind < topics
    first = np.where(sent, kind % dispatchers, -1)  # the first dispatcher of this topic
    each = np.array([max(1, len(range(t, dispatchers, topics))) for t in range(topics)])
    turn = (senders.random(count) * each[np.where(sent, kind, 0)]).astype(np.int64)
    return Records(
        at=np.cumsum(gaps.standard_exponential(count)) / shares.sum(),
        work=np.ones(count)
        if world.service is Service.CONSTANT
        else work.standard_exponential(count),
        topic=np.where(sent, kind, 0),
        dispatcher=np.where(sent, first + turn * topics, -1),
        foreign=there[kind],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceTimes:
    """When each record was served and how long it waited, in the order of the records."""

    broker: Ints
    start: Floats
    finish: Floats
    wait: Floats


def served(world: QueueWorld, records: Records, choices: npt.ArrayLike) -> ServiceTimes:
    """Simulates the brokers: each serves its records one after another."""
    chosen = np.asarray(choices, np.int64)
    start, finish = np.full(len(records), np.nan), np.full(len(records), np.nan)
    for place, pace in enumerate(world.paces):
        mine = np.flatnonzero(chosen == place)
        if not len(mine):
            continue
        at, work = records.at[mine], records.work[mine]
        # In work instead of time: begin = max(end of the previous one, work done at arrival).
        before = np.concatenate(([0.0], np.cumsum(work)[:-1]))
        begin = np.maximum.accumulate(pace.done(at) - before) + before
        start[mine] = np.maximum(pace.begun(begin), at)
        finish[mine] = pace.ended(begin + work)
    wait = start - records.at
    wait[wait < _NOISE * np.maximum(1.0, records.at)] = 0.0
    return ServiceTimes(broker=chosen, start=start, finish=finish, wait=wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueOutcome:
    """The figures of a run; waits exclude foreign records and the warm-up.

    Attributes:
        mean_wait: Mean wait until service begins.
        p50: The median wait.
        p95: The 95th percentile of the wait.
        p99: The 99th percentile of the wait.
        mean_stay: Mean of wait plus service.
        offered: For each broker, the work it received over its capacity.
        shares: For each broker, its share of the dispatchers' records.
        offered_error: The standard error of `offered` for random arrivals.
    """

    mean_wait: float
    p50: float
    p95: float
    p99: float
    mean_stay: float
    offered: Mapping[int, float]
    shares: Mapping[int, float]
    offered_error: Mapping[int, float] = field(default_factory=dict)


def outcome(
    world: QueueWorld, records: Records, done: ServiceTimes, *, warm_up: float = 0.2
) -> QueueOutcome:
    """The figures of a run without its warm-up, the first share of its records."""
    first = int(len(records) * warm_up)
    counted = np.arange(len(records)) >= first
    own = counted & (records.foreign < 0)
    if not own.any():
        raise ValueError("no record of a dispatcher is left after the warm-up")
    waits = done.wait[own]
    p50, p95, p99 = np.quantile(waits, (0.5, 0.95, 0.99)).tolist()
    began, ended = records.at[first - 1] if first else 0.0, records.at[-1]
    work = np.bincount(done.broker[counted], records.work[counted], len(world.brokers))
    # The variance of a Poisson sum is the sum of the squares.
    squares = np.bincount(done.broker[counted], records.work[counted] ** 2, len(world.brokers))
    sent = np.bincount(done.broker[own], minlength=len(world.brokers))
    can = [float(np.diff(pace.done(np.array([began, ended])))[0]) for pace in world.paces]
    return QueueOutcome(
        mean_wait=float(waits.mean()),
        p50=p50,
        p95=p95,
        p99=p99,
        mean_stay=float((done.finish[own] - records.at[own]).mean()),
        offered={
            broker: float(w) / c if c > 0 else float(w > 0) * np.inf
            for broker, w, c in zip(world.brokers, work, can, strict=True)
        },
        shares={
            broker: float(k) / int(own.sum()) for broker, k in zip(world.brokers, sent, strict=True)
        },
        offered_error={
            broker: math.sqrt(s) / c if c > 0 else 0.0
            for broker, s, c in zip(world.brokers, squares, can, strict=True)
        },
    )
