"""Dispatchers that observe queues: the event loop, and what each policy observes.

Promise  Departures are processed before arrivals of the same time. Policies see the past only.
Cost     O(log records in queues) per arrival and departure, plus the observation: O(1) for d
         queues and for tokens, else O(leaders of the topic).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from random import Random
from typing import Protocol

import numpy as np

from trimtab.simulate.brokers import Ints, QueueWorld, Records
from trimtab.simulate.policy import DispatchSettings


class QueueObserver(Protocol):
    """Chooses by what it observes; brokers are positions, foreign records have dispatcher −1."""

    def choose(self, k: int, leaders: Sequence[int], dispatcher: int) -> int:
        """The broker for record k of this dispatcher."""
        ...

    def joined(self, broker: int, dispatcher: int) -> None:
        """A record of this dispatcher has entered the broker's queue."""
        ...

    def left(self, broker: int, dispatcher: int) -> None:
        """A record of this dispatcher was served."""
        ...

    def refreshed(self) -> None:
        """The queue lengths are refreshed now, if they are refreshed at intervals."""
        ...


ObserverFactory = Callable[[QueueWorld, Records, DispatchSettings], QueueObserver]


def observed_choices(
    make: ObserverFactory, world: QueueWorld, records: Records, settings: DispatchSettings
) -> Ints:
    """Processes arrivals and departures in order of time."""
    observer = make(world, records, settings)
    choose, joined, left = observer.choose, observer.joined, observer.left
    after, led = [pace.after for pace in world.paces], world.led
    free = [0.0] * len(after)
    first = math.inf if settings.refresh is None else 0.0
    departures: list[tuple[float, int, int]] = [(first, -1, 0)]  # −1: a refresh of the lengths
    chosen: list[int] = records.foreign.tolist()
    for k, (at, work, row, dispatcher) in enumerate(
        zip(
            records.at.tolist(),
            records.work.tolist(),
            world.rows(records).tolist(),
            records.dispatcher.tolist(),
            strict=True,
        )
    ):
        while departures[0][0] <= at:
            when, whence, sender = heappop(departures)
            if whence >= 0:
                left(whence, sender)
            elif settings.refresh is not None:
                observer.refreshed()
                # Without events the lengths do not change.
                quiet = min(at, departures[0][0] if departures else math.inf) - when
                steps = max(1, math.ceil(quiet / settings.refresh))
                heappush(departures, (when + steps * settings.refresh, -1, 0))
        broker = chosen[k]
        if broker < 0:
            broker = chosen[k] = choose(k, led[row], dispatcher)
        begin = free[broker]
        end = free[broker] = after[broker](begin if begin > at else at, work)
        heappush(departures, (end, broker, dispatcher))
        joined(broker, dispatcher)
    return np.array(chosen, np.int64)


def _draws(records: Records, settings: DispatchSettings) -> list[float]:
    """A random number from 0 to 1 for each record, to break ties."""
    drawn: list[float] = np.random.default_rng([settings.seed, 12]).random(len(records)).tolist()
    return drawn


class Lengths:
    """Observes the queue length of each broker, including the record in service."""

    def __init__(self, world: QueueWorld, records: Records, settings: DispatchSettings) -> None:
        self.lengths = [0] * len(world.brokers)
        self.draws = _draws(records, settings)

    def choose(self, k: int, leaders: Sequence[int], dispatcher: int) -> int:
        """The broker with the shortest queue."""
        return self.shortest(self.seen(dispatcher), leaders, k)

    def seen(self, _dispatcher: int) -> list[int]:
        """The lengths that this dispatcher knows."""
        return self.lengths

    def shortest(self, seen: list[int], among: Sequence[int], k: int) -> int:
        """The shortest queue; a random one of several."""
        if len(among) == len(seen):
            least = min(seen)
            if seen.count(least) == 1:
                return seen.index(least)
        else:
            least = min([seen[b] for b in among])
        ties = [b for b in among if seen[b] == least]
        return ties[int(self.draws[k] * len(ties))]

    def joined(self, broker: int, _dispatcher: int) -> None:
        """Adds one to the length."""
        self.lengths[broker] += 1

    def left(self, broker: int, _dispatcher: int) -> None:
        """Subtracts one from the length."""
        self.lengths[broker] -= 1

    def refreshed(self) -> None:
        """Does nothing: the lengths are always current."""


class OwnLengths(Lengths):
    """Observes only its own records in each queue, not those of others."""

    def __init__(self, world: QueueWorld, records: Records, settings: DispatchSettings) -> None:
        super().__init__(world, records, settings)
        self.own = [[0] * len(world.brokers) for _ in range(records.dispatchers)]

    def seen(self, dispatcher: int) -> list[int]:
        """The counts of its own records."""
        return self.own[dispatcher]

    def joined(self, broker: int, dispatcher: int) -> None:
        """Adds one to its own count; foreign records are not counted."""
        if dispatcher >= 0:
            self.own[dispatcher][broker] += 1

    def left(self, broker: int, dispatcher: int) -> None:
        """Subtracts one from its own count."""
        if dispatcher >= 0:
            self.own[dispatcher][broker] -= 1


