"""Early detection: what the death of brokers would do to leaders, groups and loads.

Why      A topology that is even today may be one failure away from an outage or from a broker with
         twice the load. It is cheaper to know that before.
Promise  The rule is that of the KRaft controller with unclean election off: a leader that lives
         stays; else the first replica in order that lives and is in sync leads; with nobody in sync
         the first eligible one that lives; else the partition is offline. A partition that is
         offline already stays so. Everything said of a failure equals what the whole audit says of
         the cluster after it. Ranked by partitions that go offline, then by peak over mean under
         Default; then by the brokers.
Cost     Per failure O(partitions of the topics whose leaders change), in arrays, and O(topics of
         those · leaders · topics / word) for the pairs. The least possible peak is a maximum flow:
         only for the worst ones.
Paper    Burato proposes it and calls it unfeasible on large clusters (section 3.5.4).

Overlaps are counted in pairs of topics, which share some of their leaders and not all: a failure
splits and merges groups, topics stay.

>>> from trimtab.measure.topology.layout import layout_of
>>> from trimtab.measure.topology.scenarios import scenarios
>>> from trimtab.testing.placements import placement
>>> crossing = layout_of(placement({"A": [[1, 3], [2, 4]], "B": [[3, 1], [4, 2]]}))
>>> scan = FaultScan(crossing)
>>> one = scan.fault(scenarios([1]).kept[0])
>>> one.new_pairs, one.contested, scan.details([1]).leaders
(1, (3,), {TopicPartition(topic='A', partition=0): 3})
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from math import fsum
from operator import attrgetter, or_

import numpy as np
from numpy.typing import NDArray

from trimtab.measure.topology.groups import as_bits, bits, max_groups, spans, topic_masks
from trimtab.measure.topology.layout import (
    NOBODY,
    Floats,
    Ints,
    Layout,
    Led,
    counted,
    starts,
    summed,
)
from trimtab.measure.topology.loads import TopicRates, least, rates_by_place, ratio, shares
from trimtab.measure.topology.scenarios import Scenario
from trimtab.measure.topology.unevenness import spreads
from trimtab.model.cluster import NO_LEADER, BrokerId, ClusterSnapshot, Replicas, TopicPartition

WORST = 10
"""For how many of the worst failures the least possible peak is computed."""

_MOST_KEPT_BITS = 1 << 30

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What the death of some brokers does; counts are of what is not so already.

    Attributes:
        dead: The brokers.
        what: What they are called as a whole, as "rack a"; empty for just brokers.
        moved: Partitions that get another leader.
        offline_partitions: Partitions that lose their leader and get none.
        offline_topics: Topics that lose their last leader.
        below_min_insync: Partitions with a leader that acks=all can no longer be written to.
        new_pairs: Pairs of topics that begin to overlap in part.
        vanished_pairs: Pairs that end to.
        contested: Brokers on which several max groups meet afterwards.
        newly_uneven: Topics whose leaders were even and no longer are.
        default_to_mean: Peak over mean of the brokers left, records dealt to partitions.
        node_to_mean: The same, records dealt to leaders.
        doubled_to_mean: Without rates: the highest peak over mean that doubling a topic makes.
        least_to_mean: The least possible; only for the worst failures.
    """

    dead: tuple[BrokerId, ...]
    what: str = ""
    moved: int
    offline_partitions: int
    offline_topics: int
    below_min_insync: int
    new_pairs: int
    vanished_pairs: int
    contested: tuple[BrokerId, ...]
    newly_uneven: int
    default_to_mean: float
    node_to_mean: float
    doubled_to_mean: float | None = None
    least_to_mean: float | None = None

    @property
    def rank(self) -> tuple[int, float, tuple[BrokerId, ...]]:
        """Sorts the worst first."""
        peak = self.default_to_mean if self.doubled_to_mean is None else self.doubled_to_mean
        return -self.offline_partitions, -round(peak, 9), self.dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """A failure in full: leaders that change (−1: none), what goes offline, what gets uneven."""

    leaders: Mapping[TopicPartition, BrokerId]
    offline_partitions: tuple[TopicPartition, ...]
    offline_topics: tuple[str, ...]
    newly_uneven: tuple[str, ...]


