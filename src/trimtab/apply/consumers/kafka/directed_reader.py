"""The reader of a directed consumer: partitions are assigned manually, by commands.

Why      Without Kafka's group protocol a partition moves without stopping the whole group. The
         price: brokers do not fence readers, so the controller must keep two from reading one.
Promise  A partition is read from its committed offset. Brokers that do not answer are asked again.
         A partition that has been unknown for `GONE_AFTER_S` is dropped and reported. A commit that
         the broker refuses because the group has subscribed members raises an error with that
         reason. The client holds at most one batch more than it has returned (D6).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.kafka.membership import records_deleted
from trimtab.errors import ApplyError, BrokerUnavailable, TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.kafka.headers import headers_of
from trimtab.kafka.retry import SLOWING, attempts
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

log = library_log()

GONE_AFTER_S = 5.0
"""How long brokers may not know a partition: a new one is unknown to some of them at first."""

_LOOK_EVERY_S = 1.0
_PROBE_EVERY_S = 5.0
_CONNECT_ALL_S, _CONNECT_ONE_S = 2.0, 0.5  # short: reading, or its start, waits meanwhile
_CHUNKS = 1000
_KB = 1024
_UNKNOWN = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
_HAS_SUBSCRIBED_MEMBERS = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.FENCED_INSTANCE_ID,
        KafkaError.FENCED_MEMBER_EPOCH,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.REBALANCE_IN_PROGRESS,
    }
)
_NO_COORDINATOR = frozenset({KafkaError._WAIT_COORD, KafkaError._RETRY})
# Records that cannot be read, or may not be: going on would skip them.
_UNREADABLE = frozenset(
    {
        KafkaError._BAD_COMPRESSION,
        KafkaError._BAD_MSG,
        KafkaError._NOT_IMPLEMENTED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)

OnLost = Callable[[frozenset[TopicPartition]], None]


class OffsetReset(StrEnum):
    """Where to start reading a partition without a committed offset."""

    EARLIEST = "earliest"
    LATEST = "latest"


class DirectedReader:
    """A `trimtab.apply.consumers.interfaces.Reader` of manually assigned partitions."""

    def __init__(
        self,
        group: str,
        cluster: Cluster,
        *,
        client_id: str,
        on_lost: OnLost,
        batch_bytes: int = 5_000_000,
        beginning: OffsetReset = OffsetReset.EARLIEST,
        skip_lost: bool = True,
    ) -> None:
        self._group = group
        self._attempt_s = cluster.timeouts.attempt_s
        self._on_lost = on_lost
        self._beginning = beginning
        self._positions: dict[TopicPartition, int | None] = {}
        self._at_the_end: set[TopicPartition] = set()
        self._handed_out: set[TopicPartition] = set()
        self._missing_since: dict[TopicPartition, float] = {}
        self._look_at = 0.0
        self._probe_at, self._probed = 0.0, ""
        self._failure: KafkaError | None = None
        self._chunk = max(1, min(_CHUNKS, batch_bytes // _KB))
        settings: dict[str, Any] = {
            "group.id": group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            # Only used if the committed offset has been deleted by retention.
            "auto.offset.reset": "earliest" if skip_lost else "error",
            # A fetch waiting at a broker delays fetches for newly assigned partitions.
            "fetch.wait.max.ms": 100,
            "max.partition.fetch.bytes": max(64 * _KB, min(_KB * _KB, batch_bytes)),
            "queued.max.messages.kbytes": max(64, batch_bytes // _KB),
            "error_cb": self._on_error,
        }
        with kafka_errors(f"starting the reader of group {group}"):
            self._consumer = cluster.consumer(client_id, settings)

    def connect(self, topics: Collection[str]) -> None:
        """Connects to the leaders of these topics' partitions, so that taking one is faster.

        Takes at most about 2 s; other brokers are connected lazily.
        """
        until = time.monotonic() + _CONNECT_ALL_S
        connected: set[int] = set()
        for topic in topics:
            for number, leader in self._leaders(topic).items():
                if leader in connected or leader < 0 or time.monotonic() > until:
                    continue
                connected.add(leader)
                with suppress(KafkaException):
                    self._consumer.get_watermark_offsets(
                        TheirPartition(topic, number), timeout=_CONNECT_ONE_S
                    )

    def _leaders(self, topic: str) -> dict[int, int]:
        try:
            known = self._consumer.list_topics(topic, timeout=_CONNECT_ONE_S).topics[topic]
        except KafkaException as error:
            log.info("leaders_are_not_known_yet", topic=topic, why=error.args[0].str())
            return {}
        return {number: partition.leader for number, partition in known.partitions.items()}

    # ------------------------------------------------------------ commands

    def take(
        self, partitions: Collection[TopicPartition], stop: threading.Event
    ) -> dict[TopicPartition, int | None]:
        """Adds partitions, each read from its committed offset; returns those offsets.

        Retries until the brokers answer, or until `stop` is set: then nothing is added.
        """
        new = sorted(p for p in partitions if p not in self._positions)
        starts = self._retried(lambda: self._starts(new), stop)
        if not starts:
            return {}
        with kafka_errors(f"taking partitions for group {self._group}"):
            self._assign(starts)
        return starts

    def _assign(self, starts: Mapping[TopicPartition, int | None]) -> None:
        self._consumer.incremental_assign(
            [
                TheirPartition(p.topic, p.partition, OFFSET_BEGINNING if at is None else at)
                for p, at in starts.items()
            ]
        )
        self._positions.update(dict.fromkeys(starts))

    def drop(self, partitions: Collection[TopicPartition]) -> None:
        """Stops reading these partitions."""
        held = [p for p in partitions if p in self._positions]
        if not held:
            return
        with kafka_errors(f"dropping partitions of group {self._group}"):
            self._consumer.incremental_unassign([TheirPartition(*p) for p in held])
        for partition in held:
            del self._positions[partition]
            self._missing_since.pop(partition, None)
            self._at_the_end.discard(partition)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Reads none of these until `resume`, or until they are dropped."""
        held = [TheirPartition(*p) for p in partitions if p in self._positions]
        with kafka_errors(f"pausing partitions of group {self._group}"):
            self._consumer.pause(held)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again."""
        held = [TheirPartition(*p) for p in partitions if p in self._positions]
        with kafka_errors(f"resuming partitions of group {self._group}"):
            self._consumer.resume(held)

    def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again from their committed offsets; raises if the brokers do not answer."""
        starts = self._starts(sorted(p for p in partitions if p in self._positions))
        with kafka_errors(f"reading partitions of group {self._group} again"):
            again = [TheirPartition(*p) for p in starts]
            self._consumer.incremental_unassign(again)
            for partition in starts:
                del self._positions[partition]
                self._at_the_end.discard(partition)
            self._assign(starts)

    def _retried(
        self,
        query: Callable[[], dict[TopicPartition, int | None]],
        stop: threading.Event,
    ) -> dict[TopicPartition, int | None]:
        for _ in attempts(SLOWING, stop=stop):
            try:
                return query()
            except BrokerUnavailable as error:
                log.warning("partitions_could_not_be_taken_yet", group=self._group, why=str(error))
        return {}

    def _starts(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int | None]:
        """The committed offsets; None means the beginning of the partition."""
        if not partitions:
            return {}
        asked = [TheirPartition(*p) for p in partitions]
        starts: dict[TopicPartition, int | None] = {}
        try:
            for answer in self._consumer.committed(asked, timeout=self._attempt_s):
                if answer.error is not None:
                    raise KafkaException(answer.error)  # noqa: TRY301 - handled like the others
                known = answer.offset if answer.offset >= 0 else None
                starts[TopicPartition(answer.topic, answer.partition)] = known
            if self._beginning is OffsetReset.LATEST:
                self._commit_ends(starts)
        except KafkaException as error:
            what = f"asking for the committed offsets of group {self._group}"
            raise _ours(error.args[0], what) from error
        return starts

    def _commit_ends(self, starts: dict[TopicPartition, int | None]) -> None:
        """Commits the end offsets at once, so that the next owner does not start at a later end."""
        ends = {
            p: self._consumer.get_watermark_offsets(TheirPartition(*p), timeout=self._attempt_s)[1]
            for p, at in starts.items()
            if at is None
        }
        if ends:
            self.commit(ends)
            starts.update(ends)

    # ------------------------------------------------------------ as a reader

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records; waits for a chunk of them, at most `timeout_s`."""
        self._check()
        if not self._positions:  # a client without partitions returns at once
            time.sleep(timeout_s)
            return ()
        records = []
        with kafka_errors(f"reading for group {self._group}"):
            messages = self._consumer.consume(self._chunk, timeout_s)
        for message in messages:
            source = TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is not None:
                self._on_message_error(source, error, message.offset())
            elif source in self._positions:
                record = _record(message)
                self._positions[source] = record.offset + 1
                self._at_the_end.discard(source)
                self._handed_out.add(source)
                records.append(record)
        return records

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all returned records."""
        return self._positions.get(partition)

    def behind(self) -> int:
        """The number of records at the brokers that were not returned yet, as of the last fetch.

        Records after an open transaction do not count, since they cannot be read yet; nor do
        partitions that have returned nothing since the last call, as when they have no leader.
        """
        moving, self._handed_out = self._handed_out - self._at_the_end, set()
        return records_behind(self._consumer, {p: self._positions.get(p) for p in moving})

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the next offset to read of these partitions."""
        there = {p: at for p, at in offsets.items() if p not in self._missing_since}
        if not there:
            return
        asked = [TheirPartition(p.topic, p.partition, at) for p, at in there.items()]
        try:
            answers = self._consumer.commit(offsets=asked, asynchronous=False) or []
            errors = {TopicPartition(a.topic, a.partition): a.error for a in answers if a.error}
        except KafkaException as failure:
            errors = dict.fromkeys(there, failure.args[0])
        unknown = {p for p, error in errors.items() if error.code() in _UNKNOWN}
        for partition in unknown:
            self._suspect(partition)
        for partition, error in errors.items():
            if partition not in unknown:
                raise self._refusal(partition, error)
        self._check()

    def stay_active(self) -> None:
        """Checks for partitions that were deleted."""
        self._check()

    def close(self) -> None:
        """Closes the client."""
        with kafka_errors(f"closing the reader of group {self._group}"):
            self._consumer.close()

    def _refusal(self, partition: TopicPartition, error: KafkaError) -> Exception:
        what = f"committing {partition} for group {self._group}"
        if error.code() in _HAS_SUBSCRIBED_MEMBERS:
            return ApplyError(
                f"The brokers refused {what}: the group has subscribed members ({error.name()}).",
                hint="A group is either directed or subscribed. Stop the subscribed members, or "
                "use another --group.",
            )
        return _ours(error, what)

    # ------------------------------------------------------------ errors

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._AUTHENTICATION:
            self._failure = error

    def _on_message_error(
        self, source: TopicPartition, error: KafkaError, offset: int | None
    ) -> None:
        if error.code() == KafkaError._PARTITION_EOF:
            if source in self._positions and offset is not None and offset >= 0:
                self._positions[source] = offset
                self._at_the_end.add(source)
        elif error.code() in _UNKNOWN:
            self._suspect(source)
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise records_deleted(self._group, str(source))
        elif error.fatal() or error.code() in _UNREADABLE:
            raise translated(KafkaException(error), f"reading {source} for group {self._group}")
        else:
            log.warning("reading_was_delayed", partition=str(source), why=error.str())

    def _suspect(self, partition: TopicPartition) -> None:
        if partition in self._positions:
            self._missing_since.setdefault(partition, time.monotonic())

    def _check(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise translated(KafkaException(failure), f"reading for group {self._group}")
        now = time.monotonic()
        self._probe(now)
        if not self._missing_since or now < self._look_at:
            return
        self._look_at = now + _LOOK_EVERY_S
        there = self._existing({p.topic for p in self._missing_since}, timeout_s=self._attempt_s)
        if there is None:
            return
        for partition in there & self._missing_since.keys():
            del self._missing_since[partition]
        lost = frozenset(p for p, at in self._missing_since.items() if now - at >= GONE_AFTER_S)
        if lost:
            self.drop(lost)
            log.warning("partitions_were_deleted", group=self._group, partitions=_names(lost))
            self._on_lost(lost)

    def _probe(self, now: float) -> None:
        """Checks every few seconds whether one of the topics still exists, one after another.

        The client does not report every topic that is deleted soon after it was assigned.
        """
        if not self._positions or now < self._probe_at:
            return
        self._probe_at = now + _PROBE_EVERY_S
        topics = sorted({p.topic for p in self._positions})
        self._probed = next((t for t in topics if t > self._probed), topics[0])
        there = self._existing({self._probed}, timeout_s=_CONNECT_ONE_S)
        if there is not None:
            for partition in [p for p in self._positions if p.topic == self._probed]:
                if partition not in there:
                    self._suspect(partition)

    def _existing(self, topics: Collection[str], *, timeout_s: float) -> set[TopicPartition] | None:
        """The partitions of these topics that the brokers know; None when they do not answer."""
        there = set()
        for topic in topics:
            try:
                found = self._consumer.list_topics(topic, timeout=timeout_s).topics[topic]
            except KafkaException:
                return None
            if found.error is None:
                there |= {TopicPartition(topic, number) for number in found.partitions}
            elif found.error.code() not in _UNKNOWN:
                return None
        return there


def records_behind(consumer: Consumer, positions: Mapping[TopicPartition, int | None]) -> int:
    """How many records are between these positions and the ends last reported to the client."""
    behind = 0
    for partition, position in positions.items():
        if position is not None:
            ends = consumer.get_watermark_offsets(TheirPartition(*partition), cached=True)
            behind += max(0, ends[1] - position)
    return behind


def _ours(error: KafkaError, what: str) -> TrimtabError:
    if error.code() in _NO_COORDINATOR:
        return BrokerUnavailable(f"The group coordinator did not answer while {what}.")
    return translated(KafkaException(error), what)


def _record(message: Message) -> Record:
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        _bytes(message.key()),
        _bytes(message.value()),
        headers_of(message),
        message.timestamp()[1],
    )


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _names(partitions: Collection[TopicPartition]) -> list[str]:
    return [str(p) for p in sorted(partitions)]
