"""What the tests of the pipeline share: known records, brute-force counts, waiting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq
from confluent_kafka import Consumer, Producer, TopicPartition

from trimtab.observe import clock


class Known(NamedTuple):
    """A record as it was sent, and where it landed."""

    topic: str
    partition: int
    offset: int
    ts_ms: int
    key: bytes | None
    size: int


def _known(m: Any) -> Known:
    size = len(m.key() or b"") + len(m.value() or b"")
    return Known(m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), size)


wait_until = partial(clock.wait_until, within_s=240.0, every_s=0.2)
"""Real brokers may take their time; a caller may give another deadline."""


def produce(
    bootstrap: str, topic: str, records: Iterable[tuple[int, bytes | None, int]]
) -> list[Known]:
    """Sends (time in ms, key, size of the value); all are acknowledged when this returns."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "partitioner": "murmur2_random"}
    )
    landed: list[Known] = []

    def on_delivery(error: object, message: Any) -> None:
        assert error is None, error
        landed.append(_known(message))

    for ts_ms, key, size in records:
        producer.produce(topic, b"v" * size, key, timestamp=ts_ms, on_delivery=on_delivery)
        producer.poll(0)
    assert producer.flush(60) == 0
    return landed


def read_all(bootstrap: str, topic: str, partitions: int) -> list[Known]:
    """Everything that is in a topic, read plainly."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "brute-force",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found, ended = [], 0
    while ended < partitions:
        m = consumer.poll(30)
        assert m is not None, "the topic did not end"
        if m.error():
            ended += 1
            continue
        found.append(_known(m))
    consumer.close()
    return found


def counts(records: Iterable[Known], window_ms: int) -> dict[tuple[int, int], tuple[int, int]]:
    """Records and bytes per (window number, partition), by brute force."""
    number: Counter[tuple[int, int]] = Counter()
    size: Counter[tuple[int, int]] = Counter()
    for r in records:
        place = (r.ts_ms // window_ms, r.partition)
        number[place] += 1
        size[place] += r.size
    return {place: (number[place], size[place]) for place in number}


def key_counts(records: Iterable[Known], window_ms: int) -> Counter[tuple[int, bytes]]:
    """Records per (window number, key), by brute force."""
    return Counter((r.ts_ms // window_ms, r.key) for r in records if r.key is not None)


def stored(warehouse: Path, table: str) -> list[dict[str, Any]]:
    """The rows that are in a table by now, read without Spark.

    For waiting: a Spark job per look would take the processor from what is waited for.
    """
    found: list[dict[str, Any]] = []
    for path in (warehouse / table).glob("date=*/run=*/*.parquet"):
        with suppress(FileNotFoundError):  # its run is being written again
            found += pq.ParquetFile(path).read().to_pylist()
    return found