def after(snapshot: ClusterSnapshot, dead: Collection[int]) -> ClusterSnapshot:
    """The cluster after some brokers died: they lead nothing and are in no in-sync set."""
    gone = frozenset(dead)
    return replace(
        snapshot,
        brokers=tuple(broker for broker in snapshot.brokers if broker.id not in gone),
        partitions=tuple(_without(p, gone) for p in snapshot.partitions),
    )


def _without(p: Replicas, dead: frozenset[int]) -> Replicas:
    isr = tuple(broker for broker in p.isr if broker not in dead)
    if p.leader not in dead:
        return replace(p, isr=isr)
    willing = [broker for broker in p.replicas if broker in isr]
    if not isr:
        willing = [broker for broker in p.replicas if broker in p.elr and broker not in dead]
    return replace(p, leader=willing[0] if willing else NO_LEADER, isr=isr)


def ranked(
    scan: FaultScan, sets: Sequence[Scenario], *, progress: Progress | None = None
) -> tuple[Fault, ...]:
    """All failures, the worst first; the worst with the least possible peak."""
    found = []
    for done, scenario in enumerate(sets):
        found.append(scan.fault(scenario))
        if progress is not None:
            progress(done + 1, len(sets))
    found.sort(key=lambda fault: fault.rank)
    worst = [replace(f, least_to_mean=scan.least_to_mean(f.dead)) for f in found[:WORST]]
    return (*worst, *found[WORST:])


@dataclass(slots=True)
class _Change:
    """The topics whose leaders change, counted anew."""

    moved: Ints  # partitions
    leader: Ints  # their new leaders
    topics: Ints
    led: Led  # its topics are positions in `topics`
    available: Ints


