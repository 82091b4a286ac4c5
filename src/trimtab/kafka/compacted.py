"""Reads a compacted topic of one partition from its beginning, and follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors

ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
"""Errors for a topic that does not exist, or that some brokers do not know yet."""

Keyed = tuple[bytes | None, bytes | None]


class TopicReader:
    """Reads the records of a topic from its beginning, without those of aborted transactions.

    `missing` is true if the topic did not exist when the reader was opened.
    """

    def __init__(self, cluster: Cluster, topic: str, *, client_id: str) -> None:
        self._topic = topic
        self._request_s = cluster.timeouts.request_s
        self._beginning = TheirPartition(topic, 0, OFFSET_BEGINNING)
        self._consumer: Consumer = cluster.consumer(
            client_id,
            {
                "group.id": f"{client_id}-reader",  # required by the client; no group is joined
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            },
        )
        try:
            with kafka_errors(f"reading {topic}"):
                # Without this, a missing topic would be reported only after half a minute.
                known = self._consumer.list_topics(topic, timeout=self._request_s).topics[topic]
                self.missing = known.error is not None and known.error.code() in ABSENT
                self._consumer.assign([self._beginning])
        except BaseException:
            self._consumer.close()
            raise

    def read_to_end(self) -> Iterator[Keyed]:
        """All records up to the current end of the log."""
        deadline = time.monotonic() + self._request_s
        with kafka_errors(f"reading {self._topic}"):
            while time.monotonic() < deadline:
                found = self._next(POLL_SLICE_S)
                if isinstance(found, tuple):
                    yield found
                elif found is True:
                    return
        raise BrokerUnavailable(
            f"Topic {self._topic} could not be read to its end.", hint="Check that its brokers run."
        )

    def read_for(self, seconds: float) -> Iterator[Keyed]:
        """The records that arrive within this time."""
        deadline = time.monotonic() + seconds
        with kafka_errors(f"reading {self._topic}"):
            while (left_s := deadline - time.monotonic()) > 0:
                found = self._next(min(left_s, POLL_SLICE_S))
                if isinstance(found, tuple):
                    yield found

    def _next(self, timeout_s: float) -> Keyed | bool:
        """The next record; True at the end of the log, False if no record arrived."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        error = message.error()
        if error is None:
            return message.key(), message.value()
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in ABSENT:  # just created, and some brokers do not know it yet
            time.sleep(POLL_SLICE_S)
            self._consumer.assign([self._beginning])
        elif not is_retriable(KafkaException(error)):
            raise KafkaException(error)
        return False

    def close(self) -> None:
        """Closes the client."""
        self._consumer.close()
