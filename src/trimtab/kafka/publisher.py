"""Publishes Trimtab's own records: telemetry, rates, heavy keys.

Promise  `publish` never raises and never waits for a broker. Records that were not acknowledged
         are counted and logged. A producer with a fatal error is replaced.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.timeouts import milliseconds
from trimtab.observe.logging import library_log

log = library_log()


def reliable(cluster: Cluster, *, client_id: str, linger_ms: int) -> dict[str, Any]:
    """The configuration of an idempotent producer with acks=all."""
    return cluster.client(
        client_id,
        {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": linger_ms,
            "compression.type": "lz4",
        },
    )


class RecordPublisher:
    """Sends records with an idempotent producer and acks=all."""

    def __init__(self, cluster: Cluster, *, client_id: str, linger_ms: int) -> None:
        self.published = 0
        self.failed = 0
        self._broken = False
        self._close_s = cluster.timeouts.close_s
        self._config = reliable(cluster, client_id=client_id, linger_ms=linger_ms) | {
            "message.timeout.ms": milliseconds(cluster.timeouts.delivery_s),
            "error_cb": self._on_error,
        }
        with kafka_errors(f"starting the producer {client_id}"):
            self._producer = Producer(self._config)

    def publish(self, topic: str, key: bytes, value: bytes) -> None:
        """Queues a record for sending."""
        if self._broken:  # an idempotent producer cannot recover from a fatal error
            self.flush()
            self._producer = Producer(self._config)
            self._broken = False
        try:
            self._producer.produce(topic, value, key, on_delivery=self._on_delivery)
        except (BufferError, KafkaException) as error:
            self.failed += 1
            log.warning("record_dropped", topic=topic, why=str(error))
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits for records in flight; those not acknowledged in time count as failed."""
        if self._producer.flush(self._close_s):
            self._producer.purge()
            self._producer.flush(1.0)  # reports each purged record as failed

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.published += 1
        else:
            self.failed += 1
            log.warning("record_not_delivered", topic=message.topic(), why=error.str())

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
            log.warning("producer_was_replaced", why=error.str())


@contextmanager
def open_publisher(cluster: Cluster) -> Iterator[RecordPublisher]:
    """A publisher that is flushed when the block ends."""
    publisher = RecordPublisher(cluster, client_id="trimtab-measure", linger_ms=0)
    try:
        yield publisher
    finally:
        publisher.flush()
