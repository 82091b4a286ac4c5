"""A Kafka cluster as one value: address, client properties, topic names; creates all clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics
from trimtab.model.timeouts import Timeouts, milliseconds

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from trimtab.kafka.admin import KafkaAdmin

POLL_SLICE_S = 0.05
"""How long a loop waits for Kafka in one poll, before it looks at `stop` and its other duties."""

_SOCKET_TIMEOUT_MS = 60_000  # librdkafka's default
_REQUEST_TIMEOUT_MS = 30_000  # kafka-python's default


@dataclass(frozen=True, slots=True)
class Cluster:
    """The bootstrap servers, client properties, names of Trimtab's own topics, and time-outs.

    >>> Cluster("kafka:9092").topics.rates
    'trimtab.rates'
    """

    servers: str
    properties: ClientProperties = field(default_factory=ClientProperties.none)
    topics: OwnTopics = field(default_factory=OwnTopics)
    timeouts: Timeouts = field(default_factory=Timeouts)

    @classmethod
    def of(cls, cluster: Cluster | str) -> Cluster:
        """Returns a cluster unchanged; makes one without client properties from an address."""
        return cls(cluster) if isinstance(cluster, str) else cluster

    def admin(
        self, *, connect_within_s: float | None = None, patience_s: float | None = None
    ) -> AbstractContextManager[KafkaAdmin]:
        """An admin client; `patience_s` is how long to wait for a broker's answer.

        Defaults: `timeouts.connect_s` and `timeouts.attempt_s`.
        """
        from trimtab.kafka.admin import connect

        return connect(
            self,
            connect_within_s=(
                self.timeouts.connect_s if connect_within_s is None else connect_within_s
            ),
            patience_s=self.timeouts.attempt_s if patience_s is None else patience_s,
        )

    def consumer(self, client_id: str, settings: Mapping[str, Any]) -> Consumer:
        """A consumer of confluent-kafka; `settings` override client properties."""
        from confluent_kafka import Consumer

        return Consumer(self.client(client_id, settings))

    def producer(self, client_id: str, settings: Mapping[str, Any]) -> Producer:
        """A producer of confluent-kafka; `settings` override client properties."""
        from confluent_kafka import Producer

        return Producer(self.client(client_id, settings))

    def client(self, client_id: str, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a confluent-kafka client."""
        longest_ms = self._longest_ms
        raised = {"socket.timeout.ms": longest_ms} if longest_ms > _SOCKET_TIMEOUT_MS else {}
        return {
            "client.id": client_id,
            **raised,
            **self.properties.for_confluent(),
            "bootstrap.servers": self.servers,
            "logger": logging.getLogger("librdkafka"),
            **settings,
        }

    def for_kafka_python(self) -> dict[str, Any]:
        """The part of a kafka-python client's configuration that names the cluster."""
        longest_ms = self._longest_ms
        raised = {"request_timeout_ms": longest_ms} if longest_ms > _REQUEST_TIMEOUT_MS else {}
        return {
            **raised,
            **self.properties.for_kafka_python(),
            "bootstrap_servers": self.servers.split(","),
        }

    @property
    def _longest_ms(self) -> int:
        """The longest time for an answer: a client must not give up a request before we do."""
        return milliseconds(max(self.timeouts.request_s, self.timeouts.attempt_s))

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source and sink."""
        return {**self.properties.for_spark(), "kafka.bootstrap.servers": self.servers}