class FaultScan:
    """A layout made ready for many failures; each looks only at what changes."""

    def __init__(
        self,
        layout: Layout,
        rates: TopicRates | None = None,
        *,
        min_insync: Mapping[str, int] | None = None,
        down: Collection[int] = (),
    ) -> None:
        """Counts once what stays.

        Args:
            layout: The cluster as it is.
            rates: Of topics; without them every topic counts 1.
            min_insync: In-sync replicas that a write with acks=all needs, by topic; else 1.
            down: Brokers that are down already, which are in no mean.
        """
        self._layout = layout
        size = len(layout.brokers)
        self._place = {broker: at for at, broker in enumerate(layout.brokers)}
        self._leader = layout.leader_of.copy()  # changed for a moment by each failure
        self._led_by = _by_broker(layout.leader_of, size)
        replicas = _padded(layout, "replicas")
        isr = _padded(layout, "isr")
        self._willing = _kept(replicas, isr)
        eligible = _padded(layout, "elr")
        self._eligible = _kept(replicas, eligible) if eligible.size else None
        self._synced = layout.synced
        rows, _ = np.nonzero(isr >= 0)
        held = isr[isr >= 0]
        order = np.argsort(held, kind="stable")
        edges = starts(held[order], size)
        self._synced_by = [rows[order[edges[b] : edges[b + 1]]] for b in range(size)]
        needs = (min_insync or {}).get
        self._needs = np.fromiter((needs(t, 1) for t in layout.topics), np.int64)[layout.topic_of]
        self._doubles = rates is None
        self._rate, _ = rates_by_place(layout, rates)
        self._share = shares(layout)
        self._sent = self._rate[layout.led.topic] * self._share
        self._by_node = (self._rate / np.maximum(layout.leaders, 1))[layout.led.topic]
        self._default = summed(layout.led.broker, self._sent, size)
        self._node = summed(layout.led.broker, self._by_node, size)
        self._total = fsum(self._rate[layout.available > 0].tolist())
        self._uneven = spreads(layout.led.count, layout.led.start) > 0
        self._down = {self._place[b] for b in map(BrokerId, down) if b in self._place}
        self._overlaps = _Overlaps(layout)

    def fault(self, scenario: Scenario) -> Fault:
        """What the death of these brokers does."""
        layout, dead = self._layout, self._places(scenario.dead)
        change = self._change(dead)
        lost = change.leader < 0
        topics_lost = (change.available == 0) & (layout.available[change.topics] > 0)
        loads = self._loads(change, dead)
        up = len(layout.brokers) - len(self._down.union(dead))
        total = self._total - float(self._rate[change.topics[topics_lost]].sum())
        mean = total / up if up else 0.0
        new, vanished, contested = self._overlaps.after(change, dead)
        uneven = (spreads(change.led.count, change.led.start) > 0) & ~self._uneven[change.topics]
        return Fault(
            dead=scenario.dead,
            what=scenario.what,
            moved=int(change.moved.size - lost.sum()),
            offline_partitions=int(lost.sum()),
            offline_topics=int(topics_lost.sum()),
            below_min_insync=self._below(dead, change),
            new_pairs=new,
            vanished_pairs=vanished,
            contested=contested,
            newly_uneven=int(uneven.sum()),
            default_to_mean=ratio(float(loads[0].max(initial=0.0)), mean),
            node_to_mean=ratio(float(loads[1].max(initial=0.0)), mean),
            doubled_to_mean=self._doubled(change, loads[0], total, up) if self._doubles else None,
        )

    def details(self, dead: Collection[int]) -> Details:
        """The same failure in full, by name."""
        layout = self._layout
        change = self._change(self._places(dead))
        leaders = {
            layout.partitions[at].name: layout.brokers[to] if to >= 0 else NO_LEADER
            for at, to in sorted(zip(change.moved.tolist(), change.leader.tolist(), strict=True))
        }
        lost = (change.available == 0) & (layout.available[change.topics] > 0)
        uneven = (spreads(change.led.count, change.led.start) > 0) & ~self._uneven[change.topics]
        return Details(
            leaders=leaders,
            offline_partitions=tuple(name for name, to in leaders.items() if to == NO_LEADER),
            offline_topics=tuple(layout.topics[t] for t in change.topics[lost].tolist()),
            newly_uneven=tuple(layout.topics[t] for t in change.topics[uneven].tolist()),
        )

    def least_to_mean(self, dead: Collection[int]) -> float:
        """The least possible peak over mean after these brokers died."""
        layout = self.layout_after(dead)
        gone = self._down.union(self._places(dead))
        up = len(layout.brokers) - len(gone)
        total = fsum(self._rate[layout.available > 0].tolist())
        return least(layout, max_groups(layout), self._rate, total / up if up else 0.0).peak_to_mean

    def layout_after(self, dead: Collection[int]) -> Layout:
        """The whole layout after these brokers died."""
        layout = self._layout
        change = self._change(self._places(dead))
        leader_of = layout.leader_of.copy()
        leader_of[change.moved] = change.leader
        led, available = counted(
            layout.topic_of, leader_of, topics=len(layout.topics), brokers=len(layout.brokers)
        )
        return replace(layout, leader_of=leader_of, led=led, available=available)

    def _places(self, dead: Collection[int]) -> list[int]:
        return [self._place[b] for b in map(BrokerId, dead) if b in self._place]

    def _change(self, dead: Sequence[int]) -> _Change:
        """New leaders, by the controller's rule, and the counts of the topics concerned."""
        layout = self._layout
        moved = np.concatenate([self._led_by[b] for b in dead] or [np.empty(0, dtype=np.int64)])
        gone = self._down.union(dead)
        leader = _first_alive(self._willing[moved], gone)
        if self._eligible is not None and (leader < 0).any():
            nobody = np.flatnonzero(leader < 0)
            leader[nobody] = _first_alive(self._eligible[moved[nobody]], gone)
        topics = np.unique(layout.topic_of[moved])
        begin, end = layout.start[topics], layout.start[topics + 1]
        self._leader[moved] = leader
        of_topics = self._leader[spans(begin, end)]
        self._leader[moved] = layout.leader_of[moved]
        led, available = counted(
            np.repeat(np.arange(topics.size), end - begin),
            of_topics,
            topics=topics.size,
            brokers=len(layout.brokers),
        )
        return _Change(moved=moved, leader=leader, topics=topics, led=led, available=available)

    def _loads(self, change: _Change, dead: Sequence[int]) -> tuple[Floats, Floats]:
        """What brokers take afterwards, by Default and by Node."""
        old, led = self._layout.led, change.led
        rows = spans(old.start[change.topics], old.start[change.topics + 1])
        rate = self._rate[change.topics]
        sent = (rate / np.maximum(change.available, 1))[led.topic] * led.count
        by_node = (rate / np.maximum(np.diff(led.start), 1))[led.topic]
        found = []
        for before, was, now in (
            (self._default, self._sent, sent),
            (self._node, self._by_node, by_node),
        ):
            size = before.size
            load = before - summed(old.broker[rows], was[rows], size)
            load += summed(led.broker, now, size)
            load[dead] = 0.0
            found.append(load)
        return found[0], found[1]

    def _doubled(self, change: _Change, load: Floats, total: float, up: int) -> float:
        """The highest peak over mean if one topic had twice its rate, all rates being 1."""
        old, led = self._layout.led, change.led
        more = load[old.broker] + self._share
        more[spans(old.start[change.topics], old.start[change.topics + 1])] = 0.0
        share = led.count / np.maximum(change.available, 1)[led.topic]
        peak = max(
            float(load.max(initial=0.0)),
            float(more.max(initial=0.0)),
            float((load[led.broker] + share).max(initial=0.0)),
        )
        return ratio(peak, (total + 1) / up if up and total else 0.0)

    def _below(self, dead: Sequence[int], change: _Change) -> int:
        """Partitions that fall below what a write needs and still have a leader."""
        fewer = np.concatenate([self._synced_by[b] for b in dead] or [np.empty(0, dtype=np.int64)])
        touched, lost = np.unique(fewer, return_counts=True)
        self._leader[change.moved] = change.leader
        online = self._leader[touched] >= 0
        self._leader[change.moved] = self._layout.leader_of[change.moved]
        was, needs = self._synced[touched], self._needs[touched]
        return int((online & (was >= needs) & (was - lost < needs)).sum())


