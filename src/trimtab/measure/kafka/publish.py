"""Publishes what was measured: `trimtab.rates` and `trimtab.hotkeys`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from confluent_kafka import KafkaError, Producer

from trimtab.client_properties import ClientProperties
from trimtab.measure.kafka.admin import kafka_errors
from trimtab.model.codec import Json, dumps

log = structlog.get_logger()

_FLUSH_S = 10.0


class ResultPublisher:
    """Sends result records; what the brokers refuse is counted and logged, never hidden."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self.published = 0
        self.failed = 0

    def publish(self, topic: str, key: str, value: Json) -> None:
        """Hands one record over."""
        try:
            self._producer.produce(
                topic, dumps(value).encode(), key.encode(), on_delivery=self._on_delivery
            )
        except BufferError:
            self.failed += 1
            log.warning("result_was_dropped", topic=topic, why="the client's queue was full")
        self._producer.poll(0)

    def flush(self) -> None:
        """Waits for what is under way; what is left then counts as failed."""
        if self._producer.flush(_FLUSH_S):
            self._producer.purge()
            self._producer.flush(1.0)

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.published += 1
        else:
            self.failed += 1
            log.warning("result_was_not_delivered", topic=message.topic(), why=error.str())


@contextmanager
def open_publisher(
    bootstrap_server: str, properties: ClientProperties
) -> Iterator[ResultPublisher]:
    """A publisher that has delivered everything when the block ends."""
    with kafka_errors("starting the producer of results"):
        producer = Producer(
            {
                "client.id": "trimtab-measure",
                **properties.for_confluent(),
                "bootstrap.servers": bootstrap_server,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "logger": logging.getLogger("librdkafka"),
            }
        )
    publisher = ResultPublisher(producer)
    try:
        yield publisher
    finally:
        publisher.flush()
