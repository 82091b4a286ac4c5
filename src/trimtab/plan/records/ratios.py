"""How evenly records were spread, over brokers and over partitions.

Why      If leaders are uneven, balanced brokers mean unbalanced partitions and the reverse, so
         both ratios are reported.
Promise  Peak over mean; 1 if all are equal or nothing was sent. Brokers are those that lead
         partitions of the counted topics; partitions are those with a leader, and those that
         received records without one (keyed records ignore leaders).
Cost     O(partitions of the topics).
Paper    Ours; Burato shows brokers alone.

>>> U2 = LeaderSnapshot({"U2": {0: 1, 1: 2, 2: 2}})
>>> by_node = {TopicPartition("U2", 0): 600, TopicPartition("U2", 1): 300}
>>> by_node[TopicPartition("U2", 2)] = 300
>>> ratios(by_node, U2)
Ratios(brokers=1.0, partitions=1.5)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from trimtab.model.cluster import TopicPartition
from trimtab.plan.records.leaders import LeaderSnapshot


@dataclass(frozen=True, slots=True)
class Ratios:
    """Peak over mean, of brokers and of partitions."""

    brokers: float
    partitions: float


def ratios(given: Mapping[TopicPartition, float], snapshot: LeaderSnapshot) -> Ratios:
    """Both ratios of what was sent to partitions, in records or bytes."""
    brokers: dict[int, float] = {}
    partitions: dict[TopicPartition, float] = {p: x for p, x in given.items() if x}
    for topic in sorted({p.topic for p in given}):
        table = snapshot.topic(topic)
        for partition in table.available:
            name, broker = TopicPartition(topic, partition), table.leader[partition]
            partitions[name] = given.get(name, 0)
            brokers[broker] = brokers.get(broker, 0) + partitions[name]
    return Ratios(_fullest_over_mean(brokers.values()), _fullest_over_mean(partitions.values()))


def _fullest_over_mean(values: Collection[float]) -> float:
    total = sum(values)
    return max(values) * len(values) / total if total else 1.0
