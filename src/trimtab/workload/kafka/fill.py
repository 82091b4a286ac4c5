"""Fills topics as fast as a client takes records, for runs that begin with full ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import Producer

from trimtab.errors import MeasurementError
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition

_LOOK_EVERY = 1000
_FLUSH_S = 300.0


def fill(
    records: Iterable[tuple[TopicPartition, bytes]], config: Mapping[str, Any], *, what: str
) -> None:
    """Sends all values where they belong; one that the leader does not acknowledge is an error."""
    failed: list[str] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    with kafka_errors(f"filling {what}"):
        producer = Producer({"acks": "1", "linger.ms": 50, **config})
        for n, ((topic, partition), value) in enumerate(records):
            while True:
                try:
                    producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            if not n % _LOOK_EVERY:
                producer.poll(0)
        left = producer.flush(_FLUSH_S)
    if left or failed:
        why = failed[0] if failed else f"{left} records were not acknowledged"
        raise MeasurementError(f"Filling {what} failed: {why}.")
