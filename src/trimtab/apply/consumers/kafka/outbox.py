"""What a consumer sends beside its work: dead letters, receipts, reports.

Promise  What was put is delivered, or put again, until it is acknowledged by all in-sync replicas;
         `confirm` returns only then. A producer that broke for good is replaced. A dead letter is
         taken whatever was raised; one that its topic finds too large goes without its value, and
         one whose time it does not take (`message.timestamp.before.max.ms`) with the time of now.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from trimtab.apply.consumers.handling import error_text
from trimtab.errors import BrokerUnavailable
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.kafka.publisher import reliable
from trimtab.kafka.topics import replicas_for
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.model.record import Headers, Record
from trimtab.observe.logging import library_log

log = library_log()

_CONFIRM_S = 10.0
_DEAD_KEPT_MS = 30 * 24 * 60 * 60 * 1000
_HEADERS_ROOM = 64 * 1024
_MOST = 2**31 - 1
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_ODD = _TOO_LARGE | {KafkaError.INVALID_TIMESTAMP}
"""What the brokers say of a whole batch for the sake of one record in it."""
_HOPELESS = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.RECORD_LIST_TOO_LARGE,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)


class _Letter(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0
    smaller: tuple[_Letter, ...] = ()  # to be sent in its place when it is too large, in turn
    alone: bool = False


class Outbox:
    """An idempotent producer that insists; may be used by several threads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        linger_ms: int = 0,
    ) -> None:
        self._config = reliable(cluster, client_id=client_id, linger_ms=linger_ms) | {
            "partitioner": "murmur2_random",
            "message.timeout.ms": 120_000,
            "message.max.bytes": 1_000_000_000,  # what the topic takes is the brokers' business
            "error_cb": self._on_error,
        }
        self._guard = threading.Lock()
        self._failed: deque[tuple[_Letter, KafkaError]] = deque()
        self._broken = False
        with kafka_errors(f"starting the producer {client_id}"):
            self._producer = Producer(self._config)

    def put(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        partition: int = -1,
        timestamp_ms: int = 0,
        smaller: Sequence[tuple[bytes | None, bytes | None, Headers]] = (),
    ) -> None:
        """Takes a record to be sent; never raises, and waits only when the buffer is full.

        `smaller` are key, value and headers to send instead if the record is too large. A time
        that the topic does not take goes into the header `tt-timestamp`.
        """
        at = (partition, max(timestamp_ms, 0))
        others = tuple(_Letter(topic, *parts, *at, alone=True) for parts in smaller)
        self._send(_Letter(topic, key, value, headers, *at, others))

    def confirm(self, within_s: float = _CONFIRM_S) -> None:
        """Returns when all that was put is acknowledged.

        Raises `BrokerUnavailable` when it is not so yet: ask again.
        """
        if self._broken:  # an idempotent producer that lost its place never finds it again
            with self._guard:
                self._producer.purge()
                self._producer.flush(1.0)  # reports each purged record as failed
                with kafka_errors("starting a producer again"):
                    self._producer, self._broken = Producer(self._config), False
        for _ in range(len(self._failed)):
            self._send_again(*self._failed.popleft(), within_s)
        left = self._producer.flush(within_s)
        for letter, error in tuple(self._failed):
            if error.code() in _HOPELESS and not _may_fit(letter, error):
                raise translated(KafkaException(error), f"writing to topic {letter.topic}")
        if left or self._failed:
            why = f": {self._failed[0][1].str()}" if self._failed else ""
            raise BrokerUnavailable(
                f"{left + len(self._failed)} records are not acknowledged{why}.",
                hint="Check that the brokers run and have enough in-sync replicas.",
            )

    def _send_again(self, letter: _Letter, why: KafkaError, within_s: float) -> None:
        """Sends a failed record; one that was refused alone in its batch, then another for it."""
        if not _may_fit(letter, why):
            self._send(letter)
            return
        if letter.alone:
            letter = _instead(letter, why)
        self._producer.flush(within_s)  # so that it is alone in its batch
        self._send(letter._replace(alone=True))
        self._producer.flush(within_s)

    def _send(self, letter: _Letter) -> None:
        def on_delivery(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                self._failed.append((letter, error))
                log.warning("record_was_not_delivered", topic=letter.topic, why=error.str())

        deadline = time.monotonic() + _CONFIRM_S
        with self._guard:
            while True:
                try:
                    self._producer.produce(
                        letter.topic,
                        letter.value,
                        letter.key,
                        letter.partition,
                        on_delivery=on_delivery,
                        timestamp=letter.timestamp_ms,
                        headers=list(letter.headers),
                    )
                    break
                except BufferError:
                    if time.monotonic() > deadline:
                        self._failed.append((letter, KafkaError(KafkaError._QUEUE_FULL)))
                        break
                    self._producer.poll(0.1)
                except KafkaException as error:
                    self._failed.append((letter, error.args[0]))
                    break
            self._producer.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
            log.warning("producer_broke", why=error.str())


def _may_fit(letter: _Letter, error: KafkaError) -> bool:
    """Whether a record that was refused may be taken alone in its batch, or another for it."""
    more = letter.smaller if error.code() in _TOO_LARGE else letter.timestamp_ms
    return error.code() in _ODD and (bool(more) or not letter.alone)


def _instead(letter: _Letter, why: KafkaError) -> _Letter:
    """A smaller record, or the same one with the time of now."""
    if why.code() in _TOO_LARGE:
        smaller, *rest = letter.smaller
        return smaller._replace(smaller=tuple(rest))
    return _of_now(letter)._replace(smaller=tuple(_of_now(other) for other in letter.smaller))


def _of_now(letter: _Letter) -> _Letter:
    was = _text_headers({"tt-timestamp": str(letter.timestamp_ms)})
    return letter._replace(timestamp_ms=0, headers=(*letter.headers, *was))


class DeadLetterTopics:
    """Writes records to `<topic>.dead`, as they were, with what went wrong in their headers.

    It has a producer of its own from the first dead letter on, so that what is not acknowledged
    is never taken for another kind of record.
    """

    def __init__(
        self,
        open_outbox: Callable[[], Outbox],
        open_admin: Callable[[], AbstractContextManager[Admin]],
    ) -> None:
        self._open_outbox = open_outbox
        self._open_admin = open_admin
        self._outbox: Outbox | None = None
        self._there: set[str] = set()

    def bury(self, record: Record, error: BaseException) -> None:
        """Takes a record whose handler failed for good."""
        dead = f"{record.topic}.dead"
        told = error_text(error)
        log.error(
            "record_was_given_up",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            why=told,
            to=dead,
        )
        self._ensure(dead, like=record.topic)
        if self._outbox is None:
            self._outbox = self._open_outbox()
        place = _text_headers(
            {
                "tt-error": told,
                "tt-topic": record.topic,
                "tt-partition": str(record.partition),
                "tt-offset": str(record.offset),
            }
        )
        headers = (*record.headers, *place)
        no_value = _text_headers({"tt-omitted": "value"})
        only_place = _text_headers({"tt-omitted": "key, value, headers"})
        self._outbox.put(
            dead,
            record.value,
            key=record.key,
            headers=headers,
            timestamp_ms=record.timestamp_ms,
            smaller=(
                (record.key, None, (*headers, *no_value)),
                (None, None, (*place, *only_place)),
            ),
        )

    def confirm(self) -> None:
        """Returns when all that was taken is safe."""
        if self._outbox is not None:
            self._outbox.confirm()

    def _ensure(self, dead: str, *, like: str) -> None:
        if dead in self._there:
            return
        with self._open_admin() as admin:
            if not admin.topics([dead]):
                largest = int((admin.topic_settings(like) or {}).get("max.message.bytes", 1048588))
                replication = replicas_for(admin)
                spec = TopicSpec(
                    name=dead,
                    partitions=max(1, len(admin.topics([like]))),
                    replication=replication,
                    settings={
                        "retention.ms": str(_DEAD_KEPT_MS),
                        "max.message.bytes": str(min(largest + _HEADERS_ROOM, _MOST)),
                        "min.insync.replicas": str(max(1, replication - 1)),
                    },
                )
                admin.create_topic(spec)
        self._there.add(dead)


class ReceiptTopic:
    """Notes every processed record in the topic of receipts."""

    def __init__(
        self, outbox: Outbox, topic: str, *, run: str, group: str, consumer: int, incarnation: str
    ) -> None:
        self._outbox = outbox
        self._topic = topic
        self._run = run
        self._group = group
        self._consumer = consumer
        self._incarnation = incarnation

    def note(self, record: Record, started_ts: int, finished_ts: int) -> None:
        """Takes the note of one record."""
        event_ts = _number(record.header("tt-ts"))
        receipt = Receipt(
            run=self._run,
            group=self._group,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            key=record.key,
            seq=_number(record.header("tt-seq")),
            consumer=self._consumer,
            incarnation=self._incarnation,
            event_ts=_micros(record.timestamp_ms) if event_ts is None else event_ts,
            started_ts=started_ts,
            finished_ts=finished_ts,
        )
        self._outbox.put(self._topic, dumps(receipt_to(receipt)).encode(), key=record.key)

    def confirm(self) -> None:
        """Returns when all notes are safe."""
        self._outbox.confirm()


def _text_headers(texts: Mapping[str, str]) -> Headers:
    return tuple((name, text.encode()) for name, text in texts.items())


def _micros(time_ms: int) -> int:
    """In 64 bits, whatever a producer has made of its clock: else no reader takes the receipt."""
    return max(-(2**63), min(time_ms * 1000, 2**63 - 1))


def _number(header: bytes | None) -> int | None:
    """A number of a header: eight bytes, the highest first, signed."""
    if header is None or len(header) != 8:
        return None
    return int.from_bytes(header, "big", signed=True)
