"""Pairs of topics that begin or cease to overlap in part when some topics change leaders.

Why      A failure changes the leaders of few topics; only pairs with one of those can change.
Promise  Equal to a comparison of all pairs before and after.
Cost     O(changed topics · leaders · topics / word).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_

import numpy as np

from trimtab.audit.groups import as_bits, bits, topic_masks
from trimtab.audit.layout import Ints, Layout, Leadership
from trimtab.model.cluster import BrokerId

_MOST_KEPT_BITS = 1 << 30


class OverlapChanges:
    """Bit sets of the topics of each broker and the brokers of each topic, to compare pairs."""

    def __init__(self, layout: Layout) -> None:
        self._brokers = layout.brokers
        self._masks = topic_masks(layout)
        order = np.argsort(layout.led.broker, kind="stable")
        self._there = as_bits(
            layout.led.broker[order],
            layout.led.topic[order],
            rows=len(layout.brokers),
            width=len(layout.topics),
        )
        self._group: dict[int, int] = {}
        for topic, mask in enumerate(self._masks):
            if mask:
                self._group[mask] = self._group.get(mask, 0) | 1 << topic
        self._partners: dict[int, int] = {}
        self._named: dict[int, tuple[BrokerId, ...]] = {}

    def after(
        self, changed_topics: Ints, led: Leadership, dead: Sequence[int]
    ) -> tuple[int, int, tuple[BrokerId, ...]]:
        """Counts new and vanished pairs, and lists the brokers shared by several groups afterwards.

        `led` has the new leaders of the topics that change; its topics are positions among those.
        """
        topics = changed_topics.tolist()
        places, edges = led.broker.tolist(), led.start.tolist()
        there, group = self._there.copy(), self._group.copy()
        for place in dead:
            there[place] = 0
        changed: dict[int, int] = {}
        for topic, begin, end in zip(topics, edges, edges[1:], strict=False):
            was = self._masks[topic]
            mask, bit = 0, 1 << topic
            for place in places[begin:end]:
                mask |= 1 << place
            changed[topic] = mask
            group[was] ^= bit
            if mask:
                group[mask] = group.get(mask, 0) | bit
            for place in bits(mask & ~was):
                there[place] |= bit
        (both,) = as_bits(
            np.zeros_like(changed_topics), changed_topics, rows=1, width=len(self._masks)
        )
        on = there.__getitem__
        new = vanished = 0  # each pair is counted twice
        for topic, begin, end in zip(topics, edges, edges[1:], strict=False):
            was = self._partners_of(self._masks[topic])
            now = reduce(or_, map(on, places[begin:end]), 0)
            if now:
                now ^= group[changed[topic]]  # the topic itself and topics with the same leaders
            kept = was & now
            come, gone = now ^ kept, was ^ kept
            new += 2 * come.bit_count() - (come & both).bit_count()
            vanished += 2 * gone.bit_count() - (gone & both).bit_count()
        return new // 2, vanished // 2, self._contested(changed, there, group)

    def _partners_of(self, mask: int) -> int:
        """The topics that overlap in part with a group of this mask before the change."""
        found = self._partners.get(mask)
        if found is None:
            on = self._there.__getitem__
            found = reduce(or_, map(on, bits(mask)), 0) ^ self._group[mask]
            if len(self._partners) * len(self._masks) < _MOST_KEPT_BITS:
                self._partners[mask] = found
        return found

    def _contested(
        self, changed: Mapping[int, int], there: Sequence[int], group: Mapping[int, int]
    ) -> tuple[BrokerId, ...]:
        several = 0
        for place, topics in enumerate(there):
            if topics:
                first = (topics & -topics).bit_length() - 1
                mask = changed[first] if first in changed else self._masks[first]
                if topics != group[mask]:
                    several |= 1 << place
        if several not in self._named:  # few distinct sets occur, many times each
            self._named[several] = tuple(self._brokers[place] for place in bits(several))
        return self._named[several]
