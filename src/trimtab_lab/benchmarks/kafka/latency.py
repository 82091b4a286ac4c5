"""The time from taking a sample until a consumer receives the rates computed from it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import TopicPartition

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.control import TopicRates
from trimtab.model.rate_parts import RateParts
from trimtab.observe.clock import wall_clock_us


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
            if value is not None:
                arrivals.take(value, now_ts=wall_clock_us())

    thread = threading.Thread(target=read, name="bench-rates", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        consumer.close()
