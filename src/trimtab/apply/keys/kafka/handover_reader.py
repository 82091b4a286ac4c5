"""Reads `.handover` for the tasks of one process, beside whatever reads their data.

Promise  Partitions are assigned by hand, so the group does not see them; offsets are committed only
         through the tasks' transactions, with this consumer's group metadata.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

log = library_log()

_AT_ONCE = 500


class HandoverReader:
    """A consumer of hand-overs; used by one thread.

    `positions` are the offsets below which everything was returned, since a partition was taken.
    """

    def __init__(self, cluster: Cluster, group: str, *, client_id: str) -> None:
        self._attempt_s = cluster.timeouts.attempt_s
        self._assigned: set[TopicPartition] = set()
        self.positions: dict[TopicPartition, int] = {}
        with kafka_errors(f"starting the reader of hand-overs of group {group}"):
            self._consumer = cluster.consumer(
                client_id,
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "isolation.level": "read_committed",
                    "auto.offset.reset": "earliest",
                    "fetch.wait.max.ms": 100,
                },
            )

    def group_metadata(self) -> Any:
        """What a transaction needs to commit offsets for the group."""
        return self._consumer.consumer_group_metadata()

    def take(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these partitions of `.handover` from their committed offsets."""
        new = [p for p in sorted(partitions) if p not in self._assigned]
        if not new:
            return
        what = "asking for the committed offsets of hand-overs"
        with kafka_errors(what):
            answers = self._consumer.committed(
                [TheirPartition(*p) for p in new], timeout=self._attempt_s
            )
        for answer in answers:
            if answer.error is not None:
                raise translated(KafkaException(answer.error), what)
        with kafka_errors("reading hand-overs"):
            self._consumer.incremental_assign(
                [
                    TheirPartition(
                        a.topic, a.partition, a.offset if a.offset >= 0 else OFFSET_BEGINNING
                    )
                    for a in answers
                ]
            )
        self._assigned.update(new)

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stops reading these partitions."""
        gone = [p for p in partitions if p in self._assigned]
        if gone:
            with kafka_errors("leaving hand-overs"):
                self._consumer.incremental_unassign([TheirPartition(*p) for p in gone])
            self._assigned.difference_update(gone)
            for partition in gone:
                self.positions.pop(partition, None)

    def read(self, timeout_s: float) -> tuple[Sequence[Record], dict[TopicPartition, int]]:
        """The next records, and the offsets at which partitions had ended."""
        if not self._assigned:
            return (), {}
        records, ends = [], {}
        with kafka_errors("reading hand-overs"):
            messages = self._consumer.consume(_AT_ONCE, timeout_s)
        for message in messages:
            source = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if source not in self._assigned:
                continue
            if error is None:
                self.positions[source] = (message.offset() or 0) + 1
                records.append(
                    Record(
                        source.topic,
                        source.partition,
                        message.offset() or 0,
                        message.key(),
                        message.value(),
                        (),
                        message.timestamp()[1],
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                ends[source] = self.positions[source] = message.offset() or 0
            elif error.fatal() or not error.retriable():
                raise translated(KafkaException(error), f"reading {source}")
            else:
                log.info("reading_was_delayed", partition=str(source), why=error.str())
        return records, ends

    def close(self) -> None:
        """Closes the client."""
        with kafka_errors("closing the reader of hand-overs"):
            self._consumer.close()