class OldLengths(Lengths):
    """Knows the lengths of the last refresh, plus its own records since then."""

    def __init__(self, world: QueueWorld, records: Records, settings: DispatchSettings) -> None:
        super().__init__(world, records, settings)
        self.known = [list(self.lengths) for _ in range(records.dispatchers)]

    def seen(self, dispatcher: int) -> list[int]:
        """The lengths of the last refresh, plus its own records since then."""
        return self.known[dispatcher]

    def joined(self, broker: int, dispatcher: int) -> None:
        """Adds one, known only to the dispatcher that sent it."""
        self.lengths[broker] += 1
        if dispatcher >= 0:
            self.known[dispatcher][broker] += 1

    def refreshed(self) -> None:
        """All dispatchers get the current lengths."""
        self.known = [list(self.lengths) for _ in self.known]


class SomeLengths:
    """Observes d different random queues, with the lengths that `lengths` knows."""

    def __init__(self, lengths: Lengths, settings: DispatchSettings) -> None:
        self.lengths, self.d = lengths, settings.d
        self.random = Random(settings.seed * 1_000_003 + 13)
        self.joined, self.left, self.refreshed = lengths.joined, lengths.left, lengths.refreshed

    def choose(self, k: int, leaders: Sequence[int], dispatcher: int) -> int:
        """The shortest of d queues; the first of several."""
        seen, n = self.lengths.seen(dispatcher), len(leaders)
        if self.d >= n:
            return self.lengths.shortest(seen, leaders, k)
        if self.d != 2:
            return min(self.random.sample(leaders, self.d), key=seen.__getitem__)
        one, other = divmod(int(self.lengths.draws[k] * n * (n - 1)), n - 1)
        first, second = leaders[one], leaders[other + (other >= one)]
        return first if seen[first] <= seen[second] else second


class Tokens:
    """Each idle broker gives a token to one random dispatcher among those that can use it.

    A broker that receives a record by a random choice takes its token back.
    """

    def __init__(self, world: QueueWorld, records: Records, settings: DispatchSettings) -> None:
        self.lengths = [0] * len(world.brokers)
        self.random = Random(settings.seed * 1_000_003 + 14)
        self.tokens: list[dict[int, None]] = [{} for _ in range(records.dispatchers)]
        self.holder: dict[int, int] = {}
        self.users = _users(world, records)
        for broker in range(len(world.brokers)):
            self._give(broker)

    def _give(self, broker: int) -> None:
        if users := self.users[broker]:
            one = users[int(self.random.random() * len(users))]
            self.tokens[one][broker] = None
            self.holder[broker] = one

    def choose(self, _k: int, leaders: Sequence[int], dispatcher: int) -> int:
        """The broker that is idle longest among the known idle ones, else a random one."""
        for broker in self.tokens[dispatcher]:
            if broker in leaders:
                return broker
        return leaders[int(self.random.random() * len(leaders))]

    def joined(self, broker: int, _dispatcher: int) -> None:
        """The broker is no longer idle."""
        self.lengths[broker] += 1
        if (holder := self.holder.pop(broker, None)) is not None:
            del self.tokens[holder][broker]

    def left(self, broker: int, _dispatcher: int) -> None:
        """The broker may be idle now."""
        self.lengths[broker] -= 1
        if not self.lengths[broker]:
            self._give(broker)

    def refreshed(self) -> None:
        """Does nothing: brokers send tokens themselves."""


def _users(world: QueueWorld, records: Records) -> list[list[int]]:
    """For each broker, the dispatchers that send to topics it leads."""
    topics = len(world.topics)
    own = records.foreign < 0
    senders = set(zip(records.topic[own].tolist(), records.dispatcher[own].tolist(), strict=True))
    users: list[set[int]] = [set() for _ in world.brokers]
    for row, places in enumerate(world.led):
        using = {dispatcher for topic, dispatcher in senders if topic == row % topics}
        for place in places:
            users[place] |= using
    return [sorted(of_broker) for of_broker in users]


def least_work(world: QueueWorld, records: Records, settings: DispatchSettings) -> Ints:
    """The broker that will be free first at present speeds; among idle ones one of the fastest."""
    paces, led, steady = world.paces, world.led, not world.changes
    speeds = [world.speeds[broker] for broker in world.brokers]
    equal = len(set(speeds)) == 1
    free, draws = [0.0] * len(paces), _draws(records, settings)
    chosen: list[int] = records.foreign.tolist()
    for k, (at, work, row) in enumerate(
        zip(
            records.at.tolist(),
            records.work.tolist(),
            world.rows(records).tolist(),
            strict=True,
        )
    ):
        broker = chosen[k]
        if broker < 0:
            leaders = led[row]
            when = (
                [free[b] for b in leaders]
                if steady
                else [at + paces[b].left(at, free[b]) for b in leaders]
            )
            soonest = max(at, min(when))
            first = [b for b, then in zip(leaders, when, strict=True) if then <= soonest]
            if not equal:
                fastest = max([speeds[b] for b in first])
                first = [b for b in first if speeds[b] == fastest]
            broker = chosen[k] = first[int(draws[k] * len(first))]
        free[broker] = paces[broker].after(max(free[broker], at), work)
    return np.array(chosen, np.int64)


def lengths(world: QueueWorld, records: Records, settings: DispatchSettings) -> Lengths:
    """All queues, current or as of the last refresh."""
    kind = Lengths if settings.refresh is None else OldLengths
    return kind(world, records, settings)


def some_lengths(world: QueueWorld, records: Records, settings: DispatchSettings) -> SomeLengths:
    """Some of the queues."""
    return SomeLengths(lengths(world, records, settings), settings)
