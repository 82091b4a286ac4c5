"""Keyed consumers on real brokers: the loop of tasks against the plain cycle, and a restore.

Both sides of `keyed_task` read the same records with a handler that does almost nothing and write a
receipt for each; every run has a group of its own. `keyed_restore` compares a restore with a bare
consume of the same changelog.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from confluent_kafka import OFFSET_BEGINNING, KafkaError
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.cycle import Cycle
from trimtab.apply.consumers.kafka.directed_reader import DirectedReader
from trimtab.apply.consumers.kafka.outbox import Outbox, ReceiptTopic
from trimtab.apply.consumers.work import Work
from trimtab.apply.keys.chunks import state_key
from trimtab.apply.keys.kafka.keyed_work import KeyedWork
from trimtab.apply.keys.kafka.state_reader import read_state, state_consumer
from trimtab.apply.keys.kafka.topic_checks import checked_topics
from trimtab.apply.keys.key_entry import KeyEntry
from trimtab.apply.keys.keyed_handler import BytesCodec, KeyedHandler
from trimtab.apply.keys.state_layout import entry_text
from trimtab.apply.totals import Totals
from trimtab.kafka.admin import Admin, TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import ensure
from trimtab.local.cluster import LocalCluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.services.keyed_consumer import KeyedConsumer
from trimtab.workload.kafka.fill import FillRecord, fill
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second

CLUSTER = "bench"
PARTITIONS = 4
KEYS = 10_000
VALUE_BYTES = 100


def keyed_task(context: BenchContext, rows: int, runs: int) -> Sides:
    """Records per second until all are committed; `rows` is the number of records."""
    with _brokers(context) as cluster:
        topic = f"bench-task-{uuid.uuid4().hex[:8]}"
        with cluster.admin() as admin:
            ends = fill_data(admin, cluster, topic, rows)
            ensure(admin, [t for t in cluster.topics.of_group("bench") if "receipts" in t.name])
            groups = [f"bench-{uuid.uuid4().hex[:8]}" for _ in range(runs + 1)]
            for group in groups:  # the topics of a group are created once in its life
                checked_topics(admin, [topic], group)
        seconds = alternating(
            lambda: consume_keyed(cluster, topic, ends, groups.pop()),
            lambda: consume_plain(cluster, ends),
            runs=runs,
        )
    return rows_per_second(
        rows, seconds, partitions=PARTITIONS, keys=KEYS, value_bytes=VALUE_BYTES, brokers=3
    )


def keyed_restore(context: BenchContext, rows: int, runs: int) -> Sides:
    """Entries per second of a restore; `rows` is the number of entries."""
    with _brokers(context) as cluster:
        topic = f"bench-state-{uuid.uuid4().hex[:8]}"
        with cluster.admin() as admin:
            admin.create_topic(TopicSpec(name=topic, partitions=1, replication=1))
        text = fill_changelog(cluster, topic, rows)
        seconds = alternating(
            lambda: restore(cluster, topic), lambda: consume_bare(cluster, topic), runs=runs
        )
    return rows_per_second(rows, seconds, entry_bytes=len(text), key_bytes=20, guide=200_000)


def fill_changelog(cluster: Cluster, topic: str, rows: int) -> bytes:
    """Writes the entries of that many keys; returns the text of one."""
    text = entry_text(KeyEntry(value=b"x" * 36, last_src=((0, 123456),)))
    place = TopicPartition(topic, 0)
    fill(
        (FillRecord(place, text, state_key(b"customer-%011d" % n, 0)) for n in range(rows)),
        cluster,
        {"queue.buffering.max.messages": 500_000},
        what=topic,
    )
    return text


def _kept(_key: bytes, state: bytes | None, _record: Record) -> tuple[bytes, tuple[()]]:
    return state or b"x" * 36, ()


def consume_keyed(
    cluster: Cluster, topic: str, ends: Mapping[TopicPartition, int], group: str
) -> Totals:
    """Reads the whole topic with tasks, from fencing to the last commit."""
    stop = threading.Event()
    work = KeyedWork(handler=KeyedHandler(_kept, codec=BytesCodec()))
    keyed = KeyedConsumer(cluster=cluster, group=group, topics=(topic,), work=work)
    reader = DirectedReader(group, cluster, client_id="bench", on_lost=lambda _: None)
    try:
        with keyed(client_id="bench", incarnation="bench", stop=stop, on_fenced=None) as worker:
            worker.attach(reader)
            worker.prepare(list(ends))
            for partition, committed in reader.take(list(ends), stop).items():
                worker.begin(partition, committed)
            return worker.run(lambda: _end(worker.committed, ends, stop))
    finally:
        reader.close()


def consume_plain(cluster: Cluster, ends: Mapping[TopicPartition, int]) -> Totals:
    """Reads the whole topic with the plain cycle."""
    group, stop = f"bench-{uuid.uuid4().hex[:8]}", threading.Event()
    reader = DirectedReader(group, cluster, client_id="bench", on_lost=lambda _: None)
    receipts = ReceiptTopic(
        Outbox(cluster, client_id="bench-receipts", linger_ms=50),
        cluster.topics.receipts,
        run="bench",
        group=group,
        consumer=0,
        incarnation="bench",
    )
    try:
        cycle = Cycle(reader, Work(handler=lambda _: None, receipts=receipts), stop=stop)
        for partition, committed in reader.take(list(ends), stop).items():
            cycle.begin(partition, committed)
        return cycle.run(lambda: _end(cycle.committed, ends, stop), lambda: False)
    finally:
        reader.close()


def _end(
    known: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], stop: threading.Event
) -> None:
    if all(known.get(partition, -1) >= end for partition, end in ends.items()):
        stop.set()


def restore(cluster: Cluster, topic: str) -> int:
    """Restores all entries of a changelog; returns how many there are."""
    with state_consumer(cluster, client_id="bench-restore", group="bench") as consumer:
        found = read_state(consumer, topic, 0, stop=threading.Event(), timeout_s=30.0)
    return 0 if found is None else len(found[0].entries)


def consume_bare(cluster: Cluster, topic: str) -> int:
    """Reads the same records and looks at nothing; returns how many there are."""
    count = 0
    with state_consumer(cluster, client_id="bench-bare", group="bench") as consumer:
        consumer.assign([TheirPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            messages = consumer.consume(10_000, 0.2)
            last = messages[-1].error() if messages else None
            count += len(messages)
            if last is not None and last.code() == KafkaError._PARTITION_EOF:
                return count - 1


def fill_data(admin: Admin, cluster: Cluster, topic: str, rows: int) -> dict[TopicPartition, int]:
    """Creates a topic with that many records; returns where its partitions end."""
    admin.create_topic(TopicSpec(name=topic, partitions=PARTITIONS, replication=1))
    places = [TopicPartition(topic, p) for p in range(PARTITIONS)]
    value = b"v" * VALUE_BYTES
    fill(
        (
            FillRecord(places[n % PARTITIONS], value, b"customer-%011d" % (n % KEYS))
            for n in range(rows)
        ),
        cluster,
        {"queue.buffering.max.messages": 500_000},
        what=topic,
    )
    return {name: rows // PARTITIONS + (name.partition < rows % PARTITIONS) for name in places}


@contextmanager
def _brokers(context: BenchContext) -> Iterator[Cluster]:
    local = LocalCluster(CLUSTER, home=context.home, cache=context.cache, say=context.say)
    local.up()
    try:
        yield Cluster(local.bootstrap_servers)
    finally:
        local.down(keep_data=True)
