"""Which offsets a span of time covers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from confluent_kafka import OFFSET_END, Consumer
from confluent_kafka import TopicPartition as Place

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition

_TIMEOUT_S = 20.0
_GENEROUS_S = 600

AHEAD_S = 60
"""A record stamped further ahead of our clock is stamped in the future."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSpan:
    """Offsets per partition, `starts` included, `ends` not.

    `cut` names the partitions whose log begins later than the span does: what was there before is
    gone, so counts over the span are too low. `born` names those whose very first record is in it.
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
    """The offsets of records stamped from `from_ts` (included) to `to_ts` (not), in microseconds.

    Kafka keeps milliseconds, and producers stamp as they like: a record may stand behind one that
    is stamped later. So the end lies generously behind `to_ts`, and the reader filters by time.
    Where the record that would be the end is stamped in the future, it says nothing of when it was
    written: the end is that of the log then.
    """
    named, now = sorted(partitions), time.time_ns() // 1000
    settings = {
        "group.id": "trimtab-spans",  # never joined: nothing is subscribed to
        "enable.auto.commit": False,
    }
    with kafka_errors("looking up the offsets of a span"):
        consumer = cluster.consumer("trimtab-spans", settings)
        try:
            marks = {
                p: consumer.get_watermark_offsets(Place(*p), timeout=_TIMEOUT_S) for p in named
            }
            starts = _at(consumer, named, from_ts // 1000, marks)
            generous = to_ts + _GENEROUS_S * 1_000_000
            ends = {p: end for p, (_, end) in marks.items()}
            if generous < now:
                found = _at(consumer, named, -(-generous // 1000), marks)
                ahead = _at(consumer, named, (now + AHEAD_S * 1_000_000) // 1000, marks)
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
) -> dict[TopicPartition, int]:
    """The first offset at or after a time; the end of the log when there is none."""
    asked = [Place(topic, partition, ts_ms) for topic, partition in partitions]
    found = {}
    for place in consumer.offsets_for_times(asked, timeout=_TIMEOUT_S) if asked else ():
        name = TopicPartition(place.topic, place.partition)
        at_end = place.offset < 0 or place.offset == OFFSET_END
        found[name] = marks[name][1] if at_end else place.offset
    return found