class _Overlaps:
    """Topics on brokers and brokers of topics as bits, to see which pairs come and go."""

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

    def after(self, change: _Change, dead: Sequence[int]) -> tuple[int, int, tuple[BrokerId, ...]]:
        """Pairs of topics that come and go, and the brokers where groups meet afterwards."""
        topics = change.topics.tolist()
        places, edges = change.led.broker.tolist(), change.led.start.tolist()
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
            np.zeros_like(change.topics), change.topics, rows=1, width=len(self._masks)
        )
        on = there.__getitem__
        new = vanished = 0  # twice their number
        for topic, begin, end in zip(topics, edges, edges[1:], strict=False):
            was = self._partners_of(self._masks[topic])
            now = reduce(or_, map(on, places[begin:end]), 0)
            if now:
                now ^= group[changed[topic]]  # itself and its like
            kept = was & now
            come, gone = now ^ kept, was ^ kept
            new += 2 * come.bit_count() - (come & both).bit_count()
            vanished += 2 * gone.bit_count() - (gone & both).bit_count()
        return new // 2, vanished // 2, self._contested(changed, there, group)

    def _partners_of(self, mask: int) -> int:
        """The topics that overlap in part with those of a group, as things are."""
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
        if several not in self._named:  # the same few sets again and again
            self._named[several] = tuple(self._brokers[place] for place in bits(several))
        return self._named[several]


def _first_alive(ordered: Ints, dead: Collection[int]) -> Ints:
    """Of each row the first broker that is none of the dead; `NOBODY` where there is none."""
    if not ordered.size:
        return np.full(len(ordered), NOBODY, dtype=np.int64)
    alive = ordered >= 0
    for place in dead:
        alive &= ordered != place
    first = alive.argmax(axis=1)
    rows = np.arange(len(ordered))
    return np.where(alive[rows, first], ordered[rows, first], NOBODY)


def _padded(layout: Layout, name: str) -> Ints:
    """The places of a list of every partition, in rows of one length, filled up with `NOBODY`."""
    lists = list(map(attrgetter(name), layout.partitions))
    sizes = np.fromiter(map(len, lists), np.int64, len(lists))
    flat = np.fromiter(chain.from_iterable(lists), np.int64, int(sizes.sum()))
    found = np.full((len(lists), int(sizes.max(initial=0))), NOBODY, dtype=np.int64)
    found[np.arange(found.shape[1]) < sizes[:, None]] = layout.places(flat)
    return found


def _kept(ordered: Ints, members: Ints) -> Ints:
    """The brokers of each row that are also in the same row of `members`."""
    among: NDArray[np.bool_] = (ordered[:, :, None] == members[:, None, :]).any(axis=2)
    return np.where(among, ordered, NOBODY)


def _by_broker(leader_of: Ints, size: int) -> list[Ints]:
    """The partitions that each broker leads."""
    order = np.argsort(leader_of, kind="stable")
    edges = starts(leader_of[order], size)
    return [order[edges[b] : edges[b + 1]] for b in range(size)]
