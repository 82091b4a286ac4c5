"""A snapshot as arrays: which broker leads how many partitions of which topic.

Why      Groups, counts, loads and faults all ask the same thing; it is counted once.
Promise  Pure; the order of the snapshot plays no part. Broker ids are any integers: a broker's
         *place* is its position among the ascending ids, and the number of its bit in a mask.
         Brokers that only a replica list names have a place too.
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

NOBODY = -1
"""The place of no broker."""

INTERNAL_PREFIX = "__"
_LARGE_ID = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Leadership:
    """How many partitions of a topic a broker leads: a row for each pair where it is one or more.

    Rows are by topic, then by broker; those of the topics at `start[t]` … `start[t + 1]`.
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
        leader_of: The place of each partition's leader, or `NOBODY`.
        start: Where the partitions of each topic begin, and where the last ones end.
        preferred: The place of each partition's first replica.
        held: How many replicas each partition has.
        synced: How many replicas of each partition are in sync.
        led: Who leads how many partitions of what.
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
        """The places of brokers by their ids; `NOBODY` for one that has none."""
        return places_among(self.brokers, ids)


def is_internal(topic: str) -> bool:
    """Whether a topic is Kafka's own."""
    return topic.startswith(INTERNAL_PREFIX)


def layout_of(
    snapshot: ClusterSnapshot, *, left_out: Callable[[str], bool] = is_internal
) -> Layout:
    """The layout of a snapshot, without Kafka's own topics unless `left_out` says otherwise."""
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
    first = _ints([listed[0] if listed else NOBODY for listed in replicas], len(found))
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
    """The positions of ids among ascending ones; `NOBODY` for one that is not there."""
    if not brokers:
        return np.full(ids.size, NOBODY, dtype=np.int64)
    known = np.asarray(brokers, dtype=np.int64)
    if known[0] >= 0 and known[-1] < _LARGE_ID:  # a look-up is quicker than a search
        place = np.full(int(known[-1]) + 2, NOBODY, dtype=np.int64)
        place[known] = np.arange(known.size)
        return place[np.where((ids >= 0) & (ids <= known[-1]), ids, known[-1] + 1)]
    found = np.minimum(np.searchsorted(known, ids), known.size - 1)
    return np.where(known[found] == ids, found, NOBODY)


def padded(layout: Layout, name: str) -> Ints:
    """The places of a list of every partition, in rows of one length, filled up with `NOBODY`."""
    lists = list(map(attrgetter(name), layout.partitions))
    sizes = _ints(map(len, lists), len(lists))
    flat = _ints(chain.from_iterable(lists), int(sizes.sum()))
    found = np.full((len(lists), int(sizes.max(initial=0))), NOBODY, dtype=np.int64)
    found[np.arange(found.shape[1]) < sizes[:, None]] = layout.places(flat)
    return found


def counted(
    topic_of: Ints, leader_of: Ints, *, topics: int, brokers: int
) -> tuple[Leadership, Ints]:
    """Who leads how many partitions of what, and how many of each topic have a leader."""
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
    """The amounts at each of the numbers from 0 to `size`, added up in their order."""
    return np.asarray(np.bincount(at, weights=amount, minlength=size), dtype=np.float64)


def starts(ascending: Ints, size: int) -> Ints:
    """Where each of the numbers from 0 to `size` begins in an ascending list."""
    return np.searchsorted(ascending, np.arange(size + 1))
