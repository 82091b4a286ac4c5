"""The source of a forwarder: a member of an ordinary consumer group.

Promise  Returns the records of a partition in order, and its end when it is reached. Revoked
         partitions are settled first; lost ones are only forgotten. Offsets are committed only on
         request. Without a committed offset, or if it is out of range, reading starts at the first
         record; `from_latest` commits the missing offsets once, at the ends, before it joins, so
         partitions added later are read from their start. Committed offsets are requested here with
         retries: the client asks once, and never reads partitions if the group coordinator moves at
         that moment (librdkafka issue 5586).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.errors import ApplyError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors, reason_of
from trimtab.kafka.headers import headers_of
from trimtab.kafka.retry import SLOWING, attempts
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

log = structlog.get_logger()

_GONE = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_NO_LONGER_OURS = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError._NO_OFFSET,
    }
)


@dataclass(frozen=True, slots=True)
class End:
    """A partition was read to its end, at this position."""

    partition: TopicPartition
    position: int


class Hooks(Protocol):
    """Callbacks for rebalances and failed commits."""

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions were assigned."""
        ...

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are about to be revoked."""
        ...

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions are already owned by another member."""
        ...

    def on_commit_failed(self, partitions: Collection[TopicPartition]) -> None:
        """An asynchronous commit of these failed."""
        ...

    def fail(self, error: ApplyError) -> None:
        """`settle` failed within a client callback, which cannot raise."""
        ...


