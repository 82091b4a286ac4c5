"""Leaders that are spread unevenly over the brokers of a topic, of a group or of the cluster.

Why      If records go to partitions in turn, a broker that leads twice as many partitions of a
         topic receives twice as many of its records.
Promise  Exact: counts are whole numbers, ratios are fractions of them. A *note* is a topic that is
         as even as its number of partitions allows; a *warning* is one that could be more even.
Cost     O(partitions), in arrays.
Paper    Burato asks for "a simple check" without a formula (section 3.5.4); the measures are ours.

>>> from trimtab.audit.layout import layout_of
>>> from trimtab.testing.placements import led
>>> (found,) = uneven_topics(layout_of(led({"B": {1: 1, 2: 1, 3: 2}})))
>>> found.spread, found.peak_to_mean, found.best_possible_spread, found.level, found.fullest
(1, Fraction(3, 2), 1, <Level.NOTE: 'note'>, (3,))
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from trimtab.audit.groups import Groups, spans
from trimtab.audit.layout import Ints, Layout
from trimtab.model.cluster import BrokerId, ClusterSnapshot


class Level(StrEnum):
    """The severity of a finding."""

    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Level).index(self)


class UnevenTopic(NamedTuple):
    """A topic whose leaders have different numbers of its partitions."""

    topic: str
    brokers: tuple[BrokerId, ...]
    counts: tuple[int, ...]

    @property
    def spread(self) -> int:
        """The highest number of partitions of a leader minus the lowest."""
        return max(self.counts) - min(self.counts)

    @property
    def peak_to_mean(self) -> Fraction:
        """The fullest leader's partitions over the mean of all leaders."""
        return Fraction(max(self.counts) * len(self.counts), sum(self.counts))

    @property
    def best_possible_spread(self) -> int:
        """The lowest spread that this number of partitions allows on these leaders."""
        return int(sum(self.counts) % len(self.counts) > 0)

    @property
    def level(self) -> Level:
        """A note if only another number of partitions would help, else a warning."""
        return Level.NOTE if self.spread <= self.best_possible_spread else Level.WARNING

    @property
    def fullest(self) -> tuple[BrokerId, ...]:
        """The leaders with the most partitions."""
        most = max(self.counts)
        return tuple(b for b, c in zip(self.brokers, self.counts, strict=True) if c == most)


def spreads(count: Ints, start: Ints) -> Ints:
    """Maximum minus minimum of each part of `count`; 0 for an empty part."""
    found = np.zeros(len(start) - 1, dtype=np.int64)
    filled = np.flatnonzero(np.diff(start))
    if filled.size:
        at = start[filled]
        found[filled] = np.maximum.reduceat(count, at) - np.minimum.reduceat(count, at)
    return found


def uneven_topics(layout: Layout) -> tuple[UnevenTopic, ...]:
    """The topics with a spread above 0, by name."""
    uneven = np.flatnonzero(spreads(layout.led.count, layout.led.start))
    begin, end = layout.led.start[uneven], layout.led.start[uneven + 1]
    rows = spans(begin, end)
    ids = np.asarray(layout.brokers, dtype=object)[layout.led.broker[rows]].tolist()
    counts = layout.led.count[rows].tolist()
    edges = np.concatenate(([0], np.cumsum(end - begin))).tolist()
    return tuple(
        UnevenTopic(
            layout.topics[topic],
            tuple(ids[edges[at] : edges[at + 1]]),
            tuple(counts[edges[at] : edges[at + 1]]),
        )
        for at, topic in enumerate(uneven.tolist())
    )


def stacked_topics(layout: Layout, brokers: int) -> tuple[str, ...]:
    """Topics with several partitions on one broker while one of the `brokers` leads none."""
    leaders = layout.leaders
    stacked = (layout.available > leaders) & (leaders < brokers) & (leaders > 0)
    return tuple(layout.topics[topic] for topic in np.flatnonzero(stacked).tolist())


