"""Follows the published weights of steering, in a producer's process.

Promise  Starts with the newest record; later ones are received within moments, from the broker that
         is fastest, since each has all of them in its own partition. A producer never waits or
         fails because of it: while no broker answers, or no weights are published, the weights
         become stale and all brokers count the same. Invalid records are ignored.
Cost     A consumer without a group, and a thread that sleeps until a record arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Self

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.records.kafka.producer_settings import connection_settings
from trimtab.errors import BadFile
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors, reason_of
from trimtab.model.codec import weights_from
from trimtab.model.json_reader import parse
from trimtab.observe.logging import library_log
from trimtab.plan.records.live_weights import LiveWeights

log = library_log()

KEY = b"brokers"
_LAST_RECORD = -2000 - 1  # librdkafka: one record before the end
_LOOK_EVERY_S = 30.0
_LOOK_SOON_S = 1.0
_ANSWER_S = 1.0  # short: closing waits for it, in a program that uses the reader


class WeightsReader:
    """Feeds a `LiveWeights` from the topic of weights until it is closed.

    Beside a producer::

        live = LiveWeights()
        options = RoutingOptions(weights=live)
        with (
            WeightsReader(config, live),
            RoutedProducer(config, "weighted-node", options) as producer,
        ):
            producer.produce("orders", value)
    """

    def __init__(
        self,
        client: Cluster | str | Mapping[str, Any],
        live: LiveWeights,
        *,
        topic: str | None = None,
    ) -> None:
        """Starts following, without waiting.

        Args:
            client: The cluster, its address, or the settings of a producer, whose connection
                settings are used.
            live: Receives each record.
            topic: The topic of weights. Default: that of the cluster.
        """
        if isinstance(client, Mapping):
            cluster, login = Cluster(""), connection_settings(client)
        else:
            cluster, login = Cluster.of(client), {}
        self._topic = topic or cluster.topics.weights
        self._live = live
        self._closed = threading.Event()
        self._logged = False
        self._followed: set[int] = set()
        with kafka_errors(f"following {self._topic}"):
            self._consumer = cluster.consumer(
                "trimtab-weights",
                {
                    **login,
                    "client.id": "trimtab-weights",
                    "group.id": "trimtab-weights",  # required by the client; no group is joined
                    "enable.auto.commit": False,
                    "auto.offset.reset": "earliest",
                    "allow.auto.create.topics": False,
                    "reconnect.backoff.max.ms": 1000,
                    "topic.metadata.refresh.interval.ms": 5000,
                },
            )
        self._thread = threading.Thread(target=self._follow, name="weights-reader", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stops following; the weights become stale."""
        self._closed.set()
        self._thread.join()

    def _follow(self) -> None:
        look_at = 0.0
        while not self._closed.is_set():
            if time.monotonic() >= look_at:
                self._find_partitions()
                wait_s = _LOOK_EVERY_S if self._followed else _LOOK_SOON_S
                look_at = time.monotonic() + wait_s
            message = self._consumer.poll(POLL_SLICE_S)
            if message is not None:
                self._receive(message)
        self._consumer.close()

    def _find_partitions(self) -> None:
        """Finds new partitions of the topic, which may not exist yet."""
        try:
            found = self._consumer.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        except KafkaException as error:
            self._log_error(error)
            return
        new = sorted(found.partitions.keys() - self._followed)
        if new:
            places = [TheirPartition(self._topic, number, _LAST_RECORD) for number in new]
            if self._followed:
                self._consumer.incremental_assign(places)
            else:
                self._consumer.assign(places)
            self._followed.update(new)

    def _log_error(self, error: KafkaException) -> None:
        if not self._logged:  # once, not at every attempt
            log.warning("weights_could_not_be_read", topic=self._topic, why=reason_of(error))
        self._logged = True

    def _receive(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            self._log_error(KafkaException(error))
            return
        self._logged = False
        if message.key() != KEY or message.value() is None:
            return
        try:
            self._live.update(weights_from(parse(message.value() or b"", origin=self._topic)))
        except BadFile as refused:
            log.warning("weights_were_refused", topic=self._topic, why=refused.message)
