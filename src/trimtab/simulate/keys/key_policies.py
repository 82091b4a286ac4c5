"""Rivals that keep all records of a key together: hashing, bounded loads, Gedik, DKG.

Promise  Deterministic, in integers; ties go to the lower partition, keys of equal count in order
         of their numbers. A busy key stays where it is. What each paper leaves open and what was
         chosen is in `trimtab.simulate.keys.registry`.
Cost     O(hot keys · partitions) per window; DKG once O(distinct keys).
Paper    `BoundedLoads`: Mirrokni, Thorup & Zadimoghaddam (2018). `HeavyKeyMap`: Gedik (2014).
         `LearnedKeyMap`: Rivetti et al. (2015).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from fractions import Fraction
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from trimtab.simulate.keys.policy import FinishedWindow, RoutingDecision
from trimtab.simulate.keys.routing import Routing, bucket_numbers

_RING_POINTS = 64  # of each partition
_SLIDING_WINDOWS = 3
_BUCKETS = 64  # for each partition
Ints = NDArray[np.int64]


class HashOnly:
    """Every key stays at its home: Kafka's default partitioner."""

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Changes nothing."""
        return RoutingDecision(routing=window.routing)


class BoundedLoads:
    """Consistent hashing with bounded loads, for hot keys.

    A hot key goes to the first partition with room for it: its home, then the partitions that
    follow its hash on a ring. A partition has room up to `c` times the mean load.
    """

    def __init__(self, partitions: int, *, c: str) -> None:
        """`c` is a decimal number above 1."""
        self._c = Fraction(c)
        points = sorted((_point(p, i), p) for p in range(partitions) for i in range(_RING_POINTS))
        self._points = np.array([point for point, _ in points], np.uint32)
        self._owners = [p for _, p in points]

    def limit(self, window: FinishedWindow) -> int:
        """The most records that a partition may have in a window like this one."""
        most = self._c * window.counts.n / window.partitions
        return -(-most.numerator // most.denominator)

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Places the hot keys, the largest first."""
        loads, table = _without_hot_keys(window)
        limit = self.limit(window)
        hashes = dict(
            zip(window.hot.keys.tolist(), window.hashes.of(window.hot.keys).tolist(), strict=True)
        )
        for key, count, home in _largest_first(window):
            if key in table:  # busy
                continue
            follow = self._order(home, hashes[key])
            room = next((p for p in follow if loads[p] + count <= limit), None)
            target = int(np.argmin(loads)) if room is None else room
            loads[target] += count
            if target != home:
                table[key] = target
        return _decision(window, table)

    def _order(self, home: int, hashed: int) -> Iterator[int]:
        """The partitions in the order in which a key tries them."""
        yield home
        seen = {home}
        start = int(np.searchsorted(self._points, hashed))
        for at in range(len(self._owners)):
            owner = self._owners[(start + at) % len(self._owners)]
            if owner not in seen:
                seen.add(owner)
                yield owner


class HeavyKeyMap:
    """An explicit map for hot keys that counts the cost of migration; the others by hash.

    Rates are means over up to three windows. Hot keys are placed anew, the largest first, each
    where the load is least, and a partition other than the present one counts as more loaded by
    the key itself.
    """

    def __init__(self) -> None:
        self._recent: deque[Mapping[int, int]] = deque(maxlen=_SLIDING_WINDOWS)

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Places the hot keys."""
        self._recent.append(window.hot.as_dict())
        loads, table = _without_hot_keys(window)
        present = dict(
            zip(window.hot.keys.tolist(), window.routes(window.hot.keys).tolist(), strict=True)
        )
        rated = [(key, self._mean(key), home) for key, _, home in _largest_first(window)]
        for key, count, home in sorted(rated, key=lambda one: (-one[1], one[0])):
            if key in table:  # busy
                continue
            now = present[key]
            target = min(
                range(window.partitions),
                key=lambda p: (int(loads[p]) + (count if p != now else 0), p != now, p),
            )
            loads[target] += count
            if target != home:
                table[key] = target
        return _decision(window, table)

    def _mean(self, key: int) -> int:
        counts = [window[key] for window in self._recent if key in window]
        return sum(counts) // len(counts)


class LearnedKeyMap:
    """One map for all keys, learned from the first window: heavy keys, and buckets of the others.

    Heavy keys and buckets are placed greedily, the largest first, each on the least loaded
    partition. A key is heavy if it has more records than a bucket has in the mean.
    """

    def __init__(self, partitions: int) -> None:
        self._buckets = _BUCKETS * partitions
        self._learned = False

    def plan(self, window: FinishedWindow) -> RoutingDecision:
        """Learns the map once; it then stays."""
        if self._learned or not window.counts.n:
            return RoutingDecision(routing=window.routing)
        self._learned = True
        keys, counts = window.counts.all_keys
        heavy = counts * self._buckets > window.counts.n
        hashes = window.hashes.of(keys)
        buckets = bucket_numbers(hashes, self._buckets)
        light = np.bincount(buckets[~heavy], counts[~heavy], self._buckets).astype(np.int64)
        items = [(-n, 0, key) for key, n in zip(keys[heavy], counts[heavy], strict=True)]
        items += [(-n, 1, bucket) for bucket, n in enumerate(light)]
        loads = np.zeros(window.partitions, np.int64)
        table, places = {}, np.zeros(self._buckets, np.uint16)
        for negative, is_bucket, item in sorted(items):
            target = int(np.argmin(loads))
            loads[target] -= negative
            if is_bucket:
                places[item] = target
            else:
                table[int(item)] = target
        learned = Routing(table=table, buckets=places)
        moved = keys[window.routes(keys) != window.routes(keys, learned)]
        return RoutingDecision(routing=learned, moves={"learn": moved.size}, moved=moved)


def _point(partition: int, number: int) -> int:
    """A point of the ring."""
    digest = blake2b(b"%d/%d" % (partition, number), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFFFFFF


def _largest_first(window: FinishedWindow) -> list[tuple[int, int, int]]:
    """The hot keys with their counts and homes, the largest first."""
    keys, counts = window.hot
    rows = zip(keys.tolist(), counts.tolist(), window.homes(keys).tolist(), strict=True)
    return sorted(rows, key=lambda row: (-row[1], row[0]))


def _without_hot_keys(window: FinishedWindow) -> tuple[Ints, dict[int, int]]:
    """The loads of cold keys at their homes, and a table of busy keys, which stay in it."""
    loads = window.cold_loads()
    table = {key: at for key, at in window.routing.table.items() if key in window.busy}
    hot = window.hot.as_dict()
    for key, at in table.items():
        loads[at] += hot.get(key, 0)
    for key in window.busy - table.keys():  # on its way home
        if key in hot:
            table[key] = int(window.homes(np.array([key]))[0])
            loads[table[key]] += hot[key]
    return loads, table


def _decision(window: FinishedWindow, table: Mapping[int, int]) -> RoutingDecision:
    """The decision for a table; a reason is `place`, `balance` or, on the way home, `cool`."""
    old, new = window.routing, Routing(table=dict(table))
    known = np.array(sorted(old.table.keys() | table.keys()), np.int64)
    before, after = window.routes(known), window.routes(known, new)
    moved = known[before != after]
    reasons = Counter(
        ("balance" if key in old.table else "place") if key in table else "cool"
        for key in moved.tolist()
    )
    return RoutingDecision(routing=new, moves=dict(reasons), moved=moved)