class GroupSource:
    """A member of an ordinary consumer group."""

    def __init__(
        self,
        group: str,
        topics: Collection[str],
        cluster: Cluster,
        *,
        from_latest: bool = False,
    ) -> None:
        """Joins at the first `next`; `hooks` must be set before."""
        self.hooks: Hooks
        self._topics = tuple(topics)
        self._timeouts = cluster.timeouts
        self._owned: set[TopicPartition] = set()
        self._still = False
        self._pausing = False
        self._silent = False
        with kafka_errors(f"joining group {group}"):
            self._consumer = cluster.consumer(
                "trimtab-forward",
                {
                    "group.id": group,
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "enable.partition.eof": True,
                    "auto.offset.reset": "earliest",  # also if out of range: no record is lost
                    "isolation.level": "read_committed",
                    "allow.auto.create.topics": False,
                    "session.timeout.ms": 10_000,
                    "heartbeat.interval.ms": 1_000,
                    "topic.metadata.refresh.interval.ms": 10_000,
                    "on_commit": self._on_commit,
                },
            )
            if from_latest:
                self._commit_missing_ends()
            self._consumer.subscribe(
                list(self._topics),
                on_assign=self._on_assign,
                on_revoke=self._on_revoke,
                on_lost=self._on_lost,
            )

    def _commit_missing_ends(self) -> None:
        """Commits the end offsets of partitions without a committed offset."""
        ends = self.ends()
        known = self._consumer.committed(
            [TheirPartition(*p) for p in ends], timeout=self._timeouts.request_s
        )
        for place in known:
            if place.error is not None:
                raise KafkaException(place.error)
        new = [TopicPartition(p.topic, p.partition) for p in known if p.offset < 0]
        if new:
            self.commit({p: ends[p] for p in new}, wait=True)  # refused if the group has members

    def next(self, timeout_s: float) -> Record | End | None:
        """The next record, or the end of a partition; None after `timeout_s`."""
        with kafka_errors("reading the source"):
            message = self._consumer.poll(timeout_s)
            if self._pausing:
                self.hold(still=True)
            if message is None:
                return None
            error = message.error()
            if error is None:
                return _record(message)
            if error.code() == KafkaError._PARTITION_EOF:
                return End(_name(message), message.offset() or 0)
            if error.code() in _GONE:
                raise ApplyError(f"A source topic was deleted: {error.str()}")
            if not is_retriable(KafkaException(error)):
                raise KafkaException(error)
            if not self._silent:  # logged once
                log.warning("source_did_not_answer", why=reason_of(KafkaException(error)))
            self._silent = True
            return None

    def owned(self) -> Collection[TopicPartition]:
        """The partitions that are read now."""
        return tuple(self._owned)

    def ends(self) -> dict[TopicPartition, int]:
        """The current end offsets of the source topics."""
        found, request_s = {}, self._timeouts.request_s
        with kafka_errors("reading the end offsets of the source topics"):
            for topic in self._topics:
                known = self._consumer.list_topics(topic, timeout=request_s)
                for number in known.topics[topic].partitions:
                    place = TheirPartition(topic, number)
                    _, end = self._consumer.get_watermark_offsets(place, timeout=request_s)
                    found[TopicPartition(topic, number)] = end
        return found

    def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> bool:
        """Commits offsets; returns False if the partitions are no longer owned."""
        places = [TheirPartition(*p, offset) for p, offset in offsets.items()]
        with kafka_errors("committing offsets"):
            try:
                if wait:
                    done = self._consumer.commit(offsets=places, asynchronous=False)
                    return all(place.error is None for place in done or ())
                self._consumer.commit(offsets=places, asynchronous=True)
            except KafkaException as error:
                if error.args[0].code() not in _NO_LONGER_OURS:
                    raise
                log.warning("commit_was_refused", why=reason_of(error))
                return False
        return True

    def hold(self, *, still: bool) -> None:
        """Pauses or resumes reading."""
        self._still, self._pausing = still, False
        places = [TheirPartition(*p) for p in self._owned]
        with kafka_errors("holding the source"):
            if still:
                self._consumer.pause(places)
            else:
                self._consumer.resume(places)

    def close(self) -> None:
        """Leaves the group; owned partitions are settled first."""
        with kafka_errors("leaving the group"):
            self._consumer.close()

    def _on_assign(self, _consumer: Any, places: Collection[Any]) -> None:
        gained = [TopicPartition(p.topic, p.partition) for p in places]
        self._owned.update(gained)
        self.hooks.on_assigned(gained)
        starts = self._starts(gained)
        if starts:
            self._read_from(starts)
        self._pausing = self._still  # later: the client knows them only after this callback

    def _starts(self, partitions: Collection[TopicPartition]) -> list[TheirPartition]:
        """The start offsets; empty if there is no answer in time: then the client asks."""
        asked = [TheirPartition(*p) for p in partitions]
        for left_s in attempts(SLOWING, within_s=self._timeouts.visible_s):
            if not asked:
                break
            try:
                found = self._consumer.committed(asked, timeout=left_s)
                refused = next((p.error for p in found if p.error is not None), None)
                if refused is not None:
                    raise KafkaException(refused)  # noqa: TRY301 - handled like the others
            except KafkaException as error:
                log.warning("committed_offsets_are_not_known", why=reason_of(error))
                if not is_retriable(error):
                    break
                continue
            for place in found:
                if place.offset < 0:
                    place.offset = OFFSET_BEGINNING
            return found
        return []

    def _read_from(self, places: list[TheirPartition]) -> None:
        try:
            self._consumer.assign(places)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._STATE:
                raise
            self._consumer.incremental_assign(places)  # with a cooperative protocol

    def _on_revoke(self, _consumer: Any, places: Collection[Any]) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in places]
        try:
            self.hooks.settle(gone)
        except ApplyError as error:  # a client callback cannot raise
            self.hooks.fail(error)
        self._release(gone)

    def _on_lost(self, _consumer: Any, places: Collection[Any]) -> None:
        gone = [TopicPartition(p.topic, p.partition) for p in places]
        self._release(gone)
        self.hooks.lost(gone)
        log.warning("partitions_were_lost", partitions=len(gone))

    def _release(self, gone: Collection[TopicPartition]) -> None:
        self._owned.difference_update(gone)
        if self._still:  # else the client keeps the pause until the partition is assigned again
            self._consumer.resume([TheirPartition(*p) for p in gone])

    def _on_commit(self, error: KafkaError | None, places: Collection[Any]) -> None:
        failed = [p for p in places if error is not None or p.error is not None]
        if failed:
            why = failed[0].error if error is None else error
            log.warning("offsets_were_not_committed", why=why.str())
            self.hooks.on_commit_failed([TopicPartition(p.topic, p.partition) for p in failed])


def _name(message: Message) -> TopicPartition:
    return TopicPartition(message.topic() or "", message.partition() or 0)


def _record(message: Any) -> Record:
    kind, at_ms = message.timestamp()
    return Record(
        *_name(message),
        message.offset(),
        message.key(),
        message.value(),
        headers_of(message),
        -1 if kind == TIMESTAMP_NOT_AVAILABLE else at_ms,
    )
