"""What a run left in our topics, with the times at which it was said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.experiments.live.kafka.conduct import Conducted, Place
from trimtab.experiments.live.response import Heard, Published, Said
from trimtab.measure.kafka.admin import connect
from trimtab.measure.kafka.spans import offsets_between
from trimtab.model.cluster import TopicPartition
from trimtab.workload.kafka.errors import kafka_errors

_POLL_S = 10.0
_CHANGES = ("scale_up", "scale_down", "reassign")


def told(place: Place, run: Conducted) -> Heard:
    """Rates, decisions and control records of a run, from when it was ready to its end."""

    def ours(value: Any) -> bool:
        return run.ready_ts <= int(value["ts"]) <= run.ended_ts

    own = place.own
    rates = [
        Published(value["ts"], published_ts)
        for value, published_ts in _records(place, own.rates, run)
        if value["topic"] == run.topic and ours(value)
    ]
    decisions = [
        Published(value["ts"], published_ts)
        for value, published_ts in _records(place, own.decisions, run)
        if value["group"] == run.group and value["action"] in _CHANGES and ours(value)
    ]
    control = [
        Said(value["type"], value["ts"])
        for value, _ in _records(place, own.control(run.group), run)
        if ours(value)
    ]
    return Heard(rates=rates, decisions=decisions, control=control)


def _records(place: Place, topic: str, run: Conducted) -> Iterator[tuple[Any, int]]:
    """Values of a topic, and when each was published, in microseconds."""
    with connect(place.bootstrap_server, place.properties) as admin:
        names = [p.name for p in admin.topics([topic]) if not p.offline]
    span = offsets_between(
        place.bootstrap_server, place.properties, names, from_ts=run.ready_ts, to_ts=run.ended_ts
    )
    filled = {p: (span.starts[p], span.ends[p]) for p in names if span.starts[p] < span.ends[p]}
    config = {
        "client.id": "trimtab-told",
        **place.properties.for_confluent(),
        "bootstrap.servers": place.bootstrap_server,
        "group.id": "trimtab-told",  # never joined: partitions are assigned by hand
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    with kafka_errors(f"reading {topic}"), closing(Consumer(config)) as consumer:
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
