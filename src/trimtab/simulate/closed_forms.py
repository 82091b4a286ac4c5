"""Closed forms of queueing theory for dispatchers, to validate the simulator.

Promise  Times are in mean service times of a broker of speed 1, waits end where service begins.
         Every form is marked as exact, as a limit for many brokers, or as a lower bound.
Cost     Mostly below a millisecond; about 10 ms for the idle queue, up to a second for chains and
         for M/D/n at high utilisation. Beyond that the result is None.
Paper    Burato, chapter 5, gives M/M/1 for each queue. Its "black box" formula, the same over N, is
         that of one broker N times as fast, which a cluster of N brokers is not. The others: Erlang
         (M/M/n), Pollaczek and Khinchine (M/D/1), Spitzer's identity (M/D/n), Mitzenmacher
         (shortest of d), Lu et al. 2011 (idle queue; here tokens are taken back, see there).

>>> f"{m_m_1(0.9).mean_wait:.3f} {m_m_n(2, 0.9).mean_wait:.3f} {round_robin(2, 0.9).mean_wait:.3f}"
'9.000 4.263 6.588'
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations_with_replacement

import numpy as np

MOST_STATES = 30_000
MOST_TERMS = 600_000
_SPREAD = 24  # states with larger differences are too rare to matter
_RARE = 1e-8
_LAST_TERM = 1e-12


class FormKind(StrEnum):
    """Whether a form is exact, a limit or a bound."""

    EXACT = "exact"
    LIMIT = "limit"  # for many brokers
    BOUND = "bound"  # a lower bound


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedForm:
    """A mean wait, and the exponential tail of waits if there is one."""

    name: str
    kind: FormKind
    mean_wait: float
    waits: float | None = None
    """The share of records that wait at all; P(wait > x) = waits · exp(−decay · x)."""
    decay: float | None = None

    def quantile(self, share: float) -> float | None:
        """The quantile of the wait; None if only the mean is known."""
        if self.waits is None or self.decay is None:
            return None
        return max(0.0, math.log(self.waits / (1 - share)) / self.decay) if self.waits else 0.0


def m_m_1(utilisation: float) -> ClosedForm:
    """Random choice among equal brokers: each is a separate queue."""
    _below_one(utilisation)
    return ClosedForm(
        name="M/M/1",
        kind=FormKind.EXACT,
        mean_wait=utilisation / (1 - utilisation),
        waits=utilisation,
        decay=1 - utilisation,
    )


def m_d_1(utilisation: float) -> ClosedForm:
    """The same with constant service times: half the wait."""
    _below_one(utilisation)
    mean = utilisation / (2 * (1 - utilisation))
    return ClosedForm(name="M/D/1", kind=FormKind.EXACT, mean_wait=mean)


def m_m_n(brokers: int, utilisation: float) -> ClosedForm:
    """One queue for all brokers (Erlang C): what full knowledge of all work achieves."""
    _below_one(utilisation)
    offered = brokers * utilisation
    blocked = 1.0  # Erlang B, by its recursion
    for n in range(1, brokers + 1):
        blocked = offered * blocked / (n + offered * blocked)
    waits = blocked / (1 - utilisation * (1 - blocked))
    decay = brokers - offered
    return ClosedForm(
        name="M/M/n", kind=FormKind.EXACT, mean_wait=waits / decay, waits=waits, decay=decay
    )


def m_d_n(brokers: int, utilisation: float) -> ClosedForm | None:
    """One queue for all brokers, with constant service times.

    What waits after a service time is what waited and arrived, less one for each broker: a random
    walk above zero, whose mean is Spitzer's sum. Round robin by one dispatcher is the same system.
    None if the sum would be too long: its terms shrink slowly at high utilisation.
    """
    from scipy.special import gammainc

    _below_one(utilisation)
    shrinks = brokers * (utilisation - 1 - math.log(utilisation))
    if -math.log(_LAST_TERM) > MOST_TERMS * shrinks:
        return None
    waiting, first, block = 0.0, 1, 4096
    while True:
        k = np.arange(first, first + block)
        seats, mean = k * brokers, k * brokers * utilisation
        above = mean * gammainc(seats, mean) - seats * gammainc(seats + 1, mean)
        terms = np.maximum(above, 0.0) / k
        waiting += float(terms.sum())
        if terms[-1] <= _LAST_TERM * waiting or waiting == 0.0:
            break
        first += block
    return ClosedForm(
        name="M/D/n", kind=FormKind.EXACT, mean_wait=waiting / (brokers * utilisation)
    )


def round_robin(brokers: int, utilisation: float) -> ClosedForm:
    """Round robin by one dispatcher: each broker takes every n-th arrival, so E_n/M/1."""
    _below_one(utilisation)
    rate, found = brokers * utilisation, utilisation
    while True:  # the map is increasing and convex with its least fixed point below 1
        last, found = found, (rate / (rate + 1 - found)) ** brokers
        if abs(found - last) <= 1e-15:
            break
    return ClosedForm(
        name="E_n/M/1",
        kind=FormKind.EXACT,
        mean_wait=found / (1 - found),
        waits=found,
        decay=1 - found,
    )


def shortest_of_many(d: int, utilisation: float) -> ClosedForm:
    """The shortest of d random queues out of very many (Mitzenmacher)."""
    _below_one(utilisation)
    if d == 1:
        return m_m_1(utilisation)
    mean, i = 0.0, 2
    while True:
        term = utilisation ** ((float(d) ** i - d) / (d - 1))
        mean += term
        if term < 1e-16:
            break
        i += 1
    return ClosedForm(name=f"shortest of {d}, n → ∞", kind=FormKind.LIMIT, mean_wait=mean)


def shortest_of_few(d: int, brokers: int, utilisation: float) -> ClosedForm | None:
    """The shortest of d random queues out of few, by the chain of all queue lengths.

    The chain is truncated at very rare states; None if it would still be too large.
    """
    _below_one(utilisation)
    if not 2 <= d <= brokers:
        return None
    deepest = math.ceil(math.log(_RARE) / (brokers * math.log(utilisation))) + 3
    if deepest * math.comb(min(_SPREAD, deepest) + brokers - 1, brokers - 1) > MOST_STATES:
        return None
    states = [
        (low, *(low + more for more in rest))
        for low in range(deepest + 1)
        for rest in combinations_with_replacement(
            range(min(_SPREAD, deepest - low) + 1), brokers - 1
        )
    ]
    mean = _records_inside(states, d, utilisation) / (brokers * utilisation) - 1
    name = f"chain of {brokers} queues"
    return ClosedForm(name=name, kind=FormKind.EXACT, mean_wait=mean)


def idle_queue_many(brokers_each: float, utilisation: float) -> ClosedForm:
    """Join the idle queue, with very many brokers and `brokers_each` of them per dispatcher.

    A broker that idles gives its token to one dispatcher. A dispatcher without token chooses at
    random, which gives every broker, busy or not, a stream of rate s: while busy it is an M/M/1 of
    load s, and s is the load times the share of time that a dispatcher has no token. Its tokens are
    a queue: a record takes one, at rate u = load · brokers_each, and each is taken back when its
    broker is hit by chance, at rate s. As (1 − load) · brokers_each are there on average, they come
    in at rate u · (1 − s). So all but s is known, and s is what makes both shares the same.
    """
    from scipy.optimize import brentq

    _below_one(utilisation)
    used = brokers_each * utilisation

    def without(stream: float) -> float:
        """The share of time without a token, minus the required share."""
        most = (
            math.ceil(math.sqrt(80 * used / stream)) + 64
        )  # larger numbers of tokens are negligible
        k = np.arange(1, most + 1)
        weights = np.exp(np.cumsum(math.log1p(-stream) - np.log1p(stream / used * k)))
        return float(1 / (1 + weights.sum())) - stream / utilisation

    stream = brentq(without, _RARE * utilisation, utilisation, xtol=1e-14)
    return ClosedForm(
        name="idle queue, n → ∞",
        kind=FormKind.LIMIT,
        mean_wait=stream / (1 - stream),
        waits=stream,
        decay=1 - stream,
    )


def split(
    loads: Mapping[int, float],
    speeds: Mapping[int, float],
    *,
    constant: bool = False,
    foreign: Mapping[int, float] | None = None,
) -> ClosedForm:
    """A random split that gives broker b `loads[b]` records per service time: M/M/1 or M/D/1 each.

    Foreign records wait in the same queues and are not counted. If a broker receives more than it
    can serve, the mean wait is infinite.
    """
    besides = foreign or {}
    total = sum(loads.values())
    mean = 0.0
    for broker, load in loads.items():
        busy = (load + besides.get(broker, 0.0)) / speeds[broker]
        if load == 0:
            continue
        if busy >= 1:
            return ClosedForm(name="M/M/1 each", kind=FormKind.EXACT, mean_wait=math.inf)
        queue = m_d_1(busy) if constant else m_m_1(busy)
        mean += load / total * queue.mean_wait / speeds[broker]
    name = f"M/{'D' if constant else 'M'}/1 each"
    return ClosedForm(name=name, kind=FormKind.EXACT, mean_wait=mean)


# ---------------------------------------------------------------- chains


def _records_inside(states: list[tuple[int, ...]], d: int, utilisation: float) -> float:
    """The mean number of records in all queues, in the long run."""
    from scipy.sparse import csc_array
    from scipy.sparse.linalg import spsolve

    place = {state: i for i, state in enumerate(states)}
    n = len(states[0])
    chosen = [math.comb(n - k - 1, d - 1) / math.comb(n, d) for k in range(n)]
    rows, columns, rates = [], [], []
    leaving = np.zeros(len(states))
    for at, state in enumerate(states):
        for k in range(n):
            for step, rate in ((1, n * utilisation * chosen[k]), (-1, float(state[k] > 0))):
                there = place.get(tuple(sorted((*state[:k], state[k] + step, *state[k + 1 :]))))
                if rate and there is not None:
                    rows.append(there)
                    columns.append(at)
                    rates.append(rate)
                    leaving[at] += rate
    size = len(states)
    diagonal = list(range(size))
    flows = csc_array(
        ([*rates, *(-leaving)], ([*rows, *diagonal], [*columns, *diagonal])), shape=(size, size)
    )
    # All balance but one; the first state has weight 1 until all are scaled.
    rest = spsolve(flows[1:, 1:].tocsc(), -flows[1:, [0]].toarray().ravel())
    weights = np.concatenate(([1.0], rest))
    return float(weights @ [sum(state) for state in states] / weights.sum())


def _below_one(utilisation: float) -> None:
    if not 0 < utilisation < 1:
        raise ValueError(f"utilisation must be above 0 and below 1, not {utilisation}")