def group_counts(layout: Layout, groups: Groups) -> tuple[tuple[int, ...], ...]:
    """How many partitions of a group's topics each of its brokers leads, in the brokers' order."""
    of_row = groups.of_topic[layout.led.topic]
    within = np.arange(of_row.size) - layout.led.start[layout.led.topic]
    at = groups.start[of_row] + within  # topics of a group have the same brokers in one order
    total = np.zeros(groups.led.size, dtype=np.int64)
    np.add.at(total, at, layout.led.count)
    sums, edges = total.tolist(), groups.start.tolist()
    return tuple(tuple(sums[edges[g] : edges[g + 1]]) for g in range(len(groups.masks)))


def leaders_per_broker(layout: Layout) -> dict[BrokerId, int]:
    """How many partitions each broker leads; 0 for an idle broker."""
    online = layout.leader_of[layout.leader_of >= 0]
    counts = np.bincount(online, minlength=len(layout.brokers)).tolist()
    return dict(zip(layout.brokers, counts, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """Partitions that are not led by their preferred (first) replica.

    `of` counts the partitions that a broker should lead, `away` those that it does not lead.
    """

    of: int
    away: int
    by_broker: Mapping[BrokerId, tuple[int, int]]

    @property
    def share(self) -> float:
        """The share of all partitions that are not led by their preferred replica."""
        return self.away / self.of if self.of else 0.0

    def share_of(self, broker: BrokerId) -> float:
        """The share of the partitions preferring this broker that it does not lead."""
        away, of = self.by_broker.get(broker, (0, 0))
        return away / of if of else 0.0


def drift(layout: Layout) -> Drift:
    """Preferred-leader drift, in total and per broker."""
    listed = layout.preferred >= 0
    preferred = layout.preferred[listed]
    away = preferred[preferred != layout.leader_of[listed]]
    size = len(layout.brokers)
    counts = zip(
        np.bincount(away, minlength=size).tolist(),
        np.bincount(preferred, minlength=size).tolist(),
        strict=True,
    )
    return Drift(
        of=preferred.size,
        away=away.size,
        by_broker={
            broker: pair for broker, pair in zip(layout.brokers, counts, strict=True) if pair[1]
        },
    )


def out_of_sync(layout: Layout) -> tuple[int, tuple[BrokerId, ...]]:
    """Partitions with a replica out of sync, and the brokers without any replica in sync."""
    behind = int((layout.synced < layout.held).sum())
    if not behind:
        return 0, ()
    held: set[BrokerId] = set()
    synced: set[BrokerId] = set()
    for p in layout.partitions:
        held.update(p.replicas)
        synced.update(p.isr)
    return behind, tuple(sorted(held - synced))


def down_brokers(snapshot: ClusterSnapshot) -> frozenset[BrokerId]:
    """Brokers that the snapshot lists as down, or that seem to be down if it lists none."""
    known = {broker.id: broker.alive for broker in snapshot.brokers if broker.alive is not None}
    stated = {broker for broker, alive in known.items() if not alive}
    return frozenset(stated | {b for b in seem_down(snapshot) if b not in known})


def seem_down(snapshot: ClusterSnapshot) -> frozenset[BrokerId]:
    """Brokers that hold replicas and seem to be down, judged by placements alone.

    Such a broker leads nothing and is in sync for no partition that has a leader. Partitions
    without a leader are ignored: Kafka keeps the last in-sync replica in the list when its broker
    fails. A broker without replicas may be new.
    """
    held = {broker for p in snapshot.partitions for broker in p.replicas}
    there = {broker for p in snapshot.partitions if not p.offline for broker in (p.leader, *p.isr)}
    return frozenset(held - there)


def below_min_insync(layout: Layout, needs: Mapping[str, int]) -> int:
    """Partitions with a leader and fewer replicas in sync than a write with acks=all needs.

    `needs` is min.insync.replicas by topic; 1 for a topic not named.
    """
    least = np.fromiter((needs.get(topic, 1) for topic in layout.topics), np.int64)
    return int(((layout.leader_of >= 0) & (layout.synced < least[layout.topic_of])).sum())
