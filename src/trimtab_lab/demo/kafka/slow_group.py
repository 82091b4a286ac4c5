"""A consumer group of real members, each of which takes its time for every record.

Why      Lag must come about as it does in life: members are dealt partitions by count (Kafka's
         range assignor), and one of them gets more records than it can handle.
Promise  What is committed was handled. All members have left the group when the block ends.
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

_BATCH_S = 0.1  # work between two polls, so that a stop is soon obeyed
_POLL_S = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoGroup:
    """Who reads what, and how many records per second one member can handle."""

    name: str
    topic: str
    members: int
    pace_s: float


class SlowConsumer:
    """One member; it knows how many records it has handled, and how long that took."""

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
        """Records per second of handling, as it was; None before the first one."""
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
        batch = [m for m in consumer.consume(most, timeout=_POLL_S) if not _is_passing(m.error())]
        if not batch:
            return
        began = time.monotonic()
        if stop.wait(len(batch) / self._group.pace_s):
            return  # not handled to its end, so neither committed nor counted
        try:
            consumer.commit(asynchronous=True)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise
        self.busy_s += time.monotonic() - began
        self.records += len(batch)


def _is_passing(error: KafkaError | None) -> bool:
    """Whether this is no record; raises what does not pass by itself."""
    if error is None:
        return False
    if error.fatal():
        raise KafkaException(error)
    return True


@contextmanager
def slow_group(group: DemoGroup, cluster: Cluster) -> Iterator[tuple[SlowConsumer, ...]]:
    """The members, each running in a thread of its own while the block runs."""
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
