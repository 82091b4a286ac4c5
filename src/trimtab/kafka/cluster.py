"""A Kafka cluster as one value: address, client properties, topic names; creates all clients."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Producer

    from trimtab.kafka.admin import KafkaAdmin


@dataclass(frozen=True, slots=True)
class Cluster:
    """The bootstrap servers, the client properties and the names of Trimtab's own topics.

    >>> Cluster("kafka:9092").topics.rates
    'trimtab.rates'
    """

    servers: str
    properties: ClientProperties = field(default_factory=ClientProperties.none)
    topics: OwnTopics = field(default_factory=OwnTopics)

    @classmethod
    def of(cls, cluster: Cluster | str) -> Cluster:
        """Returns a cluster unchanged; makes one without client properties from an address."""
        return cls(cluster) if isinstance(cluster, str) else cluster

    def admin(
        self, *, connect_within_s: float = 10.0, patience_s: float = 10.0
    ) -> AbstractContextManager[KafkaAdmin]:
        """An admin client; `patience_s` is how long to wait for a broker's answer."""
        from trimtab.kafka.admin import connect

        return connect(self, connect_within_s=connect_within_s, patience_s=patience_s)

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
        return {
            "client.id": client_id,
            **self.properties.for_confluent(),
            "bootstrap.servers": self.servers,
            "logger": logging.getLogger("librdkafka"),
            **settings,
        }

    def for_kafka_python(self) -> dict[str, Any]:
        """The part of a kafka-python client's configuration that names the cluster."""
        return {
            **self.properties.for_kafka_python(),
            "bootstrap_servers": self.servers.split(","),
        }

    def for_spark(self) -> dict[str, str]:
        """Options of Spark's Kafka source and sink."""
        return {**self.properties.for_spark(), "kafka.bootstrap.servers": self.servers}
