"""Why a keyed consumer must not run on its topics.

Promise  Every finding names a topic, its setting and what would go wrong. Topics that are missing
         are created by the caller, with `state_settings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LARGEST = "max.message.bytes"
DEFAULT_LARGEST = 1_048_588
"""Kafka's default of `max.message.bytes`."""

_SEGMENT_MS = 10 * 60 * 1000
_SEGMENT_BYTES = 64 * 2**20
_MOST = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """What brokers say of one topic."""

    name: str
    partitions: int
    replicas: int
    settings: Mapping[str, str]

    @property
    def largest_bytes(self) -> int:
        """The largest record batch that it takes."""
        return int(self.settings.get(LARGEST) or DEFAULT_LARGEST)

    @property
    def policy(self) -> frozenset[str]:
        """The parts of its clean-up policy."""
        return frozenset(self.settings.get("cleanup.policy", "delete").split(","))

    @property
    def min_insync(self) -> int:
        """How many replicas must have a record before it is acknowledged."""
        return int(self.settings.get("min.insync.replicas") or 1)


def least_largest(data: TopicFacts) -> int:
    """`max.message.bytes` of the topics beside a data topic: records grow by headers and base64."""
    return min(_MOST, 2 * data.largest_bytes)


def state_settings(data: TopicFacts, replication: int) -> dict[str, str]:
    """The settings of `.state` and `.handover`.

    Without short segments compaction does not reach what was written lately, and a restore reads
    everything that was ever written.
    """
    return {
        "cleanup.policy": "compact",
        "segment.ms": str(_SEGMENT_MS),
        "segment.bytes": str(_SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.2",
        "min.insync.replicas": str(max(1, replication - 1)),
        LARGEST: str(least_largest(data)),
    }


def data_findings(data: TopicFacts) -> Iterator[str]:
    """What is wrong with a data topic."""
    if "compact" in data.policy:
        yield (
            f"{data.name} is compacted (cleanup.policy={','.join(sorted(data.policy))}), which "
            "deletes markers and records that are still needed"
        )
    yield from _durability(data)


def state_findings(data: TopicFacts, beside: TopicFacts) -> Iterator[str]:
    """What is wrong with a topic of states or hand-overs."""
    if beside.policy != {"compact"}:
        yield (
            f"{beside.name} has cleanup.policy={','.join(sorted(beside.policy))}, which deletes "
            "states that are still needed; it must be compact"
        )
    if beside.partitions != data.partitions:
        yield (
            f"{beside.name} has {beside.partitions} partitions and {data.name} has "
            f"{data.partitions}: the states belong to another number of partitions"
        )
    yield from _size(data, beside)
    yield from _durability(beside)


def dead_findings(data: TopicFacts, dead: TopicFacts) -> Iterator[str]:
    """What is wrong with the topic of dead letters."""
    if "compact" in dead.policy:
        yield f"{dead.name} is compacted, which deletes dead letters of the same key"
    yield from _size(data, dead)


def _size(data: TopicFacts, beside: TopicFacts) -> Iterator[str]:
    if beside.largest_bytes < least_largest(data):
        yield (
            f"{beside.name} takes records of {beside.largest_bytes} bytes ({LARGEST}); it must be "
            f"at least {least_largest(data)}, twice that of {data.name}"
        )


def _durability(topic: TopicFacts) -> Iterator[str]:
    if topic.replicas >= 3 and topic.min_insync < 2:
        yield (
            f"{topic.name} has {topic.replicas} replicas and min.insync.replicas="
            f"{topic.min_insync}: a record that was acknowledged can be lost with one broker; it "
            "must be 2"
        )
    if topic.min_insync > topic.replicas:
        yield (
            f"{topic.name} has min.insync.replicas={topic.min_insync} and only {topic.replicas} "
            "replicas: nothing can be written"
        )
