"""A snapshot as arrays: which broker leads how many partitions of which topic.

Why      Groups, counts, loads and failures all need these counts; they are computed once.
Promise  Pure; the result does not depend on the order of the snapshot. Broker ids are any integers:
         a broker's *place* is its position among the sorted ids, and its bit number in a mask.
         Brokers that occur only in a replica list have a place too.
Cost     O(partitions · log partitions), in arrays.

>>> from trimtab.testing.placements import placement
>>> seen = layout_of(placement({"A": [[7], [42], [42]], "B": [[1001], []]}))
>>> seen.brokers, seen.topics, seen.available.tolist()
((7, 42, 1001), ('A', 'B'), [3, 1])
>>> [(seen.topics[t], seen.brokers[b], c) for t, b, c in seen.led.rows()]
[('A', 7, 1), ('A', 42, 2), ('B', 1001, 1)]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from trimtab.model.cluster import BrokerId, ClusterSnapshot, Replicas

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

NO_PLACE = -1
"""Used instead of a place where there is no broker."""

INTERNAL_PREFIX = "__"
_LARGE_ID = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leadership:
    """How many partitions of a topic a broker leads: one row per pair with at least one partition.

    Rows are sorted by topic, then broker; those of topic t are `start[t]` … `start[t + 1]`.
    """

    topic: Ints
    broker: Ints
    count: Ints
    start: Ints

    def rows(self) -> Iterator[tuple[int, int, int]]:
        """The rows as plain numbers."""
        return zip(self.topic.tolist(), self.broker.tolist(), self.count.tolist(), strict=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Layout:
    """Leaders by topic.

    Attributes:
        brokers: Ids, ascending; the position is the place.
        topics: Names, ascending.
        partitions: By topic, then by number.
        topic_of: The topic of each partition, as a position in `topics`.
        leader_of: The place of each partition's leader, or `NO_PLACE`.
        start: Where the partitions of each topic begin, and where the last ones end.
        preferred: The place of each partition's first replica.
        held: How many replicas each partition has.
        synced: How many replicas of each partition are in sync.
        led: How many partitions of each topic each broker leads.
        available: How many partitions of each topic have a leader.
    """

    brokers: tuple[BrokerId, ...]
    topics: tuple[str, ...]
    partitions: tuple[Replicas, ...]
    topic_of: Ints
    leader_of: Ints
    start: Ints
    preferred: Ints
    held: Ints
    synced: Ints
    led: Leadership
    available: Ints

    @property
    def leaders(self) -> Ints:
        """How many brokers lead a partition of each topic."""
        return np.diff(self.led.start)

    def places(self, ids: Ints) -> Ints:
        """The places of brokers by their ids; `NO_PLACE` for one that has none."""
        return places_among(self.brokers, ids)


def is_internal(topic: str) -> bool:
    """Whether a topic is Kafka's own."""
    return topic.startswith(INTERNAL_PREFIX)


def layout_of(
    snapshot: ClusterSnapshot, *, left_out: Callable[[str], bool] = is_internal
) -> Layout:
    """The layout of a snapshot without the topics for which `left_out` is true."""
    found = snapshot.partitions
    names = list(map(attrgetter("topic"), found))
    named = {name: not left_out(name) for name in dict.fromkeys(names)}
    if not all(named.values()):
        found = tuple(p for p in found if named[p.topic])
        names = list(map(attrgetter("topic"), found))
    topics = tuple(sorted(name for name, kept in named.items() if kept))
    place = {name: at for at, name in enumerate(topics)}
    topic_of = _ints(map(place.__getitem__, names), len(found))
    number = _ints(map(attrgetter("partition"), found), len(found))
    same = topic_of[1:] == topic_of[:-1]
    if not np.where(same, number[1:] > number[:-1], topic_of[1:] > topic_of[:-1]).all():
        order = np.lexsort((number, topic_of))
        found = tuple(found[at] for at in order.tolist())
        topic_of = topic_of[order]
    leader = _ints(map(attrgetter("leader"), found), len(found))
    replicas = list(map(attrgetter("replicas"), found))
    ids = {broker.id for broker in snapshot.brokers}
    ids.update(chain.from_iterable(replicas), (b for b in set(leader.tolist()) if b >= 0))
    brokers = tuple(sorted(ids))
    leader_of = places_among(brokers, leader)
    first = _ints([listed[0] if listed else NO_PLACE for listed in replicas], len(found))
    led, available = counted(topic_of, leader_of, topics=len(topics), brokers=len(brokers))
    return Layout(
        brokers=brokers,
        topics=topics,
        partitions=found,
        topic_of=topic_of,
        leader_of=leader_of,
        start=starts(topic_of, len(topics)),
        preferred=places_among(brokers, first),
        held=_ints(map(len, replicas), len(found)),
        synced=_ints(map(len, map(attrgetter("isr"), found)), len(found)),
        led=led,
        available=available,
    )


def _ints(numbers: Iterable[int], size: int) -> Ints:
    return np.fromiter(numbers, np.int64, size)


def places_among(brokers: Sequence[int], ids: Ints) -> Ints:
    """The positions of ids among ascending ones; `NO_PLACE` for one that is not there."""
    if not brokers:
        return np.full(ids.size, NO_PLACE, dtype=np.int64)
    known = np.asarray(brokers, dtype=np.int64)
    if known[0] >= 0 and known[-1] < _LARGE_ID:  # indexing is faster than a binary search
        place = np.full(int(known[-1]) + 2, NO_PLACE, dtype=np.int64)
        place[known] = np.arange(known.size)
        return place[np.where((ids >= 0) & (ids <= known[-1]), ids, known[-1] + 1)]
    found = np.minimum(np.searchsorted(known, ids), known.size - 1)
    return np.where(known[found] == ids, found, NO_PLACE)


def padded(layout: Layout, name: str) -> Ints:
    """The places of a list of every partition, in rows of one length, filled up with `NO_PLACE`."""
    lists = list(map(attrgetter(name), layout.partitions))
    sizes = _ints(map(len, lists), len(lists))
    flat = _ints(chain.from_iterable(lists), int(sizes.sum()))
    found = np.full((len(lists), int(sizes.max(initial=0))), NO_PLACE, dtype=np.int64)
    found[np.arange(found.shape[1]) < sizes[:, None]] = layout.places(flat)
    return found


def counted(
    topic_of: Ints, leader_of: Ints, *, topics: int, brokers: int
) -> tuple[Leadership, Ints]:
    """How many partitions of each topic each broker leads, and how many have a leader."""
    online = leader_of >= 0
    topic = topic_of[online]
    pair = np.sort(topic * brokers + leader_of[online])
    first = np.flatnonzero(np.diff(pair, prepend=-1))
    of_topic, broker = np.divmod(pair[first], max(brokers, 1))
    led = Leadership(
        topic=of_topic,
        broker=broker,
        count=np.diff(first, append=pair.size),
        start=starts(of_topic, topics),
    )
    return led, np.bincount(topic, minlength=topics)


def summed(at: Ints, amount: Floats, size: int) -> Floats:
    """The sum of the amounts at each position from 0 to `size`, added in the given order."""
    return np.asarray(np.bincount(at, weights=amount, minlength=size), dtype=np.float64)


def starts(ascending: Ints, size: int) -> Ints:
    """Where each of the numbers from 0 to `size` begins in an ascending list."""
    return np.searchsorted(ascending, np.arange(size + 1))
