"""Policies that choose a partition for each record, and so split the state of keys.

Promise  Deterministic. The load that choices compare is the number of records sent so far, which
         is what a sender knows without asking. Ties go to the first choice.
Cost     A Python loop for the choices, some 0.2 µs per record; round robin is vectorised.
Paper    `pkg`: Nasir et al., "The power of both choices" (2015). `d-choices` and `w-choices`:
         Nasir et al., "When two choices are not enough" (2016).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trimtab.simulate.keys.arrivals import KeyedArrivals
from trimtab.simulate.keys.policy import FinishedWindow
from trimtab.simulate.keys.routing import Hashes, Partitions, other_hashes
from trimtab.simulate.keys.window_counts import CountedKeys

_UNEVENNESS = 1e-4  # of the load, that the number of choices may leave
_NOT_HEAVY = -1


class RoundRobin:
    """Records go to the partitions in turn: the bound for topics without keys."""

    entries = 0

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._next = 0

    def choose(self, block: KeyedArrivals) -> Partitions:
        """The partitions in turn."""
        turns = np.arange(self._next, self._next + block.keys.size) % self._partitions
        self._next = (self._next + block.keys.size) % self._partitions
        return turns.astype(np.uint16)

    def learn(self, window: FinishedWindow) -> None:
        """There is nothing to learn."""


class PartialKeyGrouping:
    """Each record goes to the less loaded of the two partitions that hashes of its key give."""

    entries = 0

    def __init__(self, partitions: int) -> None:
        self._partitions = partitions
        self._loads = [0] * partitions

    def choose(self, block: KeyedArrivals) -> Partitions:
        """The less loaded of two partitions for each record."""
        loads = self._loads
        chosen = []
        first, second = two_hash_choices(block, self._partitions)
        for a, b in zip(first.tolist(), second.tolist(), strict=True):
            p = a if loads[a] <= loads[b] else b
            loads[p] += 1
            chosen.append(p)
        return np.array(chosen, np.uint16)

    def learn(self, window: FinishedWindow) -> None:
        """There is nothing to learn: every key has two choices."""


class MoreChoices:
    """As partial key grouping, but heavy keys have more choices, or all."""

    def __init__(self, partitions: int, *, all_partitions: bool) -> None:
        self._partitions = partitions
        self._all = all_partitions
        self._loads = [0] * partitions
        self._heavy = np.full(1, _NOT_HEAVY, np.int64)  # the last stands for all keys beyond
        self._choices: list[tuple[int, ...]] = []

    @property
    def entries(self) -> int:
        """The number of heavy keys."""
        return len(self._choices)

    def choose(self, block: KeyedArrivals) -> Partitions:
        """The least loaded of two partitions, or of those that a heavy key may go to."""
        loads, choices = self._loads, self._choices
        chosen = []
        first, second = two_hash_choices(block, self._partitions)
        heavy = self._heavy.take(block.keys, mode="clip")
        load_of = loads.__getitem__
        for a, b, h in zip(first.tolist(), second.tolist(), heavy.tolist(), strict=True):
            p = (a if loads[a] <= loads[b] else b) if h < 0 else min(choices[h], key=load_of)
            loads[p] += 1
            chosen.append(p)
        return np.array(chosen, np.uint16)

    def learn(self, window: FinishedWindow) -> None:
        """Keys with more than 1/(5m) of the window's records are heavy in the next."""
        m = self._partitions
        keys, counts = window.counts.all_keys
        heavy = np.flatnonzero(5 * m * counts > window.counts.n)
        found = CountedKeys(keys[heavy], counts[heavy])
        self._heavy = np.full(int(found.keys.max(initial=-1)) + 2, _NOT_HEAVY, np.int64)
        self._heavy[found.keys] = np.arange(found.keys.size)
        if self._all:
            self._choices = [tuple(range(m))] * found.keys.size
            return
        shares = np.sort(found.counts / max(1, window.counts.n))[::-1].tolist()
        d = choices_needed(shares, m)
        self._choices = hash_choices(window.hashes.of(found.keys), d, m)


def two_hash_choices(block: KeyedArrivals, partitions: int) -> tuple[Partitions, Partitions]:
    """The home of each record's key, and another partition by a second hash."""
    if partitions == 1:
        return block.homes, block.homes
    step = 1 + other_hashes(block.hashes, 1) % np.uint32(partitions - 1)
    second = (block.homes + step) % np.uint32(partitions)
    return block.homes, second.astype(np.uint16)


def hash_choices(hashes: Hashes, choices: int, partitions: int) -> list[tuple[int, ...]]:
    """The partitions that `choices` hash functions give to each key; they may coincide."""
    columns = [hashes % np.uint32(partitions)]
    columns += [other_hashes(hashes, n) % np.uint32(partitions) for n in range(1, choices)]
    return [tuple(dict.fromkeys(row)) for row in np.stack(columns, axis=1).tolist()]


def choices_needed(shares: Sequence[float], partitions: int) -> int:
    """The fewest choices with which heavy keys of these shares, descending, can be spread.

    For each number h of the heaviest keys: what must go to the b partitions that they are expected
    to reach fits there. Light keys have two choices.

    >>> choices_needed([0.3], 8), choices_needed([0.04], 8)
    (5, 2)
    """
    m, light = partitions, 1 - sum(shares)
    for d in range(2, m):
        if all(
            _fits(sum(shares[:h]), sum(shares[h:]), light, m * (1 - ((m - 1) / m) ** (h * d)), d, m)
            for h in range(1, len(shares) + 1)
        ):
            return d
    return max(2, m)


def _fits(head: float, rest: float, light: float, reached: float, d: int, m: int) -> bool:
    load = head + (reached / m) ** d * rest + (reached / m) ** 2 * light
    return load <= reached * (1 / m + _UNEVENNESS)
