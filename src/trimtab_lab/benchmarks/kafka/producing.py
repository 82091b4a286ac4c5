"""The cost of `RoutedProducer`, compared with the confluent-kafka producer that it wraps.

Both sides send the same keyless records to the same topic, poll equally often, and end with a
flush. The plain producer lets the client choose the partition. Each pair of producers is opened
once and used alternately. CPU time of the calling thread is reported as well: it is the cost for an
application that does not send at full speed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from confluent_kafka import Producer

from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.errors import MeasurementError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.plan.records.partitioner import Granularity, RoutingOptions
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating

CLUSTER = "bench"
TOPIC = "bench-produce"
PARTITIONS = 12
VALUE_BYTES = 100
_POLL_EVERY = 100
_CONFIG = {"linger.ms": 5, "queue.buffering.max.messages": 2_000_000}


def produce(context: BenchContext, rows: int, runs: int) -> Sides:
    """Records per second until all are acknowledged; `rows` is the number of records."""
    with _cluster(context) as servers:
        return compared(servers, TOPIC, rows, runs, context.say)


def compared(
    servers: str, topic: str, rows: int, runs: int, say: Callable[[str], None] = lambda _: None
) -> Sides:
    """Does the same on a running cluster with an existing topic."""
    found: dict[str, Sides] = {}
    spent: dict[str, float] = {}
    config = {**_CONFIG, "bootstrap.servers": servers}
    for what, options, with_callback in (
        ("node", RoutingOptions(), False),
        ("node per batch of 16 kB", _per_batch(16_384), False),
        ("node per batch of 1 MB", _per_batch(1_000_000), False),
        ("node, with a callback on both sides", RoutingOptions(), True),
    ):
        say(what)
        with Producer(config) as theirs, RoutedProducer(config, "node", options) as routed:
            ours = ProducerSide(routed, topic, rows, with_callback=with_callback)
            bare = ProducerSide(theirs, topic, rows, with_callback=with_callback)
            seconds = alternating(ours, bare, runs=runs)
        each = [tuple(rows / s for s in side) for side in seconds]
        found[what] = Sides(ours=each[0], rival=each[1])
        spent[what] = ours.thread_us
        spent["bare" + (", with a callback" if with_callback else "")] = bare.thread_us
    shown = found["node"]
    return Sides(
        ours=shown.ours,
        rival=shown.rival,
        settings={
            "value_bytes": VALUE_BYTES,
            "partitions": PARTITIONS,
            "brokers": 3,
            "replication": 1,
            "acks": "all",
            "linger_ms": _CONFIG["linger.ms"],
            "ratios": {
                what: round(median(s.ours) / median(s.rival), 3) for what, s in found.items()
            },
            "thread_us_per_record": spent,
        },
    )


def _per_batch(sticky_bytes: int) -> RoutingOptions:
    return RoutingOptions(granularity=Granularity.PER_BATCH, sticky_bytes=sticky_bytes)


class ProducerSide:
    """Sends `rows` records through a producer, and waits until they are acknowledged."""

    def __init__(self, producer: Any, topic: str, rows: int, *, with_callback: bool) -> None:
        self._producer = producer
        self._topic = topic
        self._rows = rows
        self._more = {"on_delivery": self._delivered} if with_callback else {}
        self._failures = 0
        self._spent_us: list[float] = []

    @property
    def thread_us(self) -> float:
        """CPU time of the calling thread per record, without the flush; minimum of all runs."""
        return round(min(self._spent_us), 2)

    def __call__(self) -> None:
        """Sends all records."""
        produce, poll = self._producer.produce, self._producer.poll
        topic, value, more = self._topic, b"v" * VALUE_BYTES, self._more
        began = time.thread_time()
        for row in range(self._rows):
            produce(topic, value, **more)
            if not row % _POLL_EVERY:
                poll(0)
        self._spent_us.append(1e6 * (time.thread_time() - began) / self._rows)
        left = self._producer.flush(120)
        if left or self._failures:
            raise MeasurementError(
                f"{left + self._failures} records for topic {self._topic} were not acknowledged.",
                hint="Check that the brokers are running, then run the benchmark again.",
            )

    def _delivered(self, error: object, _message: object) -> None:
        self._failures += error is not None


@contextmanager
def _cluster(context: BenchContext) -> Iterator[str]:
    """Starts the brokers of the benchmarks and creates an empty topic."""
    cluster = LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say)
    cluster.up()
    try:
        servers = cluster.bootstrap_servers
        with Cluster(servers).admin() as admin:
            admin.delete_topic(TOPIC)
            admin.create_topic(
                TopicSpec(name=TOPIC, partitions=PARTITIONS, replication=1, settings={})
            )
            try:
                yield servers
            finally:
                admin.delete_topic(TOPIC)
    finally:
        cluster.down(keep_data=True)
