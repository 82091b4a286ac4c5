"""Dispatching policies that choose a broker for each record, from no to full knowledge.

Promise  A policy returns for each record the position of a broker that leads its topic; foreign
         records keep their broker. Equal arguments give equal choices; ties are broken at random.
         No policy knows the future: neither service times nor speed changes.
Cost     Without observation of queues 0.2 s for a million records; else a heap of departures, about
         2–4 µs per record for 10 brokers, growing with the observed brokers.
Paper    Burato, chapter 5. `jiq` is that of Lu et al. 2011, where a dispatcher without an idle
         broker chooses at random; Burato's dispatchers hold their records until a broker is idle,
         which is one queue for all: `least-work`. `jsq-own` and refresh intervals are ours.

>>> from trimtab.simulate.brokers import QueueWorld, arrivals, served
>>> world = QueueWorld.even(4)
>>> some = arrivals(world, utilisation=0.9, count=20_000)
>>> waits = [served(world, some, choices(name, world, some)).wait.mean() for name in POLICIES]
>>> sorted(zip(waits, POLICIES))[0][1], sorted(zip(waits, POLICIES))[-1][1]
('least-work', 'random')
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from types import MappingProxyType

import numpy as np

from trimtab.errors import UnknownPlanner
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import OURS, PEERS, partitioner_of
from trimtab.simulate.brokers import Ints, QueueWorld, Records
from trimtab.simulate.policy import DEFAULTS, DispatchPolicy, DispatchSettings
from trimtab.simulate.queue_observers import (
    OwnLengths,
    Tokens,
    least_work,
    lengths,
    observed_choices,
    some_lengths,
)

_RECORD_BYTES = 1000  # constant: the size of a record does not show its service time


def choices(
    name: str, world: QueueWorld, records: Records, settings: DispatchSettings = DEFAULTS
) -> Ints:
    """The broker of each record under the policy of that name, by position."""
    return policy_of(name).choose(world, records, settings)


def policy_of(name: str) -> DispatchPolicy:
    """The policy or partitioner of that name."""
    found = POLICIES.get(name) or PARTITIONERS.get(name)
    if found is None:
        known = (*POLICIES, *PARTITIONERS)
        close = get_close_matches(name.lower(), known, n=1)
        hint = f'Did you mean "{close[0]}"?' if close else None
        if name in PEERS:
            hint = "It chooses per batch; the simulation has single records only."
        raise UnknownPlanner(
            f'There is no policy "{name}"; known are {", ".join(known)}.', hint=hint
        )
    return found


# ---------------------------------------------------------------- without observation


def _random(world: QueueWorld, records: Records, settings: DispatchSettings) -> Ints:
    table, sizes, rows = _leaders(world, records)
    draws = np.random.default_rng([settings.seed, 10]).random(len(records))
    return _sent(records, table[rows, (draws * sizes[rows]).astype(np.int64)])


def _round_robin(world: QueueWorld, records: Records, settings: DispatchSettings) -> Ints:
    """Each dispatcher rotates over the leaders of each topic, from a random start."""
    table, sizes, rows = _leaders(world, records)
    topics = len(world.topics)
    turns = np.where(records.foreign < 0, records.dispatcher * topics + records.topic, -1)
    order = np.argsort(turns, kind="stable")
    first = np.searchsorted(turns[order], turns[order], side="left")
    count = np.empty(len(records), np.int64)
    count[order] = np.arange(len(records)) - first
    rng = np.random.default_rng([settings.seed, 11])
    starts = rng.integers(0, 2**31, records.dispatchers * topics)
    return _sent(records, table[rows, (starts[turns] + count) % sizes[rows]])


def _leaders(world: QueueWorld, records: Records) -> tuple[Ints, Ints, Ints]:
    """Leaders by span and topic as a table, the length of each row, and each record's row."""
    led = world.led
    table = np.zeros((len(led), len(world.brokers)), np.int64)
    for row, places in enumerate(led):
        table[row, : len(places)] = places
    return table, np.array([len(places) for places in led]), world.rows(records)


def _sent(records: Records, chosen: Ints) -> Ints:
    return np.where(records.foreign < 0, chosen, records.foreign)


# ---------------------------------------------------------------- partitioners


