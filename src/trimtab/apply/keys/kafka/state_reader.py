"""Reads what a task has left behind: its changelog, from the beginning to its end.

Promise  `read_state` returns everything that was committed before it was called, if the task was
         fenced first. `state_end` is compared with what a sleeping task remembers.
Cost     All records since the last compaction, about 200 000 per second; the values of small
         entries are not parsed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.state_layout import RestoredState
from trimtab.apply.keys.stored_json import BrokenState
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors, translated
from trimtab.observe.logging import library_log

log = library_log()

_AT_ONCE = 10_000
_WAIT_S = 0.2
_SAY_EVERY_S = 0.5

OnProgress = Callable[[int, int], None]
"""Called with the records read and the records there are, about twice a second."""


@contextmanager
def state_consumer(cluster: Cluster, *, client_id: str, group: str) -> Iterator[Consumer]:
    """A consumer for changelogs; it never commits."""
    with kafka_errors("opening a reader of changelogs"):
        consumer = cluster.consumer(
            client_id,
            {
                "group.id": group,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,
            },
        )
    try:
        yield consumer
    finally:
        consumer.close()


def state_end(consumer: Consumer, topic: str, partition: int, *, timeout_s: float) -> int:
    """The end of a changelog, without open transactions."""
    with kafka_errors(f"asking for the end of {topic}-{partition}"):
        _, end = consumer.get_watermark_offsets(
            TheirPartition(topic, partition), timeout=timeout_s
        ) or (None, None)
    if end is None:
        raise BrokerUnavailable(f"No broker told the end of {topic}-{partition}.")
    return int(end)


def read_state(
    consumer: Consumer,
    topic: str,
    partition: int,
    *,
    stop: threading.Event,
    timeout_s: float,
    entries: MutableMapping[bytes, bytes] | None = None,
    on_progress: OnProgress = lambda _read, _all: None,
) -> tuple[RestoredState, int] | None:
    """The state of a task and the offset behind it; None if `stop` was set first."""
    restored = RestoredState(entries)
    end = state_end(consumer, topic, partition, timeout_s=timeout_s)
    say_at = time.monotonic() + _SAY_EVERY_S
    with kafka_errors(f"restoring {topic}-{partition}"):
        consumer.assign([TheirPartition(topic, partition, OFFSET_BEGINNING)])
        while not stop.is_set():
            for message in consumer.consume(_AT_ONCE, _WAIT_S):
                error = message.error()
                if error is None:
                    _add(restored, topic, partition, message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    reached = message.offset() or 0
                    if reached < end:
                        continue  # a replica that lags behind
                    consumer.unassign()
                    _finish(restored, topic, partition)
                    return restored, reached
                elif error.fatal() or not error.retriable():
                    raise translated(KafkaException(error), f"restoring {topic}-{partition}")
            if time.monotonic() > say_at:
                say_at = time.monotonic() + _SAY_EVERY_S
                on_progress(restored.records, end)
    return None


def _add(restored: RestoredState, topic: str, partition: int, message: object) -> None:
    key = message.key()  # type: ignore[attr-defined]
    if key is None:
        return
    try:
        restored.add(key, message.value())  # type: ignore[attr-defined]
    except BrokenState as error:
        raise _unreadable(topic, partition, error) from error


def _finish(restored: RestoredState, topic: str, partition: int) -> None:
    try:
        restored.finish()
    except BrokenState as error:
        raise _unreadable(topic, partition, error) from error


def _unreadable(topic: str, partition: int, error: BrokenState) -> ApplyError:
    return ApplyError(
        f"The changelog {topic}-{partition} cannot be read: {error}.",
        hint="Was it written by a newer version, or by something else? Nothing was changed.",
    )
