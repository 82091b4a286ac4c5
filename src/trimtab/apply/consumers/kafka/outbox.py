"""Sends what a consumer produces beside its work: dead letters, receipts, reports.

Promise  A record is sent again until all in-sync replicas have acknowledged it; `confirm` returns
         only then. A producer with a fatal error is replaced. A dead outgoing is accepted whatever
         the handler raised; one too large for its topic is sent without its value, and one whose
         timestamp the topic refuses (`message.timestamp.before.max.ms`) with the current time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer

from trimtab.apply.handling import error_text
from trimtab.errors import BrokerUnavailable
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.kafka.publisher import reliable
from trimtab.kafka.topics import replicas_for
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.model.record import Headers, Record
from trimtab.model.timeouts import milliseconds
from trimtab.observe.logging import library_log

log = library_log()

_DEAD_KEPT_MS = 30 * 24 * 60 * 60 * 1000
_HEADERS_ROOM = 64 * 1024
_MOST = 2**31 - 1
_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_ONE_BAD_RECORD = _TOO_LARGE | {KafkaError.INVALID_TIMESTAMP}
"""Errors that brokers return for a whole batch because of one record in it."""
_PERMANENT = frozenset(
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


class _Outgoing(NamedTuple):
    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int = -1
    timestamp_ms: int = 0
    smaller: tuple[_Outgoing, ...] = ()  # to send instead, in this order, if it is too large
    alone: bool = False


class Outbox:
    """An idempotent producer that resends until acknowledged; may be used by several threads."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        linger_ms: int = 0,
    ) -> None:
        self._attempt_s = cluster.timeouts.attempt_s
        self._config = reliable(cluster, client_id=client_id, linger_ms=linger_ms) | {
            "partitioner": "murmur2_random",
            # Long: a record that has failed is only sent again.
            "message.timeout.ms": milliseconds(2 * cluster.timeouts.delivery_s),
            "message.max.bytes": 1_000_000_000,  # the topic's limit is checked by the brokers
            "error_cb": self._on_error,
        }
        self._guard = threading.Lock()
        self._failed: deque[tuple[_Outgoing, KafkaError]] = deque()
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
        """Queues a record for sending; never raises, and waits only when the buffer is full.

        `smaller` are key, value and headers to send instead if the record is too large. A
        timestamp that the topic refuses is kept in the header `tt-timestamp`.
        """
        at = (partition, max(timestamp_ms, 0))
        others = tuple(_Outgoing(topic, *parts, *at, alone=True) for parts in smaller)
        self._send(_Outgoing(topic, key, value, headers, *at, others))

    def confirm(self, within_s: float | None = None) -> None:
        """Returns when all queued records are acknowledged; waits for `attempt_s` by default.

        Raises `BrokerUnavailable` if they are not yet: call it again.
        """
        within_s = self._attempt_s if within_s is None else within_s
        if self._broken:  # a fatal error of an idempotent producer is permanent
            with self._guard:
                self._producer.purge()
                self._producer.flush(1.0)  # reports each purged record as failed
                with kafka_errors("starting a producer again"):
                    self._producer, self._broken = Producer(self._config), False
        for _ in range(len(self._failed)):
            self._send_again(*self._failed.popleft(), within_s)
        left = self._producer.flush(within_s)
        for outgoing, error in tuple(self._failed):
            if error.code() in _PERMANENT and not _may_fit(outgoing, error):
                raise translated(KafkaException(error), f"writing to topic {outgoing.topic}")
        if left or self._failed:
            why = f": {self._failed[0][1].str()}" if self._failed else ""
            raise BrokerUnavailable(
                f"{left + len(self._failed)} records are not acknowledged{why}.",
                hint="Check that the brokers run and have enough in-sync replicas.",
            )

    def _send_again(self, outgoing: _Outgoing, why: KafkaError, within_s: float) -> None:
        """Sends a failed record again: alone in its batch, then a replacement for it."""
        if not _may_fit(outgoing, why):
            self._send(outgoing)
            return
        if outgoing.alone:
            outgoing = _instead(outgoing, why)
        self._producer.flush(within_s)  # so that it is alone in its batch
        self._send(outgoing._replace(alone=True))
        self._producer.flush(within_s)

    def _send(self, outgoing: _Outgoing) -> None:
        def on_delivery(error: KafkaError | None, _message: Any) -> None:
            if error is not None:
                self._failed.append((outgoing, error))
                log.warning("record_was_not_delivered", topic=outgoing.topic, why=error.str())

        deadline = time.monotonic() + self._attempt_s
        with self._guard:
            while True:
                try:
                    self._producer.produce(
                        outgoing.topic,
                        outgoing.value,
                        outgoing.key,
                        outgoing.partition,
                        on_delivery=on_delivery,
                        timestamp=outgoing.timestamp_ms,
                        headers=list(outgoing.headers),
                    )
                    break
                except BufferError:
                    if time.monotonic() > deadline:
                        self._failed.append((outgoing, KafkaError(KafkaError._QUEUE_FULL)))
                        break
                    self._producer.poll(POLL_SLICE_S)
                except KafkaException as error:
                    self._failed.append((outgoing, error.args[0]))
                    break
            self._producer.poll(0)

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._broken = True
            log.warning("producer_failed", why=error.str())