def _partitioner(
    name: str, world: QueueWorld, records: Records, settings: DispatchSettings
) -> Ints:
    """Each dispatcher has its own instance for all its topics."""
    weights: list[Mapping[int, float]] = [{}]
    instances = [
        partitioner_of(
            name,
            RoutingOptions(seed=settings.seed * 1_000_003 + dispatcher, weights=lambda: weights[0]),
        )
        for dispatcher in range(records.dispatchers)
    ]
    place = {broker: at for at, broker in enumerate(world.brokers)}
    chosen = records.foreign.copy()
    steered = name == "weighted-node"
    times = {at for at, _ in world.leaders} | {change.at for change in world.changes if steered}
    edges = np.searchsorted(records.at, [*sorted(times), math.inf], side="left").tolist()
    for start, (first, last) in zip(sorted(times), pairwise(edges), strict=True):
        snapshot = world.leaders[int(world.spans(np.array([start]))[0])][1]
        if steered:
            weights[0] = ideal_weights(world, records, start)
        leader = [
            {p: place[b] for p, b in snapshot.topic(topic).leader.items() if b >= 0}
            for topic in world.topics
        ]
        mine = first + np.flatnonzero(records.foreign[first:last] < 0)
        chosen[mine] = [
            leader[topic][
                instances[dispatcher].partition(world.topics[topic], None, _RECORD_BYTES, snapshot)
            ]
            for topic, dispatcher in zip(
                records.topic[mine].tolist(), records.dispatcher[mine].tolist(), strict=True
            )
        ]
    return chosen


def ideal_weights(world: QueueWorld, records: Records, at: float = 0.0) -> dict[int, float]:
    """The weights with which `weighted-node` makes all brokers equally busy, if possible.

    These are the weights of an ideal steering that knows speeds, foreign load and rates. The weight
    of each broker is scaled by its target over its present share until both agree (iterative
    proportional fitting); if the topics do not allow it, the result is the closest possible.
    """
    speeds = {b: _speed(world, b, at) for b in world.brokers}
    span = int(world.spans(np.array([at]))[0])
    led = [world.leaders[span][1].topic(topic).brokers for topic in world.topics]
    own = records.topic[records.foreign < 0]
    rates = np.bincount(own, minlength=len(led)) / records.at[-1]
    leading = sorted({broker for brokers in led for broker in brokers})
    foreign = {b: world.foreign_rates.get(b, 0.0) for b in leading}
    due = _level(speeds, foreign, float(rates.sum()))
    weights = {b: due[b] for b in leading}
    for _ in range(500):
        gets = dict.fromkeys(leading, 0.0)
        for brokers, rate in zip(led, rates.tolist(), strict=True):
            total = sum(weights[b] for b in brokers)
            for b in brokers:
                gets[b] += rate * (weights[b] / total if total else 1 / len(brokers))
        if all(abs(gets[b] - due[b]) <= 1e-6 * due[b] for b in leading if weights[b]):
            break
        weights = {b: w * due[b] / gets[b] if gets[b] else w for b, w in weights.items()}
        most = max(weights.values())
        weights = {b: w / most for b, w in weights.items()}
    return weights


def _speed(world: QueueWorld, broker: int, at: float) -> float:
    before = [c for c in world.changes if c.broker == broker and c.at <= at]
    return max(before, key=lambda c: c.at).speed if before else world.speeds[broker]


def _level(
    speeds: Mapping[int, float], foreign: Mapping[int, float], rate: float
) -> dict[int, float]:
    """The target of each broker if all brokers with records are equally busy."""
    open_to = {b for b in foreign if speeds[b] > 0}
    while open_to:
        busy = (rate + sum(foreign[b] for b in open_to)) / sum(speeds[b] for b in open_to)
        full = {b for b in open_to if busy * speeds[b] <= foreign[b]}
        if not full:
            return {b: busy * speeds[b] - foreign[b] if b in open_to else 0.0 for b in foreign}
        open_to -= full
    return dict.fromkeys(foreign, 0.0)


def _table(*policies: DispatchPolicy) -> Mapping[str, DispatchPolicy]:
    return MappingProxyType({policy.name: policy for policy in policies})


POLICIES = _table(
    DispatchPolicy(name="random", knows="who leads", choose=_random),
    DispatchPolicy(
        name="round-robin", knows="its own last choice", choose=_round_robin, own_view=True
    ),
    DispatchPolicy(
        name="jsq-d",
        knows="the length of d queues",
        choose=partial(observed_choices, some_lengths),
        looks=True,
    ),
    DispatchPolicy(
        name="jiq",
        knows="idle brokers that reported to it",
        choose=partial(observed_choices, Tokens),
        own_view=True,
    ),
    DispatchPolicy(
        name="jsq-own",
        knows="how many of its own records each broker has",
        choose=partial(observed_choices, OwnLengths),
        own_view=True,
    ),
    DispatchPolicy(
        name="jsq",
        knows="the length of every queue",
        choose=partial(observed_choices, lengths),
        looks=True,
    ),
    DispatchPolicy(
        name="least-work",
        knows="the work in every queue",
        choose=least_work,
    ),
)
"""The reference policies, by increasing knowledge."""

PARTITIONERS = _table(
    *(
        DispatchPolicy(
            name=name,
            knows="what it sent itself"
            if name != "weighted-node"
            else "speeds, foreign load and rates, as weights",
            choose=partial(_partitioner, name),
            own_view=True,
        )
        for name in OURS
    )
)
"""The partitioners of `plan/records` that choose per record."""
