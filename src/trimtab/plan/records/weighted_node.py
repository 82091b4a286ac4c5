"""Weighted node: brokers by external weights, then round robin over each broker's partitions.

Promise  Smooth weighted round robin per topic: each choice adds to every broker its share of the
         weights, takes the broker with the most (lowest id among equals) and subtracts 1 from it.
         With constant leaders and weights w, a broker gets fewer than n·w/Σw + 1 of n choices and
         at least n·w/Σw − (1/2 + 1/3 + … + 1/m), m brokers, from a fixed start (random: ± 1).
         Weights are read at each choice; only ratios matter; weight 0 gets nothing. If all are 0
         or none is known, all are equal; a broker without a valid weight gets the mean.
Cost     O(leaders of the topic) per choice.
Paper    Ours, for the idea of Burato's section 7.7. Smooth weighted round robin as in nginx.

>>> from trimtab.plan.records.leaders import LeaderSnapshot
>>> weighted = WeightedNode(RoutingOptions(start=0, weights=lambda: {1: 5, 2: 1, 3: 1}))
>>> seen = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3}})
>>> [weighted.partition("t", None, 100, seen) for _ in range(7)]
[0, 0, 1, 0, 2, 0, 0]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import add
from threading import Lock

from trimtab.plan.records.counters import WITHOUT_SIGN, Starts, per_topic
from trimtab.plan.records.leaders import LeaderSnapshot, TopicLeaders
from trimtab.plan.records.node import Rotations
from trimtab.plan.records.partitioner import RoutingOptions

ONE = 1 << 48
"""One choice as an integer. Shares are integers too, so equal weights have equal shares."""


def parts(brokers: Sequence[int], weights: Mapping[int, float]) -> tuple[tuple[int, int], ...]:
    """Each broker with a share above 0, and its share of one choice.

    >>> [(broker, part / ONE) for broker, part in parts([1, 2, 3, 4], {1: 3, 2: 0, 3: 1})]
    [(1, 0.5625), (3, 0.1875), (4, 0.25)]
    """
    known = {
        broker: weight
        for broker in brokers
        if (weight := weights.get(broker)) is not None and 0 <= weight < math.inf
    }
    largest = max(known.values(), default=0.0)
    if not largest:
        return tuple((broker, ONE // len(brokers)) for broker in brokers)
    scaled = {broker: weight / largest for broker, weight in known.items()}  # sums stay finite
    mean = math.fsum(scaled.values()) / len(scaled)
    of = {broker: scaled.get(broker, mean) for broker in brokers}
    total = math.fsum(of.values())
    found = ((broker, round(of[broker] / total * ONE)) for broker in brokers)
    return tuple((broker, part) for broker, part in found if part)


class _Topic:
    """The leaders of a topic, and the accumulated share of each broker."""

    __slots__ = (
        *("lock", "snapshot", "table", "count", "inside", "random"),
        *("leaders", "weights", "brokers", "parts", "given", "saved", "kept"),
    )

    def __init__(self, topic: str, starts: Starts) -> None:
        self.lock = Lock()
        self.snapshot: LeaderSnapshot | None = None
        self.table: TopicLeaders
        self.count = starts.of(topic)
        self.inside = Rotations(topic, starts)
        self.random = None if starts.fixed else starts.random(topic)
        self.leaders: tuple[int, ...] = ()
        self.weights: Mapping[int, float] = {}
        self.brokers: tuple[int, ...] = ()
        self.parts: tuple[int, ...] = ()
        self.given = 0
        self.saved: list[int] = []
        self.kept: dict[int, int] = {}

    def weigh(self, leaders: tuple[int, ...], weights: Mapping[int, float]) -> None:
        """Sets other leaders or weights, and keeps the accumulated shares."""
        self.kept.update(zip(self.brokers, self.saved, strict=True))
        self.leaders, self.weights = leaders, dict(weights)
        self.brokers, self.parts = zip(*parts(leaders, weights), strict=True)
        self.given = sum(self.parts)
        for broker in self.brokers:
            if broker not in self.kept:
                self.kept[broker] = self.random.randrange(ONE) if self.random else 0
        self.saved = [self.kept[broker] for broker in self.brokers]

    def turn(self) -> int:
        """The broker whose turn it is."""
        saved = self.saved = list(map(add, self.saved, self.parts))
        at = saved.index(max(saved))
        saved[at] -= self.given
        return self.brokers[at]


class WeightedNode:
    """Leaders by weight, then round robin inside the leader."""

    def __init__(self, options: RoutingOptions) -> None:
        starts = Starts(options)
        self.ignore_keys = options.ignore_keys
        self._weights = options.weights
        self._topics = per_topic(lambda topic: _Topic(topic, starts))

    def partition(
        self, topic: str, key: bytes | None, _size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition of the key, or the next partition of the broker whose turn it is."""
        if key is not None and not self.ignore_keys:
            return snapshot.topic(topic).home(key)
        weights = self._weights()
        state = self._topics[snapshot.cluster][topic]
        with state.lock:
            if state.snapshot is not snapshot:
                state.table = snapshot.topic(topic)
                state.snapshot = snapshot
            table = state.table
            if not table.brokers:
                count = state.count
                state.count = (count + 1) & WITHOUT_SIGN
                return table.all[count % len(table.all)]
            if state.leaders != table.brokers or state.weights != weights:
                state.weigh(table.brokers, weights)
            return state.inside.next(state.turn(), table)

    def closed(self, topic: str, partition: int, /) -> None:
        """Does nothing: the choice does not depend on batches."""
