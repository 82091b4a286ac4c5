"""Max groups of topics, and where they overlap.

Why      If two groups share some but not all of their brokers, a partitioner that sees one topic
         only cannot balance those brokers: the balance depends on the rates.
Promise  A max group is all topics led by the same set of brokers: a topic with a leader is in
         exactly one, a topic without a leader in none. Groups are sorted by their first topic,
         pairs by first and second group.
Cost     O(topics · brokers / word) for groups, components and contested brokers; O(rows) for the
         groups by broker. Pairs may be millions: they are counted without being listed.
Paper    Burato, chapter 3: definitions 1–3, Algorithms 1–3. Differs: groups are found by bit mask
         in a dictionary, not by a scan over groups; the empty set is not a group.

>>> from trimtab.audit.layout import layout_of
>>> from trimtab.testing.placements import led
>>> found = max_groups(layout_of(led({"A": {1: 1, 2: 2}, "B": {2: 1, 3: 1}, "C": {2: 1, 3: 2}})))
>>> [(group.topics, group.brokers) for group in found.groups]
[(('A',), (1, 2)), (('B', 'C'), (2, 3))]
>>> list(pairs(found)), overlaps_by_broker(found)
([Pair(first=0, second=1, brokers=(2,), rate=None)], {2: (0, 1)})
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from math import fsum
from operator import or_
from typing import NamedTuple

import numpy as np

from trimtab.audit.layout import Floats, Ints, Layout, starts, summed
from trimtab.model.cluster import BrokerId

_ROUNDING = 1e-9
_ROWS_AT_ONCE = 4096


class MaxGroup(NamedTuple):
    """All topics that are led by the same set of brokers."""

    brokers: tuple[BrokerId, ...]
    topics: tuple[str, ...]


class Pair(NamedTuple):
    """Two groups that share some but not all of their brokers.

    `rate` is what both together send to the common brokers, if it was requested.
    """

    first: int
    second: int
    brokers: tuple[BrokerId, ...]
    rate: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Groups:
    """The max groups of a layout.

    Attributes:
        brokers: Broker ids in ascending order; a broker's position is its place.
        groups: The groups.
        masks: The brokers of each group as bits.
        of_topic: The group of each topic, −1 for those without a leader.
        topic_masks: The brokers of each topic as bits, 0 for none.
        led: Places of the brokers of all groups, one group after the other.
        start: Where those of each group begin.
    """

    brokers: tuple[BrokerId, ...]
    groups: tuple[MaxGroup, ...]
    masks: tuple[int, ...]
    of_topic: Ints
    topic_masks: tuple[int, ...]
    led: Ints
    start: Ints

    def named(self, mask: int) -> tuple[BrokerId, ...]:
        """The ids of the brokers in a mask, ascending."""
        return tuple(self.brokers[place] for place in bits(mask))


def bits(mask: int) -> Iterator[int]:
    """The places of the bits that are set, ascending.

    >>> list(bits(0b1010))
    [1, 3]
    """
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def as_bits(row: Ints, bit: Ints, *, rows: int, width: int) -> list[int]:
    """For each row its bits as one integer.

    >>> as_bits(np.array([0, 0, 2]), np.array([1, 3, 0]), rows=3, width=4)
    [10, 0, 1]
    """
    found = []
    edges = starts(row, rows)
    for begin in range(0, rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, rows)
        part = slice(edges[begin], edges[end])
        table = np.zeros((end - begin, width), dtype=bool)
        table[row[part] - begin, bit[part]] = True
        packed = np.packbits(table, axis=1, bitorder="little")
        text, size = packed.tobytes(), packed.shape[1]
        at = range(0, len(text), size) if size else [0] * (end - begin)
        found += [int.from_bytes(text[i : i + size], "little") for i in at]
    return found


def topic_masks(layout: Layout) -> list[int]:
    """Each topic's leading brokers as bits; 0 is a topic without a leader."""
    rows = len(layout.topics)
    return as_bits(layout.led.topic, layout.led.broker, rows=rows, width=len(layout.brokers))


def max_groups(layout: Layout) -> Groups:
    """The max groups (Algorithm 1, with a dictionary)."""
    masks = topic_masks(layout)
    members: dict[int, list[int]] = {}
    for topic, mask in enumerate(masks):
        if mask:
            members.setdefault(mask, []).append(topic)
    group_of = {mask: group for group, mask in enumerate(members)}
    # All topics of a group have the same brokers, so the rows of the first topic are enough.
    firsts = np.fromiter((topics[0] for topics in members.values()), np.int64, len(members))
    begin, end = layout.led.start[firsts], layout.led.start[firsts + 1]
    led = layout.led.broker[spans(begin, end)]
    start = np.concatenate(([0], np.cumsum(end - begin)))
    ids = np.asarray(layout.brokers, dtype=object)[led].tolist()
    edges = start.tolist()
    return Groups(
        brokers=layout.brokers,
        groups=tuple(
            MaxGroup(
                tuple(ids[edges[group] : edges[group + 1]]),
                tuple(map(layout.topics.__getitem__, topics)),
            )
            for group, topics in enumerate(members.values())
        ),
        masks=tuple(members),
        of_topic=np.fromiter((group_of.get(mask, -1) for mask in masks), np.int64, len(masks)),
        topic_masks=tuple(masks),
        led=led,
        start=start,
    )