def _may_fit(outgoing: _Outgoing, error: KafkaError) -> bool:
    """Whether a refused record may be accepted alone in its batch, or a replacement for it."""
    more = outgoing.smaller if error.code() in _TOO_LARGE else outgoing.timestamp_ms
    return error.code() in _ONE_BAD_RECORD and (bool(more) or not outgoing.alone)


def _instead(outgoing: _Outgoing, why: KafkaError) -> _Outgoing:
    """The replacement: a smaller record, or the same one with the current time."""
    if why.code() in _TOO_LARGE:
        smaller, *rest = outgoing.smaller
        return smaller._replace(smaller=tuple(rest))
    return _of_now(outgoing)._replace(smaller=tuple(_of_now(other) for other in outgoing.smaller))


def _of_now(outgoing: _Outgoing) -> _Outgoing:
    was = _text_headers({"tt-timestamp": str(outgoing.timestamp_ms)})
    return outgoing._replace(timestamp_ms=0, headers=(*outgoing.headers, *was))


class DeadLetterTopics:
    """Writes records to `<topic>.dead`, unchanged, with the error in their headers.

    It opens its own producer at the first dead letter, so that unacknowledged dead letters are
    not mixed up with other records.
    """

    def __init__(
        self,
        open_outbox: Callable[[], Outbox],
        open_admin: Callable[[], AbstractContextManager[Admin]],
    ) -> None:
        self._open_outbox = open_outbox
        self._open_admin = open_admin
        self._outbox: Outbox | None = None
        self._existing: set[str] = set()

    def send(self, record: Record, error: BaseException) -> None:
        """Queues a record whose handler failed at every attempt."""
        dead = f"{record.topic}.dead"
        text = error_text(error)
        log.error(
            "record_sent_to_dead_letters",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            why=text,
            to=dead,
        )
        self._ensure(dead, like=record.topic)
        if self._outbox is None:
            self._outbox = self._open_outbox()
        place = _text_headers(
            {
                "tt-error": text,
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
        """Returns when all dead letters are acknowledged."""
        if self._outbox is not None:
            self._outbox.confirm()

    def _ensure(self, dead: str, *, like: str) -> None:
        if dead in self._existing:
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
        self._existing.add(dead)


class ReceiptTopic:
    """Writes a receipt for every processed record to the topic of receipts."""

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
        """Queues the receipt of one record."""
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
        """Returns when all receipts are acknowledged."""
        self._outbox.confirm()


def _text_headers(texts: Mapping[str, str]) -> Headers:
    return tuple((name, text.encode()) for name, text in texts.items())


def _micros(time_ms: int) -> int:
    """Microseconds, limited to 64 bits, so that receipts stay readable with any producer clock."""
    return max(-(2**63), min(time_ms * 1000, 2**63 - 1))


def _number(header: bytes | None) -> int | None:
    """A number from a header: eight bytes, big-endian, signed; None if it is not one."""
    if header is None or len(header) != 8:
        return None
    return int.from_bytes(header, "big", signed=True)
