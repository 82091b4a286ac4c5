"""Simulated broker failures: their effect on leaders, groups and loads (early detection).

Promise  Leaders are elected as the KRaft controller does with unclean election off: a live leader
         stays; else the first live replica in sync; else the first live eligible leader replica;
         else the partition is offline. A partition's load moves to its new leader. The result of a
         failure equals a full audit of the cluster after it. Ranked by partitions unwritable with
         acks=all, then offline partitions, then peak over mean of the remaining brokers, then ids.
Cost     Per failure O(partitions of changed topics) in arrays and O(changed topics · leaders ·
         topics / word) for the pairs of topics (groups split and merge, topics do not). The least
         possible peak is a maximum flow, computed for the worst failures only.
Paper    Burato proposes it and calls it unfeasible on large clusters (section 3.5.4).

>>> from trimtab.audit.layout import layout_of
>>> from trimtab.audit.scenarios import scenarios
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
from math import fsum

import numpy as np
from numpy.typing import NDArray

from trimtab.audit.groups import max_groups, spans
from trimtab.audit.known_loads import (
    ROUNDING,
    WANTED_AFTER,
    PartitionWeights,
    placement_bound,
    topic_excess,
    weights_of,
)
from trimtab.audit.layout import (
    NO_PLACE,
    Floats,
    Ints,
    Layout,
    Leadership,
    counted,
    padded,
    starts,
    summed,
)
from trimtab.audit.loads import TopicLoad, least, rates_by_place, ratio, shares
from trimtab.audit.overlap_changes import OverlapChanges
from trimtab.audit.scenarios import Scenario
from trimtab.audit.unevenness import spreads
from trimtab.model.cluster import NO_LEADER, BrokerId, ClusterSnapshot, Replicas, TopicPartition

WORST = 10
"""The least possible peak is computed for this many of the worst failures."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """The effect of a failure of some brokers; counts exclude what is already so before it.

    Attributes:
        dead: The brokers that fail.
        what: The name of the failure domain, such as "rack a"; empty for single brokers.
        moved: Partitions that get another leader.
        offline_partitions: Partitions that lose their leader and get no new one.
        offline_topics: Topics that lose their last leader.
        below_min_insync: Partitions that keep a leader but start to refuse writes with acks=all.
        new_pairs: Pairs of topics that begin to overlap in part.
        vanished_pairs: Pairs of topics that cease to overlap in part.
        contested: Brokers that lead topics of several max groups afterwards.
        newly_uneven: Topics whose leaders were even before the failure and are not after it.
        newly_skewed: Topics whose fullest leader exceeds `wanted` times the lowest possible load
            after the failure but not before it.
        skewed_share: The share of all load that belongs to these topics.
        peak_to_mean: Highest load of the remaining brokers over their mean; every partition keeps
            its load.
        peak_broker: The broker with the highest load; None if no load is left.
        bound_to_mean: The lowest possible value of `peak_to_mean` for any order of replicas;
            live leaders stay.
        default_to_mean: The same peak if records go to partitions in turn.
        node_to_mean: The same peak if records go to leaders in turn.
        doubled_to_mean: Without rates: the highest peak over mean caused by doubling one topic.
        least_to_mean: The least possible peak over mean; only for the worst failures.
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
    newly_skewed: int
    skewed_share: float
    peak_to_mean: float
    peak_broker: BrokerId | None
    bound_to_mean: float
    default_to_mean: float
    node_to_mean: float
    doubled_to_mean: float | None = None
    least_to_mean: float | None = None

    @property
    def unwritable(self) -> int:
        """Partitions that can no longer be written to with acks=all."""
        return self.offline_partitions + self.below_min_insync

    @property
    def excess(self) -> float:
        """The peak over its bound: how much another order of replicas could reduce it."""
        return ratio(self.peak_to_mean, self.bound_to_mean)

    @property
    def rank(self) -> tuple[int, int, float, float, tuple[BrokerId, ...]]:
        """The sort key: the worst failure first."""
        doubled = self.default_to_mean if self.doubled_to_mean is None else self.doubled_to_mean
        peaks = -round(self.peak_to_mean, 9), -round(doubled, 9)
        return -self.unwritable, -self.offline_partitions, *peaks, self.dead


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """Full details of a failure: changed leaders (−1: none), offline partitions, uneven topics."""

    leaders: Mapping[TopicPartition, BrokerId]
    offline_partitions: tuple[TopicPartition, ...]
    offline_topics: tuple[str, ...]
    newly_uneven: tuple[str, ...]
    newly_skewed: tuple[str, ...]


