"""A topic with so many records of one size, filled once and used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Producer

from trimtab.errors import MeasurementError
from trimtab.measure.kafka.admin import Admin, TopicSpec
from trimtab.model.cluster import TopicPartition
from trimtab.workload.kafka.errors import kafka_errors

_FLUSH_S = 120.0


def filled_topic(
    admin: Admin,
    bootstrap_server: str,
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
    _fill(bootstrap_server, topic, rows=rows, partitions=partitions, value=b"v" * value_bytes)
    ends = _ends(admin, topic)
    if sum(ends.values()) != rows:
        raise MeasurementError(f"{topic} holds {sum(ends.values())} records instead of {rows}.")
    return ends


def _ends(admin: Admin, topic: str) -> dict[TopicPartition, int]:
    placed = admin.topics([topic])
    found = admin.offsets({p.name: p.leader for p in placed if not p.offline})
    return {name: end for name, (_, end) in found.items()}


def _fill(bootstrap_server: str, topic: str, *, rows: int, partitions: int, value: bytes) -> None:
    failed: list[str] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    with kafka_errors(f"filling {topic}"):
        producer = Producer(
            {
                "client.id": "trimtab-bench",
                "bootstrap.servers": bootstrap_server,
                "acks": "1",
                "linger.ms": 50,
                "batch.size": 1_000_000,
                "queue.buffering.max.messages": 500_000,
            }
        )
        for row in range(rows):
            while True:
                try:
                    producer.produce(
                        topic, value, partition=row % partitions, on_delivery=on_delivery
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if not row % 10_000:
                producer.poll(0)
        left = producer.flush(_FLUSH_S)
    if left or failed:
        why = failed[0] if failed else f"{left} records were not acknowledged"
        raise MeasurementError(f"Filling {topic} failed: {why}.")
