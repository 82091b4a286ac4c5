"""Reads parts of the telemetry log: what a ring has missed, and its newest records."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import OFFSET_END, Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as Place

from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors

_SETTINGS = {
    "group.id": "trimtab-rates",  # required by the client; no group is joined
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
}
_TIME = re.compile(rb'"ts"\s*:\s*(\d+)')


class LogRecord(NamedTuple):
    """A telemetry record: its offset, the time of its arrival in microseconds, and its value."""

    offset: int
    arrived_ts: int
    value: bytes | None


def read_log(
    cluster: Cluster, partition: int, *, from_ts: int, least_offset: int, until_offset: int
) -> Iterator[LogRecord]:
    """Records from `from_ts` on, but not below `least_offset`, up to `until_offset` (exclusive)."""
    topic, timeouts = cluster.topics.telemetry, cluster.timeouts
    what = f"reading {topic}-{partition} again"
    with kafka_errors(what), closing(cluster.consumer("trimtab-rates", _SETTINGS)) as consumer:
        asked = [Place(topic, partition, max(0, from_ts // 1000))]
        (found,) = consumer.offsets_for_times(asked, timeout=timeouts.request_s)
        if found.offset < 0 or found.offset == OFFSET_END:
            return
        first = max(found.offset, least_offset)
        if first >= until_offset:
            return
        consumer.assign([Place(topic, partition, first)])
        deadline = time.monotonic() + timeouts.request_s
        while True:
            message = consumer.poll(POLL_SLICE_S)
            if message is None:
                if time.monotonic() > deadline:
                    raise BrokerUnavailable(f"No answer within {timeouts.request_s:g} s: {what}.")
                continue
            deadline = time.monotonic() + timeouts.request_s
            error = message.error()
            if error is not None:
                if error.code() == KafkaError._PARTITION_EOF:
                    return
                raise BrokerUnavailable(f"{what}: {error.str()}")
            record = _record(message)
            if record.offset >= until_offset:
                return
            yield record
            if record.offset == until_offset - 1:
                return


def newest_record(cluster: Cluster, partitions: Iterable[int]) -> LogRecord | None:
    """The newest record of the telemetry log; None if there is none."""
    topic = cluster.topics.telemetry
    with (
        kafka_errors(f"reading the end of {topic}"),
        closing(cluster.consumer("trimtab-rates", _SETTINGS)) as consumer,
    ):
        found = _newest(consumer, [Place(topic, p) for p in partitions], cluster.timeouts.request_s)
    return None if found is None else found[1]


def recent_sample_times(
    cluster: Cluster, partitions: Iterable[int], *, most: int = 3
) -> tuple[int, ...]:
    """The times of the newest samples in the telemetry log, newest first.

    The records of a sample are written after its time, so what was written before is older.
    """
    topic, request_s = cluster.topics.telemetry, cluster.timeouts.request_s
    times: list[int] = []
    with (
        kafka_errors(f"reading the end of {topic}"),
        closing(cluster.consumer("trimtab-rates", _SETTINGS)) as consumer,
    ):
        found = _newest(consumer, [Place(topic, p) for p in partitions], request_s)
        while found is not None:
            partition, record = found
            times.append(_sample_time(record))
            if len(times) == most:
                break
            asked = [Place(topic, partition, times[-1] // 1000)]
            (first,) = consumer.offsets_for_times(asked, timeout=request_s)
            place = Place(topic, partition)
            low, _ = consumer.get_watermark_offsets(place, timeout=request_s)
            end = first.offset if 0 <= first.offset <= record.offset else record.offset
            before = _read_at(consumer, place, end - 1, request_s) if end > low else None
            found = None if before is None else (partition, before)
    return tuple(times)


def _newest(
    consumer: Consumer, places: Iterable[Place], request_s: float
) -> tuple[int, LogRecord] | None:
    """The newest of the last records of these partitions, and its partition."""
    found = []
    for place in places:
        low, high = consumer.get_watermark_offsets(place, timeout=request_s)
        record = _read_at(consumer, place, high - 1, request_s) if high > low else None
        if record is not None:
            found.append((place.partition, record))
    return max(found, key=lambda last: last[1].arrived_ts, default=None)


def _read_at(consumer: Consumer, place: Place, offset: int, request_s: float) -> LogRecord | None:
    consumer.assign([Place(place.topic, place.partition, offset)])
    message = consumer.poll(request_s)
    return None if message is None or message.error() is not None else _record(message)


def _sample_time(record: LogRecord) -> int:
    """The time of the sample that a record is of; that of its arrival if it has none."""
    found = _TIME.search(record.value or b"", 0, 1000)
    return record.arrived_ts if found is None else min(int(found[1]), record.arrived_ts)


def _record(message: Message) -> LogRecord:
    return LogRecord(int(message.offset() or 0), message.timestamp()[1] * 1000, message.value())
