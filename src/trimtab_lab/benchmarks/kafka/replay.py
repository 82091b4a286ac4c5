"""Telemetry of a large cluster, written once a second as its monitor would, without the cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

from trimtab.kafka.cluster import Cluster
from trimtab.model.telemetry import TELEMETRY_VERSION
from trimtab.observe.clock import wall_clock_us

PER_TOPIC = 50
"""Partitions of a topic."""

_STEP_BYTES, _STEP_RECORDS, _LAG = 1000, 10, 5


def topic_names(partitions: int) -> list[str]:
    """The topics of a cluster of this many partitions."""
    return [f"replayed-{number}" for number in range(max(1, partitions // PER_TOPIC))]


def sample_record(topic: str, partitions: int, *, ts: int, step: int) -> bytes:
    """The sample of one topic; every partition grows at a rate of its own."""
    numbers = range(partitions)
    value: dict[str, Any] = {
        "v": TELEMETRY_VERSION,
        "sample_id": str(step),
        "ts": ts,
        "cluster": "replayed",
        "topic": topic,
        "partition": list(numbers),
        "leader": [n % 3 + 1 for n in numbers],
        "replicas": [[n % 3 + 1] for n in numbers],
        "isr": [[n % 3 + 1] for n in numbers],
        "log_bytes": [step * _STEP_BYTES * (n + 1) for n in numbers],
        "begin_offset": [0] * partitions,
        "end_offset": [step * _STEP_RECORDS * (n + 1) for n in numbers],
        "committed": {"g": [max(0, step * _STEP_RECORDS * (n + 1) - _LAG) for n in numbers]},
    }
    return json.dumps(value, separators=(",", ":")).encode()


@contextmanager
def replaying(cluster: Cluster, partitions: int) -> Iterator[None]:
    """Writes a sample every second from a separate process while the block runs."""
    arguments = (cluster.servers, cluster.topics.telemetry, partitions)
    process = get_context("spawn").Process(target=_replay, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()


def _replay(servers: str, telemetry: str, partitions: int) -> None:
    settings = {"linger.ms": 5, "partitioner": "murmur2_random"}
    producer = Cluster(servers).producer("trimtab-replay", settings)
    topics, size = topic_names(partitions), min(partitions, PER_TOPIC)
    start, step = time.monotonic(), 0
    while True:
        step += 1
        ts = wall_clock_us()
        for topic in topics:
            value = sample_record(topic, size, ts=ts, step=step)
            producer.produce(telemetry, value, topic.encode())
            producer.poll(0)
        producer.flush(10)
        time.sleep(max(0.0, start + step - time.monotonic()))
