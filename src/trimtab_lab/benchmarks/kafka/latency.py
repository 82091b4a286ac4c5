"""The time from taking a sample until a consumer receives the rates computed from it."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.control import TopicRates
from trimtab.model.rate_parts import RateParts
from trimtab.observe.clock import wall_clock_us

_TIME = re.compile(rb'"ts": ?(\d+)')


@dataclass(slots=True)
class Arrivals:
    """Seconds from each sample until the rates of all partitions had arrived, by sample time."""

    topic: str
    partitions: int
    seconds: dict[int, float] = field(default_factory=dict)
    first: threading.Event = field(default_factory=threading.Event)
    parts: RateParts = field(default_factory=RateParts)

    def take(self, value: bytes, *, now_ts: int) -> None:
        """Adds a record; ignored if it lacks the newest sample of some partition."""
        found: dict[str, Any] = json.loads(value)
        record = TopicRates(  # unchecked, so that reading takes little time from the job
            topic=found["topic"],
            ts=found["ts"],
            part=found.get("part", 0),
            of=found.get("of", 1),
            partitions=found["partitions"],
        )
        joined = self.parts.joined(record) if record.topic == self.topic else None
        if joined is None or len(joined.partitions) != self.partitions:
            return
        fresh: Mapping[Any, Any] = joined.partitions
        if not any(rate["stale"] for rate in fresh.values()):
            self.seconds.setdefault(joined.ts, (now_ts - joined.ts) / 1e6)
            self.first.set()


@contextmanager
def listening(cluster: Cluster, arrivals: Arrivals) -> Iterator[None]:
    """Reads new records of the rates topic in a separate thread."""
    with _reading(cluster, lambda _, value: arrivals.take(value, now_ts=wall_clock_us())):
        yield


@contextmanager
def rate_times(cluster: Cluster, take: Callable[[bytes, int], None]) -> Iterator[None]:
    """Reads only the topic and the time of new records, so that reading takes little time."""

    def read(key: bytes, value: bytes) -> None:
        found = _TIME.search(value)
        if found is not None:
            take(key, int(found[1]))

    with _reading(cluster, read):
        yield


@contextmanager
def _reading(cluster: Cluster, take: Callable[[bytes, bytes], None]) -> Iterator[None]:
    stop = threading.Event()
    with kafka_errors("reading rates"):
        consumer = cluster.consumer(
            "trimtab-bench",
            {
                "group.id": "trimtab-bench",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
                "auto.offset.reset": "latest",
            },
        )
        rates_topic = cluster.topics.rates
        end = consumer.get_watermark_offsets(TopicPartition(rates_topic, 0), timeout=30)[1]
        consumer.assign([TopicPartition(rates_topic, 0, end)])

    def read() -> None:
        while not stop.is_set():
            message = consumer.poll(0.1)
            value = message.value() if message is not None and message.error() is None else None
            if message is not None and value is not None:
                take(message.key() or b"", value)

    thread = threading.Thread(target=read, name="bench-rates", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()
