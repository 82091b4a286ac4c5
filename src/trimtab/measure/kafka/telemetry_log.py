"""Reads a part of the telemetry log again, for a ring that has missed it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import NamedTuple

from confluent_kafka import OFFSET_END, KafkaError, Message
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
    topic, timeouts = cluster.topics.telemetry, cluster.timeouts
    newest: LogRecord | None = None
    with (
        kafka_errors(f"reading the end of {topic}"),
        closing(cluster.consumer("trimtab-rates", _SETTINGS)) as consumer,
    ):
        for partition in partitions:
            place = Place(topic, partition)
            low, high = consumer.get_watermark_offsets(place, timeout=timeouts.request_s)
            if high <= low:
                continue
            consumer.assign([Place(topic, partition, high - 1)])
            message = consumer.poll(timeouts.request_s)
            if message is None or message.error() is not None:
                continue
            record = _record(message)
            if newest is None or record.arrived_ts > newest.arrived_ts:
                newest = record
    return newest


def _record(message: Message) -> LogRecord:
    return LogRecord(int(message.offset() or 0), message.timestamp()[1] * 1000, message.value())
