"""Reads records of our own topics between two times, with their publication times."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.kafka.errors import kafka_errors
from trimtab.kafka.spans import offsets_between
from trimtab.model.cluster import TopicPartition

if TYPE_CHECKING:
    from trimtab_lab.papers.live.kafka.live_site import LiveSite

_POLL_S = 10.0


def own_records(
    place: LiveSite, topic: str, *, from_ts: int, to_ts: int
) -> Iterator[tuple[Any, int]]:
    """The values of a topic, and the time each was published, in microseconds."""
    with place.cluster.admin() as admin:
        names = [p.name for p in admin.topics([topic]) if not p.offline]
    span = offsets_between(place.cluster, names, from_ts=from_ts, to_ts=to_ts)
    filled = {p: (span.starts[p], span.ends[p]) for p in names if span.starts[p] < span.ends[p]}
    settings = {
        "group.id": "trimtab-told",  # never joined: partitions are assigned explicitly
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    with (
        kafka_errors(f"reading {topic}"),
        closing(place.cluster.consumer("trimtab-told", settings)) as consumer,
    ):
        consumer.assign([TheirPartition(*p, first) for p, (first, _) in filled.items()])
        left = set(filled)
        while left:
            message = consumer.poll(_POLL_S)
            if message is None:
                return
            source = TopicPartition(message.topic() or "", message.partition() or 0)
            if (error := message.error()) is not None:
                if error.code() != error._PARTITION_EOF:
                    raise KafkaException(error)
                left.discard(source)
            elif source in left:
                yield json.loads(message.value() or b"{}"), message.timestamp()[1] * 1000
