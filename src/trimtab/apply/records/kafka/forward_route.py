"""What is forwarded where: the route, what both clusters have for it, and the report of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trimtab.errors import ConfigError
from trimtab.kafka.admin import Admin
from trimtab.model.cluster import TopicPartition
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.ratios import Ratios

_LARGEST = 1_048_588  # Kafka's default of max.message.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """What is forwarded where, and until when.

    Attributes:
        topics: Source topic → target topic.
        group: The consumer group whose offsets are committed.
        partitioner: The partitioner's name.
        options: The partitioner's options.
        from_latest: Start at the end of partitions without a committed offset.
        until_end: Stop at the end that the source topics had at the start.
        records: Stop after this many records.
    """

    topics: Mapping[str, str]
    group: str
    partitioner: str
    options: RoutingOptions = field(default_factory=RoutingOptions)
    from_latest: bool = False
    until_end: bool = False
    records: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardReport:
    """How many records were read, acknowledged and committed; `brokers` counts them by leader."""

    taken: int
    forwarded: int
    committed: int
    brokers: Mapping[int, int]
    partitions: Mapping[TopicPartition, int]
    ratios: Ratios | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """What forwarding would use: the target's leaders, and the largest batch it accepts."""

    route: Route
    sources: Mapping[str, int]
    targets: LeaderSnapshot
    largest_bytes: int


def survey(route: Route, source: Admin, target: Admin) -> Survey:
    """Checks both clusters; refuses missing topics and topics forwarded to themselves."""
    read, write = sorted(route.topics), sorted(set(route.topics.values()))
    here = source.topics(read)
    there = target.topics(write)
    _missing("source", read, {p.topic for p in here})
    _missing("target", write, {p.topic for p in there})
    circles = sorted(set(read) & set(write))
    if circles and source.cluster().cluster == target.cluster().cluster:
        raise ConfigError(
            f"Topic {', '.join(circles)} would be forwarded to itself.",
            hint="Set --to-topic to another topic, or --to-bootstrap-server to another cluster.",
        )
    settings = [target.topic_settings(topic) or {} for topic in write]
    return Survey(
        route=route,
        sources={topic: sum(p.topic == topic for p in here) for topic in read},
        targets=LeaderSnapshot(
            {t: {p.partition: int(p.leader) for p in there if p.topic == t} for t in write}
        ),
        largest_bytes=min(int(s.get("max.message.bytes", _LARGEST)) for s in settings),
    )


def _missing(which: str, wanted: Collection[str], found: Collection[str]) -> None:
    missing = sorted(set(wanted) - set(found))
    if missing:
        raise ConfigError(
            f"The {which} cluster has no topic {', '.join(missing)}.",
            hint="Create it first, or correct the name: a forwarder creates no topics.",
        )
