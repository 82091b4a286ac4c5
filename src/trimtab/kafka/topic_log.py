"""Reads whole topics, all partitions from their beginnings to their present ends."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.compacted import ABSENT
from trimtab.kafka.errors import is_retriable, kafka_errors, translated
from trimtab.kafka.headers import headers_of
from trimtab.model.record import Record, TopicLog

_AT_ONCE = 10_000
_WAIT_S = 0.2


class TopicLogs:
    """Reads topics, one after another."""

    def __init__(self, cluster: Cluster, consumer: Consumer) -> None:
        self._request_s = cluster.timeouts.request_s
        self._consumer = consumer

    def __call__(self, topic: str) -> TopicLog | None:
        """The log of a topic; None if there is no such topic."""
        with kafka_errors(f"reading {topic}"):
            known = self._consumer.list_topics(topic, timeout=self._request_s).topics[topic]
            if known.error is not None:
                if known.error.code() in ABSENT:
                    return None
                raise KafkaException(known.error)
            marks = {p: self._watermarks(topic, p) for p in sorted(known.partitions)}
        starts = {p: start for p, (start, _) in marks.items()}
        ends = {p: end for p, (start, end) in marks.items() if end > start}
        return TopicLog(self._records(topic, ends), starts)

    def _watermarks(self, topic: str, partition: int) -> tuple[int, int]:
        place = TheirPartition(topic, partition)
        found = self._consumer.get_watermark_offsets(place, timeout=self._request_s)
        if found is None:
            raise BrokerUnavailable(f"No broker told the end of {topic}-{partition}.")
        start, end = found
        return start, end

    def _records(self, topic: str, ends: Mapping[int, int]) -> Iterator[Record]:
        left = dict(ends)
        if not left:
            return
        deadline = time.monotonic() + self._request_s
        with kafka_errors(f"reading {topic}"):
            self._consumer.assign([TheirPartition(topic, p, OFFSET_BEGINNING) for p in left])
        try:
            while left:
                with kafka_errors(f"reading {topic}"):
                    messages = self._consumer.consume(_AT_ONCE, _WAIT_S)
                if messages:
                    deadline = time.monotonic() + self._request_s
                elif time.monotonic() > deadline:
                    raise BrokerUnavailable(
                        f"Topic {topic} could not be read to its end.",
                        hint="Check that its brokers run.",
                    )
                for message in messages:
                    partition, offset = message.partition() or 0, message.offset() or 0
                    error = message.error()
                    if error is None:
                        yield _record(message)
                    elif error.code() == KafkaError._PARTITION_EOF:
                        if offset >= left.get(partition, 0):
                            left.pop(partition, None)
                    elif not is_retriable(KafkaException(error)):
                        raise translated(KafkaException(error), f"reading {topic}")
        finally:
            self._consumer.unassign()


def _record(message: object) -> Record:
    m = message
    return Record(
        m.topic(),  # type: ignore[attr-defined]
        m.partition(),  # type: ignore[attr-defined]
        m.offset(),  # type: ignore[attr-defined]
        m.key(),  # type: ignore[attr-defined]
        m.value(),  # type: ignore[attr-defined]
        headers_of(m),
        m.timestamp()[1],  # type: ignore[attr-defined]
    )


@contextmanager
def topic_logs(cluster: Cluster, *, client_id: str) -> Iterator[TopicLogs]:
    """A reader of whole topics; it joins no group and commits nothing."""
    with kafka_errors("opening a reader of topics"):
        consumer = cluster.consumer(
            client_id,
            {
                "group.id": f"{client_id}-reader",  # required by the client; no group is joined
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 100,
            },
        )
    try:
        yield TopicLogs(cluster, consumer)
    finally:
        consumer.close()