def after(snapshot: ClusterSnapshot, dead: Collection[int]) -> ClusterSnapshot:
    """The cluster after some brokers failed: they lead nothing and are in no in-sync set."""
    gone = frozenset(dead)
    return replace(
        snapshot,
        brokers=tuple(broker for broker in snapshot.brokers if broker.id not in gone),
        partitions=tuple(_without(p, gone) for p in snapshot.partitions),
    )


def led_by_brokers_up(
    snapshot: ClusterSnapshot, down: Collection[int]
) -> tuple[ClusterSnapshot, int]:
    """The cluster after new leaders were elected for brokers that are down, and how many changed.

    A snapshot may be taken before the controller has elected new leaders, and a file may mark a
    broker as down without changing anything else.
    """
    gone = frozenset(down)
    late = sum(p.leader in gone for p in snapshot.partitions) if gone else 0
    if not late:
        return snapshot, 0
    return replace(snapshot, partitions=tuple(_without(p, gone) for p in snapshot.partitions)), late


def _without(p: Replicas, dead: frozenset[int]) -> Replicas:
    isr = tuple(broker for broker in p.isr if broker not in dead)
    if p.leader not in dead:
        return replace(p, isr=isr)
    candidates = [broker for broker in p.replicas if broker in isr]
    if not isr:
        candidates = [broker for broker in p.replicas if broker in p.elr and broker not in dead]
    return replace(p, leader=candidates[0] if candidates else NO_LEADER, isr=isr)


def ranked(
    scan: FaultScan, sets: Sequence[Scenario], *, progress: Progress | None = None
) -> tuple[Fault, ...]:
    """All failures, the worst first; the least possible peak is computed for the worst ones."""
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
    """The topics whose leaders change, with their new counts."""

    moved: Ints  # partitions
    leader: Ints  # their new leaders
    topics: Ints
    partitions: Ints  # all of these topics
    topic_of: Ints  # their topics, as positions in `topics`
    leader_of: Ints  # and their leaders
    led: Leadership  # its topics are positions in `topics`
    available: Ints


