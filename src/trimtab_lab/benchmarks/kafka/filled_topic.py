"""A topic with a given number of records of one size, filled once and then reused."""

from __future__ import annotations

from collections.abc import Callable

from trimtab.errors import MeasurementError
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.workload.kafka.fill import fill


def filled_topic(
    admin: Admin,
    cluster: Cluster,
    *,
    rows: int,
    partitions: int,
    value_bytes: int,
    say: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """The end offset of each partition of a topic that holds exactly `rows` records."""
    topic = f"bench-{rows}-{value_bytes}"
    ends = _ends(admin, topic)
    if sum(ends.values()) == rows and len(ends) == partitions:
        return ends
    say(f"filling topic {topic}")
    admin.delete_topic(topic)
    admin.create_topic(
        TopicSpec(
            name=topic,
            partitions=partitions,
            replication=1,
            settings={"retention.ms": "-1", "retention.bytes": "-1"},
        )
    )
    value = b"v" * value_bytes
    fill(
        ((TopicPartition(topic, row % partitions), value) for row in range(rows)),
        cluster,
        {"batch.size": 1_000_000, "queue.buffering.max.messages": 500_000},
        what=topic,
    )
    ends = _ends(admin, topic)
    if sum(ends.values()) != rows:
        raise MeasurementError(
            f"Topic {topic} has {sum(ends.values())} records instead of {rows}.",
            hint="Delete the topic, then run the benchmark again: it fills the topic.",
        )
    return ends


def _ends(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    placed = admin.topics([topic])
    found = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    return {name: end for name, (_, end) in found.items()}
