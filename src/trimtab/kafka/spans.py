"""Finds the offsets of a time span."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer
from confluent_kafka import TopicPartition as Place

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition
from trimtab.observe.clock import wall_clock_us

_PADDING_S = 600

AHEAD_S = 60
"""A record with a timestamp further ahead of our clock counts as from the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """Offsets per partition, `starts` inclusive, `ends` exclusive.

    `cut` are the partitions whose log starts later than the span: earlier records were deleted, so
    counts over the span are too low. `born` are those whose first record ever is in the span.
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    cut: frozenset[TopicPartition] = frozenset()
    born: frozenset[TopicPartition] = frozenset()


def offsets_between(
    cluster: Cluster,
    partitions: Iterable[TopicPartition],
    *,
    from_ts: int,
    to_ts: int,
) -> OffsetSpan:
    """The offsets of records from `from_ts` (inclusive) to `to_ts` (exclusive), in microseconds.

    Kafka stores milliseconds, and producers set timestamps freely, so a record may follow one with
    a later timestamp. The end is therefore looked up well after `to_ts`, and the reader filters by
    time. If the record found there has a timestamp in the future, that says nothing about when it
    was written, and the end of the log is used instead.
    """
    named, now, request_s = sorted(partitions), wall_clock_us(), cluster.timeouts.request_s
    settings = {
        "group.id": "trimtab-spans",  # required by the client; no group is joined
        "enable.auto.commit": False,
    }
    with kafka_errors("looking up the offsets of a span"):
        consumer = cluster.consumer("trimtab-spans", settings)
        try:
            marks = {p: consumer.get_watermark_offsets(Place(*p), timeout=request_s) for p in named}
            starts = _at(consumer, named, from_ts // 1000, marks, request_s)
            padded = to_ts + _PADDING_S * 1_000_000
            ends = {p: end for p, (_, end) in marks.items()}
            if padded < now:
                found = _at(consumer, named, -(-padded // 1000), marks, request_s)
                future_ms = (now + AHEAD_S * 1_000_000) // 1000
                ahead = _at(consumer, named, future_ms, marks, request_s)
                ends |= {p: end for p, end in found.items() if end != ahead[p]}
        finally:
            consumer.close()
    return OffsetSpan(
        starts=starts,
        ends={p: max(ends[p], starts[p]) for p in named},
        cut=frozenset(p for p in named if starts[p] == marks[p][0] > 0),
        born=frozenset(p for p in named if starts[p] == 0 < marks[p][1]),
    )


def _at(
    consumer: Consumer,
    partitions: list[TopicPartition],
    ts_ms: int,
    marks: Mapping[TopicPartition, tuple[int, int]],
    request_s: float,
) -> dict[TopicPartition, int]:
    """The first offset at or after a time; the end of the log if there is none."""
    asked = [Place(topic, partition, ts_ms) for topic, partition in partitions]
    found = {}
    for place in consumer.offsets_for_times(asked, timeout=request_s) if asked else ():
        name = TopicPartition(place.topic, place.partition)
        at_end = place.offset < 0 or place.offset == OFFSET_END
        found[name] = marks[name][1] if at_end else place.offset
    return found
