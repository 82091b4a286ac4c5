"""The load of each broker under each partitioner, computed from the rates of the topics.

Promise  Default splits a topic evenly over its partitions, Node evenly over its leaders; an SQF per
         producer equals Node; an SQF shared by all producers reaches the least possible peak. The
         mean is over all brokers that are up, including idle ones. Topics of unknown rate are left
         out and listed. Without any rate every topic counts 1, and topics are ranked by the peak
         that doubling them alone would cause.
Cost     O(rows) in arrays; the least possible peak a maximum flow.
Paper    Burato, sections 3.2 and 6; the formulas are stated in his examples.

>>> from trimtab.audit.groups import max_groups
>>> from trimtab.audit.layout import layout_of
>>> from trimtab.testing.placements import led
>>> seen = layout_of(led({"A": {1: 1, 2: 2}, "B": {2: 1, 3: 1}}))
>>> rates = TopicLoad(by_topic={"A": 6.0, "B": 6.0})
>>> found = broker_loads(seen, max_groups(seen), rates)
>>> found.default.by_broker, found.node.by_broker, found.least.peak
({1: 2.0, 2: 7.0, 3: 3.0}, {1: 3.0, 2: 6.0, 3: 3.0}, 4.0)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import fsum
from operator import attrgetter

import numpy as np

from trimtab.audit.groups import Groups
from trimtab.audit.layout import Floats, Layout, summed
from trimtab.audit.least_peak import least_peak_of
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition
from trimtab.model.load import Unit

MOST_DOUBLED = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLoad:
    """Rates of topics; the rate of a topic that is not in `by_topic` is unknown.

    Attributes:
        by_topic: The rate of each topic.
        unit: The unit of the rates; None if every topic counts 1.
        in_part: Topics with some unmeasured partitions; their rate is unknown too.
        by_partition: The rate of each measured partition.
        left_out: Rates of partitions that were not measured well enough to count.
    """

    by_topic: Mapping[str, float]
    unit: Unit | None = None
    in_part: tuple[str, ...] = ()
    by_partition: Mapping[TopicPartition, float] = field(default_factory=dict)
    left_out: Mapping[TopicPartition, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLoad:
    """The load of each broker under one policy, and the broker with the highest load."""

    by_broker: Mapping[BrokerId, float]
    peak: float
    broker: BrokerId | None
    peak_to_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastPeak:
    """The lowest peak that any partitioner can reach, and the topics and brokers that cause it."""

    peak: float
    peak_to_mean: float
    topics: tuple[str, ...]
    brokers: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DoubledTopic:
    """The peak under Default if this topic alone had twice its rate."""

    topic: str
    peak_to_mean: float
    broker: BrokerId


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoads:
    """The loads of all brokers.

    Attributes:
        unit: The unit of the loads; None if every topic counts 1.
        mean: The mean load of a broker.
        default: Each topic spread evenly over its partitions.
        node: Each topic spread evenly over its leaders; also for SQF instances that are not shared.
        least: The best that a shared SQF can do.
        measured: The measured load, if rates of partitions were measured.
        unmeasured: Topics of unknown rate, which are left out.
        in_part: The unmeasured topics that were measured in part.
        doubled: Without rates: the topics whose doubling causes the highest peaks.
    """

    unit: Unit | None
    mean: float
    default: PolicyLoad
    node: PolicyLoad
    least: LeastPeak
    measured: PolicyLoad | None
    unmeasured: tuple[str, ...]
    in_part: tuple[str, ...]
    doubled: tuple[DoubledTopic, ...]


def topic_rates(
    snapshot: ClusterSnapshot,
    loads: Mapping[TopicPartition, float],
    unit: Unit,
    *,
    left_out: Mapping[TopicPartition, float] | None = None,
) -> TopicLoad:
    """Rates by topic from rates by partition.

    The rate of a topic is known if the rates of all its partitions with a leader are known;
    partly measured topics are listed. The result does not depend on the order of the snapshot.
    """
    measured: dict[str, list[float]] = {}
    missing: set[str] = set()
    for p in snapshot.partitions:
        rate = loads.get(p.name)
        if rate is not None:
            measured.setdefault(p.topic, []).append(rate)
        elif not p.offline:
            missing.add(p.topic)
    return TopicLoad(
        by_topic={topic: fsum(measured[topic]) for topic in sorted(measured.keys() - missing)},
        unit=unit,
        in_part=tuple(sorted(measured.keys() & missing)),
        by_partition=loads,
        left_out=left_out or {},
    )


def broker_loads(
    layout: Layout,
    groups: Groups,
    rates: TopicLoad | None = None,
    *,
    down: Collection[int] = (),
) -> BrokerLoads:
    """The loads under every policy; brokers that are down do not count in the mean."""
    rate, unmeasured = rates_by_place(layout, rates)
    up = len(layout.brokers) - len(set(layout.brokers).intersection(down))
    share = shares(layout)
    by_node = rate / np.maximum(layout.leaders, 1)
    size = len(layout.brokers)
    default = summed(layout.led.broker, rate[layout.led.topic] * share, size)
    node = summed(layout.led.broker, by_node[layout.led.topic], size)
    online = layout.available > 0
    mean = float(rate[online].sum()) / up if up else 0.0
    in_part = frozenset(rates.in_part) if rates is not None else frozenset()
    return BrokerLoads(
        unit=rates.unit if rates is not None else None,
        mean=mean,
        default=_policy(layout, default, mean),
        node=_policy(layout, node, mean),
        least=least(layout, groups, rate, mean),
        measured=_measured(layout, rates, up) if rates is not None else None,
        unmeasured=unmeasured,
        in_part=tuple(topic for topic in layout.topics if topic in in_part),
        doubled=worst_doubled(layout, default, rate, share, mean) if rates is None else (),
    )


def rates_by_place(layout: Layout, rates: TopicLoad | None) -> tuple[Floats, tuple[str, ...]]:
    """The rate of each topic (0 if unknown), and the topics of unknown rate."""
    if rates is None:
        return np.ones(len(layout.topics)), ()
    known = rates.by_topic
    unknown = tuple(topic for topic in layout.topics if topic not in known)
    found = (known.get(topic, 0.0) for topic in layout.topics)
    return np.fromiter(found, np.float64, len(layout.topics)), unknown


def shares(layout: Layout) -> Floats:
    """For every row, the share of the topic's partitions that the broker leads."""
    return layout.led.count / np.maximum(layout.available, 1)[layout.led.topic]


