"""A consumer group of real members, each of which needs a fixed time per record.

Why      Lag has its usual cause: partitions are assigned by count (Kafka's range assignor), and
         one member gets more records than it can handle.
Promise  Committed records were handled. All members have left the group when the block ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaError, KafkaException

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors

_BATCH_S = 0.1  # handling time between two polls; short, so that a stop takes effect soon
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoGroup:
    """The group, its topic and size, and how many records per second one member can handle."""

    name: str
    topic: str
    members: int
    pace_s: float


class SlowConsumer:
    """One member; counts the records it has handled and the time that took."""

    def __init__(self, group: DemoGroup, cluster: Cluster) -> None:
        self.records = 0
        self.busy_s = 0.0
        self._group = group
        self._cluster = cluster
        self._settings = {
            "group.id": group.name,
            "partition.assignment.strategy": "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }

    @property
    def speed_s(self) -> float | None:
        """Measured records per second of handling time; None before the first record."""
        return self.records / self.busy_s if self.busy_s else None

    def run(self, stop: threading.Event) -> None:
        """Reads, handles and commits until `stop` is set."""
        with kafka_errors(f"reading {self._group.topic} as {self._group.name}"):
            consumer = self._cluster.consumer(f"trimtab-demo-{self._group.name}", self._settings)
            try:
                consumer.subscribe([self._group.topic])
                while not stop.is_set():
                    self._handle_some(consumer, stop)
            finally:
                consumer.close()

    def _handle_some(self, consumer: Consumer, stop: threading.Event) -> None:
        most = max(1, round(self._group.pace_s * _BATCH_S))
        batch = [m for m in consumer.consume(most, timeout=_POLL_S) if not _is_error(m.error())]
        if not batch:
            return
        began = time.monotonic()
        if stop.wait(len(batch) / self._group.pace_s):
            return  # interrupted, so neither committed nor counted
        try:
            consumer.commit(asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise
        self.busy_s += time.monotonic() - began
        self.records += len(batch)


def _is_error(error: KafkaError | None) -> bool:
    """Whether a message is a temporary error instead of a record; raises fatal errors."""
    if error is None:
        return False
    if error.fatal():
        raise KafkaException(error)
    return True


@contextmanager
def slow_group(group: DemoGroup, cluster: Cluster) -> Iterator[tuple[SlowConsumer, ...]]:
    """Runs the members, each in its own thread, while the block runs."""
    members = tuple(SlowConsumer(group, cluster) for _ in range(group.members))
    stop = threading.Event()
    with ThreadPoolExecutor(group.members, thread_name_prefix=group.name) as threads:
        running = [threads.submit(member.run, stop) for member in members]
        try:
            yield members
        finally:
            stop.set()
        for run in running:
            run.result()
