"""Fills topics as fast as the client can send, for runs that start with full topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from trimtab.errors import MeasurementError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition

_POLL_EVERY = 1000
_FLUSH_S = 300.0


class FillRecord(NamedTuple):
    """A record and its partition; `ts_ms` is its time in milliseconds, 0 for now."""

    place: TopicPartition
    value: bytes
    key: bytes | None = None
    ts_ms: int = 0


def fill(
    records: Iterable[FillRecord],
    cluster: Cluster,
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    what: str,
) -> None:
    """Sends all records to their partitions; raises an error if one is not acknowledged."""
    failed: list[str] = []

    def on_delivery(error: Any, _: Any) -> None:
        if error is not None:
            failed.append(error.str())

    with kafka_errors(f"filling {what}"):
        producer = cluster.producer("trimtab-fill", {"acks": "1", "linger.ms": 50, **settings})
        for n, ((topic, partition), value, key, ts_ms) in enumerate(records):
            while True:
                try:
                    producer.produce(
                        topic, value, key, partition, on_delivery=on_delivery, timestamp=ts_ms
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
            if not n % _POLL_EVERY:
                producer.poll(0)
        left = producer.flush(_FLUSH_S)
    if left or failed:
        why = failed[0] if failed else f"{left} records were not acknowledged"
        raise MeasurementError(f"Filling {what} failed: {why}.")
