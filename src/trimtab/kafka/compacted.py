"""Reads a topic of one partition whose newest record of each key is what counts, and follows it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_passing, kafka_errors

ABSENT = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
"""A topic that is not there, or that not every broker has heard of yet."""

_ASK_S = 15.0
_POLL_S = 0.05

Keyed = tuple[bytes | None, bytes | None]


class TopicReader:
    """Hands out the records of a topic from its beginning; transactions that failed are left out.

    `missing` says that there was no such topic when it was opened.
    """

    def __init__(self, cluster: Cluster, topic: str, *, client_id: str) -> None:
        self._topic = topic
        self._beginning = TheirPartition(topic, 0, OFFSET_BEGINNING)
        self._consumer: Consumer = cluster.consumer(
            client_id,
            {
                "group.id": f"{client_id}-reader",  # asked for; no group is joined
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            },
        )
        try:
            with kafka_errors(f"reading {topic}"):
                # A reader of a topic that is not there is told so only after half a minute.
                known = self._consumer.list_topics(topic, timeout=_ASK_S).topics[topic]
                self.missing = known.error is not None and known.error.code() in ABSENT
                self._consumer.assign([self._beginning])
        except BaseException:
            self._consumer.close()
            raise

    def to_the_end(self, within_s: float = _ASK_S) -> Iterator[Keyed]:
        """All records up to the end as it is now."""
        deadline = time.monotonic() + within_s
        with kafka_errors(f"reading {self._topic}"):
            while time.monotonic() < deadline:
                found = self._next(_POLL_S)
                if isinstance(found, tuple):
                    yield found
                elif found is True:
                    return
        raise BrokerUnavailable(
            f"{self._topic} could not be read to its end.", hint="Do its brokers run?"
        )

    def for_a_while(self, seconds: float) -> Iterator[Keyed]:
        """The records that come within this time."""
        deadline = time.monotonic() + seconds
        with kafka_errors(f"reading {self._topic}"):
            while (left_s := deadline - time.monotonic()) > 0:
                found = self._next(min(left_s, _POLL_S))
                if isinstance(found, tuple):
                    yield found

    def _next(self, timeout_s: float) -> Keyed | bool:
        """The next record; True at the end, False when nothing came."""
        message = self._consumer.poll(timeout_s)
        if message is None:
            return False
        error = message.error()
        if error is None:
            return message.key(), message.value()
        if error.code() == KafkaError._PARTITION_EOF:
            return True
        if error.code() in ABSENT:  # just created, and not every broker has it yet
            time.sleep(_POLL_S)
            self._consumer.assign([self._beginning])
        elif not is_passing(KafkaException(error)):
            raise KafkaException(error)
        return False

    def close(self) -> None:
        """Closes the client."""
        self._consumer.close()