def spans(begin: Ints, end: Ints) -> Ints:
    """All numbers from each `begin` to its `end` (exclusive), one span after the other.

    >>> spans(np.array([2, 9]), np.array([5, 11])).tolist()
    [2, 3, 4, 9, 10]
    """
    size = end - begin
    before = np.cumsum(size) - size
    return np.repeat(begin - before, size) + np.arange(size.sum())


def overlaps_by_broker(groups: Groups) -> dict[BrokerId, tuple[int, ...]]:
    """The groups of each broker that leads topics of several groups (Algorithm 3)."""
    return {
        groups.brokers[place]: tuple(those)
        for place, those in enumerate(_by_broker(groups))
        if len(those) > 1
    }


def _by_broker(groups: Groups) -> list[list[int]]:
    """The groups on each broker, ascending."""
    group = np.repeat(np.arange(len(groups.masks)), np.diff(groups.start))
    order = np.argsort(groups.led, kind="stable")
    there = group[order].tolist()
    edges = starts(groups.led[order], len(groups.brokers)).tolist()
    return [there[edges[b] : edges[b + 1]] for b in range(len(groups.brokers))]


def contested(masks: Iterable[int]) -> int:
    """The brokers that several groups share, as bits."""
    seen = several = 0
    for mask in masks:
        several |= seen & mask
        seen |= mask
    return several


def components(masks: Iterable[int]) -> list[int]:
    """The brokers of each connected part of the overlap graph, as bits, by lowest broker."""
    parts: list[int] = []
    for mask in masks:
        touched = [part for part in parts if part & mask]
        if len(touched) == 1 and touched[0] & mask == mask:
            continue
        merged = mask
        for part in touched:
            merged |= part
        parts = [part for part in parts if not part & mask]
        parts.append(merged)
    return sorted(parts, key=lambda part: part & -part)


def _partners(groups: Groups) -> Iterator[int]:
    """For each group, the groups that share a broker with it (itself included), as bits."""
    group = np.repeat(np.arange(len(groups.masks)), np.diff(groups.start))
    order = np.argsort(groups.led, kind="stable")
    size = len(groups.brokers)
    there = as_bits(groups.led[order], group[order], rows=size, width=len(groups.masks))
    places, edges = groups.led.tolist(), groups.start.tolist()
    on = there.__getitem__
    return (reduce(or_, map(on, places[begin:end])) for begin, end in pairwise(edges))


def count_pairs(groups: Groups) -> int:
    """How many pairs of groups overlap."""
    return sum(met.bit_count() - 1 for met in _partners(groups)) // 2


def pairs(groups: Groups) -> Iterator[Pair]:
    """All pairs that overlap, one by one (Algorithm 2, the variant with the common brokers)."""
    for first, met in enumerate(_partners(groups)):
        for after in bits(met >> (first + 1)):
            second = first + 1 + after
            yield Pair(first, second, groups.named(groups.masks[first] & groups.masks[second]))


def heaviest_pairs(groups: Groups, sent: Floats, *, limit: int) -> list[Pair]:
    """The pairs that send the most to the brokers they share, the heaviest first.

    `sent` is what each group sends to each of its brokers, in the order of `groups.led`. Groups
    are visited by falling rate, so the search stops when no remaining pair can be heavy enough.
    """
    size = len(groups.masks)
    if limit < 1 or size < 2:
        return []
    rate = np.add.reduceat(sent, groups.start[:-1])
    order = np.argsort(-rate, kind="stable")
    group = np.repeat(np.arange(size), np.diff(groups.start))
    by_broker = np.argsort(groups.led, kind="stable")
    there, there_sent = group[by_broker], sent[by_broker]
    begin = starts(groups.led[by_broker], len(groups.brokers))
    best: list[tuple[float, int, int]] = []  # a heap of (rate, −first, −second), the least on top
    done = np.zeros(size, dtype=bool)
    for one in order.tolist():
        if len(best) == limit and 2 * rate[one] * (1 + _ROUNDING) < best[0][0]:
            break
        done[one] = True
        own = slice(*groups.start[one : one + 2].tolist())
        places = groups.led[own]
        rows = spans(begin[places], begin[places + 1])
        with_own = there_sent[rows] + np.repeat(sent[own], begin[places + 1] - begin[places])
        common = summed(there[rows], with_own, size)
        met = np.bincount(there[rows], minlength=size).astype(bool) & ~done
        _keep(best, one, np.flatnonzero(met), common, limit)
    named = [_weighed(groups, sent, -first, -second) for _, first, second in best]
    return sorted(named, key=lambda p: (-(p.rate or 0.0), p.first, p.second))


def _keep(
    best: list[tuple[float, int, int]], one: int, others: Ints, common: Floats, limit: int
) -> None:
    weights = common[others]
    if len(best) == limit:
        heavy = weights >= best[0][0]
        others, weights = others[heavy], weights[heavy]
    for other, weight in zip(others.tolist(), weights.tolist(), strict=True):
        entry = (weight, -min(one, other), -max(one, other))
        if len(best) < limit:
            heapq.heappush(best, entry)
        elif entry > best[0]:
            heapq.heapreplace(best, entry)


def _weighed(groups: Groups, sent: Floats, first: int, second: int) -> Pair:
    """A pair with its rate summed exactly, independent of the order of summation."""
    mask = groups.masks[first] & groups.masks[second]
    parts = []
    for group in (first, second):
        begin, end = groups.start[group : group + 2].tolist()
        rows = zip(groups.led[begin:end].tolist(), sent[begin:end].tolist(), strict=True)
        parts += [rate for place, rate in rows if mask >> place & 1]
    return Pair(first, second, groups.named(mask), fsum(parts))