class FaultScan:
    """A layout prepared for many simulated failures; each recomputes only what changes."""

    def __init__(
        self,
        layout: Layout,
        rates: TopicLoad | None = None,
        *,
        weights: PartitionWeights | None = None,
        min_insync: Mapping[str, int] | None = None,
        down: Collection[int] = (),
        wanted: float = WANTED_AFTER,
    ) -> None:
        """Computes once what all failures have in common.

        Args:
            layout: The cluster before the failure.
            rates: Rates of topics; without them every topic counts 1.
            weights: The load of each partition; by default taken from `rates`.
            min_insync: min.insync.replicas of each topic; 1 for a topic not named.
            down: Brokers that are already down; they do not count in any mean.
            wanted: A topic above this ratio is skewed.
        """
        self._layout = layout
        size = len(layout.brokers)
        self._place = {broker: at for at, broker in enumerate(layout.brokers)}
        self._leader = layout.leader_of.copy()  # each failure changes it temporarily
        self._led_by = _by_broker(layout.leader_of, size)
        replicas = padded(layout, "replicas")
        isr = padded(layout, "isr")
        self._willing = _kept(replicas, isr)
        eligible = padded(layout, "elr")
        self._eligible = _kept(replicas, eligible) if eligible.size else None
        self._synced = layout.synced
        self._synced_by = _rows_by_broker(isr, size)
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
        online = layout.leader_of >= 0
        self._weight = (weights or weights_of(layout, rates)).weight
        self._carried = summed(layout.leader_of[online], self._weight[online], size)
        self._carried_total = float(self._weight[online].sum())
        known = np.where(online, self._weight, 0.0)
        self._topic_load = summed(layout.topic_of, known, len(layout.topics))
        order = np.argsort(-self._weight, kind="stable")
        self._falling = order[online[order]]  # partitions with a leader, heaviest first
        self._falling_weight = self._weight[self._falling]
        self._wanted = wanted * (1 + ROUNDING)
        of_topics = layout.topic_of, layout.leader_of, layout.available
        self._skewed = topic_excess(of_topics, layout.led, self._weight, size) > self._wanted
        self._overlaps = OverlapChanges(layout)

    def fault(self, scenario: Scenario) -> Fault:
        """Simulates the failure of these brokers."""
        layout, dead = self._layout, self._places(scenario.dead)
        change = self._change(dead)
        lost = change.leader < 0
        topics_lost = (change.available == 0) & (layout.available[change.topics] > 0)
        loads = self._loads(change, dead)
        up = len(layout.brokers) - len(self._down.union(dead))
        total = self._total - float(self._rate[change.topics[topics_lost]].sum())
        mean = total / up if up else 0.0
        new, vanished, contested = self._overlaps.after(change.topics, change.led, dead)
        peak, broker, bound = self._peak(change, dead, up)
        uneven, skewed = self._newly(change)
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
            newly_skewed=int(skewed.sum()),
            skewed_share=self._share_of(change.topics[skewed]),
            peak_to_mean=peak,
            peak_broker=broker,
            bound_to_mean=bound,
            default_to_mean=ratio(float(loads[0].max(initial=0.0)), mean),
            node_to_mean=ratio(float(loads[1].max(initial=0.0)), mean),
            doubled_to_mean=self._doubled(change, loads[0], total, up) if self._doubles else None,
        )

    def details(self, dead: Collection[int]) -> Details:
        """The same failure with the names of the partitions and topics concerned."""
        layout = self._layout
        change = self._change(self._places(dead))
        leaders = {
            layout.partitions[at].name: layout.brokers[to] if to >= 0 else NO_LEADER
            for at, to in sorted(zip(change.moved.tolist(), change.leader.tolist(), strict=True))
        }
        lost = (change.available == 0) & (layout.available[change.topics] > 0)
        uneven, skewed = self._newly(change)
        return Details(
            leaders=leaders,
            offline_partitions=tuple(name for name, to in leaders.items() if to == NO_LEADER),
            offline_topics=tuple(layout.topics[t] for t in change.topics[lost].tolist()),
            newly_uneven=tuple(layout.topics[t] for t in change.topics[uneven].tolist()),
            newly_skewed=tuple(layout.topics[t] for t in change.topics[skewed].tolist()),
        )

    def least_to_mean(self, dead: Collection[int]) -> float:
        """The least possible peak over mean after these brokers failed."""
        layout = self.layout_after(dead)
        gone = self._down.union(self._places(dead))
        up = len(layout.brokers) - len(gone)
        total = fsum(self._rate[layout.available > 0].tolist())
        return least(layout, max_groups(layout), self._rate, total / up if up else 0.0).peak_to_mean

    def layout_after(self, dead: Collection[int]) -> Layout:
        """The whole layout after these brokers failed."""
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
            leaderless = np.flatnonzero(leader < 0)
            leader[leaderless] = _first_alive(self._eligible[moved[leaderless]], gone)
        topics = np.unique(layout.topic_of[moved])
        begin, end = layout.start[topics], layout.start[topics + 1]
        partitions = spans(begin, end)
        topic_of = np.repeat(np.arange(topics.size), end - begin)
        self._leader[moved] = leader
        of_topics = self._leader[partitions]
        self._leader[moved] = layout.leader_of[moved]
        led, available = counted(
            topic_of, of_topics, topics=topics.size, brokers=len(layout.brokers)
        )
        return _Change(
            moved=moved,
            leader=leader,
            topics=topics,
            partitions=partitions,
            topic_of=topic_of,
            leader_of=of_topics,
            led=led,
            available=available,
        )

    def _peak(
        self, change: _Change, dead: Sequence[int], up: int
    ) -> tuple[float, BrokerId | None, float]:
        """Peak over mean of the remaining brokers, the broker with the peak, and the bound."""
        if not up:
            return 1.0, None, 1.0
        size = self._carried.size
        lost = change.moved[change.leader < 0]
        kept = change.leader >= 0
        load = self._carried + summed(change.leader[kept], self._weight[change.moved[kept]], size)
        load[dead] = 0.0
        total, falling = self._carried_total, self._falling_weight
        if lost.size:
            there = np.ones(self._weight.size, dtype=bool)
            there[lost] = False
            falling = falling[there[self._falling]]
            total = float(falling.sum())
        left = np.ones(size, dtype=bool)
        left[[*self._down, *dead]] = False
        stays = self._carried[left]  # live leaders stay where they are
        heaviest = float(self._weight[change.moved[kept]].max(initial=0.0))
        bound = max(
            placement_bound(falling, up, total),
            float(stays.max()),
            float(stays.min()) + heaviest,
        )
        at = int(np.argmax(load))
        mean, broker = total / up, self._layout.brokers[at] if load[at] > 0 else None
        return ratio(float(load[at]), mean), broker, ratio(bound, mean)

    def _share_of(self, topics: Ints) -> float:
        total = self._carried_total
        return float(self._topic_load[topics].sum()) / total if total > 0 else 0.0

    def _newly(self, change: _Change) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which of the changed topics become uneven by count, and skewed by load."""
        uneven = (spreads(change.led.count, change.led.start) > 0) & ~self._uneven[change.topics]
        skewed = topic_excess(
            (change.topic_of, change.leader_of, change.available),
            change.led,
            self._weight[change.partitions],
            len(self._layout.brokers),
        )
        return uneven, (skewed > self._wanted) & ~self._skewed[change.topics]

    def _loads(self, change: _Change, dead: Sequence[int]) -> tuple[Floats, Floats]:
        """Broker loads after the failure, under Default and under Node."""
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
        """Partitions that fall below min.insync.replicas and still have a leader."""
        fewer = np.concatenate([self._synced_by[b] for b in dead] or [np.empty(0, dtype=np.int64)])
        touched, lost = np.unique(fewer, return_counts=True)
        self._leader[change.moved] = change.leader
        online = self._leader[touched] >= 0
        self._leader[change.moved] = self._layout.leader_of[change.moved]
        was, needs = self._synced[touched], self._needs[touched]
        return int((online & (was >= needs) & (was - lost < needs)).sum())


def _first_alive(ordered: Ints, dead: Collection[int]) -> Ints:
    """The first broker of each row that is not in `dead`; `NO_PLACE` if there is none."""
    if not ordered.size:
        return np.full(len(ordered), NO_PLACE, dtype=np.int64)
    alive = ordered >= 0
    for place in dead:
        alive &= ordered != place
    first = alive.argmax(axis=1)
    rows = np.arange(len(ordered))
    return np.where(alive[rows, first], ordered[rows, first], NO_PLACE)


def _rows_by_broker(isr: Ints, size: int) -> list[Ints]:
    """For each broker, the partitions in whose in-sync replicas it is."""
    rows, _ = np.nonzero(isr >= 0)
    held = isr[isr >= 0]
    order = np.argsort(held, kind="stable")
    edges = starts(held[order], size)
    return [rows[order[edges[b] : edges[b + 1]]] for b in range(size)]


def _kept(ordered: Ints, members: Ints) -> Ints:
    """The brokers of each row that also appear in the same row of `members`."""
    among: NDArray[np.bool_] = (ordered[:, :, None] == members[:, None, :]).any(axis=2)
    return np.where(among, ordered, NO_PLACE)


def _by_broker(leader_of: Ints, size: int) -> list[Ints]:
    """The partitions that each broker leads."""
    order = np.argsort(leader_of, kind="stable")
    edges = starts(leader_of[order], size)
    return [order[edges[b] : edges[b + 1]] for b in range(size)]