def sent_by_groups(layout: Layout, groups: Groups, rate: Floats) -> Floats:
    """What each group sends to each of its brokers under Default, in the order of `groups.led`."""
    of_row = groups.of_topic[layout.led.topic]
    at = groups.start[of_row] + np.arange(of_row.size) - layout.led.start[layout.led.topic]
    sent = rate[layout.led.topic] * shares(layout)
    return summed(at, sent, groups.led.size)


def ratio(peak: float, mean: float) -> float:
    """Peak over mean; 1 where there is no load at all."""
    return peak / mean if mean > 0 else 1.0


def _policy(layout: Layout, load: Floats, mean: float) -> PolicyLoad:
    if not load.size:
        return PolicyLoad(by_broker={}, peak=0.0, broker=None, peak_to_mean=1.0)
    at = int(np.argmax(load))
    peak = float(load[at])
    return PolicyLoad(
        by_broker=dict(zip(layout.brokers, load.tolist(), strict=True)),
        peak=peak,
        broker=layout.brokers[at],
        peak_to_mean=ratio(peak, mean),
    )


def least(layout: Layout, groups: Groups, rate: Floats, mean: float) -> LeastPeak:
    """The least possible peak of topics with these rates."""
    known = groups.of_topic >= 0
    of_group = summed(groups.of_topic[known], rate[known], len(groups.masks))
    found = least_peak_of(of_group, groups.led, groups.start)
    topics = (topic for group in found.items for topic in groups.groups[group].topics)
    return LeastPeak(
        peak=found.peak,
        peak_to_mean=ratio(found.peak, mean),
        topics=tuple(sorted(topics)),
        brokers=tuple(layout.brokers[place] for place in found.brokers),
    )


def _measured(layout: Layout, rates: TopicLoad, up: int) -> PolicyLoad | None:
    if not rates.by_partition:
        return None
    names = map(attrgetter("topic", "partition"), layout.partitions)
    found = (rates.by_partition.get(TopicPartition(*name), 0.0) for name in names)
    rate = np.fromiter(found, np.float64, len(layout.partitions))
    online = layout.leader_of >= 0
    load = summed(layout.leader_of[online], rate[online], len(layout.brokers))
    return _policy(layout, load, float(rate[online].sum()) / up if up else 0.0)


def worst_doubled(
    layout: Layout, default: Floats, rate: Floats, share: Floats, mean: float
) -> tuple[DoubledTopic, ...]:
    """The topics whose doubling causes the highest peaks under Default, the worst first."""
    if not default.size or not layout.led.topic.size:
        return ()
    up = float(rate[layout.available > 0].sum()) / mean
    more = default[layout.led.broker] + rate[layout.led.topic] * share
    there = np.flatnonzero(layout.leaders)
    own_peak = np.maximum.reduceat(more, layout.led.start[there])
    fullest = int(np.argmax(default))
    peak = np.maximum(own_peak, default[fullest])
    worst = np.argsort(-peak / (mean + rate[there] / up), kind="stable")[:MOST_DOUBLED]
    found = []
    for at in worst.tolist():
        topic = int(there[at])
        begin, end = layout.led.start[topic : topic + 2].tolist()
        place = int(layout.led.broker[begin + int(np.argmax(more[begin:end]))])
        if own_peak[at] < default[fullest]:
            place = fullest
        found.append(
            DoubledTopic(
                topic=layout.topics[topic],
                peak_to_mean=float(peak[at] / (mean + rate[topic] / up)),
                broker=layout.brokers[place],
            )
        )
    return tuple(found)
