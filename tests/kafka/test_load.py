"""Load on real brokers: all of it arrives, in order, with its headers, and outlives a broker."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import pyarrow.parquet as pq
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.kafka.streams import wait_until
from trimtab.cli import main
from trimtab.kafka.cluster import Cluster
from trimtab.model.murmur2 import home
from trimtab.workload import due
from trimtab.workload.kafka.load import ensure_topic, send
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot
from trimtab.workload.load_summary import Ack
from trimtab.workload.rate_streams import ezzeddine_workload_1


class Stored(NamedTuple):
    """A record as the log has it."""

    key: bytes | None
    seq: int | None
    partition: int
    offset: int
    ts: int
    size: int


@pytest.fixture
def topic():
    return f"load-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def load(cluster, monkeypatch, tmp_path, capsys):
    """Runs `trimtab load … --json` against the cluster; gives the exit code and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        server = ("--bootstrap-server", cluster.bootstrap_servers)
        code = main.run(["load", *arguments, *server, "--json"])
        said = capsys.readouterr()
        return code, json.loads(said.out) if said.out else said.err

    return run


def test_what_is_asked_for_is_sent_acknowledged_and_in_the_log(cluster, load, topic):
    before = time.time_ns() // 1000
    code, said = load(
        *("keys", "--topic", topic, "--create", "4", "--rate", "2000", "--duration", "2s"),
        *("--keys", "300", "--seed", "3", "--value-bytes", "64"),
    )
    after = time.time_ns() // 1000

    stored = read_back(cluster, topic)
    assert code == 0
    assert said["asked"] == said["sent"] == said["acknowledged"] == len(stored)
    assert len(stored) == sum(end_offsets(cluster, topic).values())
    assert len(stored) == pytest.approx(4000, abs=300)
    assert {record.partition for record in stored} == {0, 1, 2, 3}
    assert all(record.partition == home(record.key or b"", 4) for record in stored)
    assert all(before <= record.ts <= after for record in stored)
    assert {record.size for record in stored} == {64}
    for sequence in by_key(stored).values():
        assert sequence == list(range(1, len(sequence) + 1))


def test_each_partition_gets_as_many_records_as_its_rates_ask_for(cluster, load, topic):
    code, said = load(
        *("rates", "--topic", topic, "--create", "5", "--schedule", "ezzeddine-1"),
        *("--stretch", "0.004", "--scale", "10", "--value-bytes", "10"),
    )

    schedule = ezzeddine_workload_1().scaled(10).stretched(0.004)
    stored = read_back(cluster, topic)
    counts = Counter(record.partition for record in stored)
    assert code == 0
    assert said["sent"] == len(stored)
    for partition in range(5):
        asked = schedule.cumulative(partition, schedule.duration_s)
        assert abs(counts[partition] - asked) < 1
        numbers = [r.seq for r in stored if r.partition == partition]
        assert numbers == list(range(1, counts[partition] + 1))


def test_keyless_records_have_neither_key_nor_number(cluster, load, topic):
    load("keyless", "--topic", topic, "--create", "3", "--rate", "500", "--duration", "1s")

    stored = read_back(cluster, topic)
    assert len(stored) == pytest.approx(500, abs=120)
    assert {(record.key, record.seq) for record in stored} == {(None, None)}


def test_a_recorded_load_replays_the_same_keys_in_the_same_partitions(cluster, load, topic):
    again = f"{topic}-again"
    _, first = load(
        *("keys", "--topic", topic, "--create", "4", "--rate", "1000", "--duration", "2s"),
        *("--keys", "100", "--record", "trace.parquet"),
    )
    code, second = load("trace", "trace.parquet", "--topic", again, "--create", "4", "--speed", "4")

    assert code == 0
    assert second["sent"] == first["sent"]
    assert keys_of(read_back(cluster, again)) == keys_of(read_back(cluster, topic))


def test_a_trace_says_where_each_record_lies(cluster, load, topic):
    load(
        *("keys", "--topic", topic, "--create", "4", "--rate", "500", "--duration", "1s"),
        *("--record", "trace.parquet"),
    )

    rows = pq.read_table("trace.parquet").to_pylist()
    found = {(row["partition"], row["offset"]): row["key"] for row in rows}
    assert found == {(r.partition, r.offset): r.key for r in read_back(cluster, topic)}


def test_a_missing_topic_and_one_too_small_are_refused(cluster, load, topic):
    missing = load("rates", "--topic", topic, "--schedule", "ezzeddine-1")
    ensure_topic(topic, cluster=Cluster(cluster.bootstrap_servers), create=2)
    small = load("rates", "--topic", topic, "--schedule", "ezzeddine-1")

    assert missing[0] == small[0] == 2
    assert f"There is no topic {topic}" in missing[1]
    assert "--create 5" in missing[1]
    assert "has 2 partitions; this load needs 5" in small[1]


def test_a_topic_that_would_be_too_small_is_not_even_made(cluster, load, topic):
    refused = load("rates", "--topic", topic, "--schedule", "ezzeddine-1", "--create", "2")
    code, _ = load(
        *("rates", "--topic", topic, "--schedule", "ezzeddine-1", "--create", "5"),
        *("--duration", "1s"),
    )

    assert refused[0] == 2
    assert "this load needs 5" in refused[1]
    assert code == 0


def test_more_replicas_than_brokers_are_a_wrong_question(load, topic):
    code, said = load(
        *("keyless", "--topic", topic, "--create", "1", "--replication-factor", "7"),
        *("--duration", "1s"),
    )

    assert code == 2
    assert "--replication-factor" in said


# ---- a broker killed ----------------------------------------------------------------------------


def test_nothing_acknowledged_is_missing_after_a_broker_was_killed(cluster, topic):
    stream = KeyStream(rate_s=1000.0, seed=11, distribution=ZipfMandelbrot(keys=200))
    servers = cluster.bootstrap_servers
    ensure_topic(topic, cluster=Cluster(servers), create=3)
    acks: list[Ack] = []
    stop = threading.Event()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(
            send,
            due.keyed(stream, duration_s=300.0, value_bytes=50),
            topic=topic,
            cluster=Cluster(servers),
            on_ack=acks.append,
            stop=stop,
        )
        try:
            wait_until(lambda: len(acks) > 1000 or running.done())
            victim = leader(servers, topic, 0)
            cluster.kill(victim)
            try:
                wait_until(lambda: leader(servers, topic, 0) not in {victim, -1})
                moved = len(acks)
                wait_until(lambda: sum(ack.partition == 0 for ack in acks[moved:]) > 300)
            finally:
                cluster.start(victim)
        finally:
            stop.set()
        summary = running.result(timeout=90)

    stored = read_back(cluster, topic)
    assert (summary.failed, summary.fatal) == (0, None)
    assert summary.acknowledged == summary.sent == len(acks)
    assert faults(acks, stored) == []

    # The same referee, with a fault planted in what was read back.
    assert_notices(acks, [*stored[:700], *stored[701:]], "missing")
    assert_notices(acks, [*stored[:700], stored[700], *stored[700:]], "stored twice")
    key = max(by_key(stored), key=lambda k: len(by_key(stored)[k]))
    first, second = [at for at, record in enumerate(stored) if record.key == key][:2]
    swapped = list(stored)
    swapped[first], swapped[second] = stored[second], stored[first]
    assert_notices(acks, swapped, "out of order")


def faults(acks: Iterable[Ack], stored: Sequence[Stored]) -> list[str]:
    """What is wrong with a log, given all that was acknowledged."""
    log = {(r.partition, r.offset): (r.key, r.seq) for r in stored}
    found = [
        f"missing: {ack}"
        for ack in acks
        if log.get((ack.partition, ack.offset)) != (ack.key, ack.seq)
    ]
    for key, numbers in by_key(stored).items():
        if len(set(numbers)) < len(numbers):
            found.append(f"stored twice: {key!r}")
        elif numbers != sorted(numbers):
            found.append(f"out of order: {key!r}")
    return found


def assert_notices(acks, stored, what):
    assert any(fault.startswith(what) for fault in faults(acks, stored))


# ---- asking the brokers -------------------------------------------------------------------------


def by_key(stored: Iterable[Stored]) -> dict[bytes | None, list[int]]:
    """The numbers of each key's records, as they lie in the log."""
    found = defaultdict(list)
    for record in stored:
        found[record.key].append(record.seq or 0)
    return found


def keys_of(stored: Iterable[Stored]) -> dict[int, list[bytes | None]]:
    """The keys of each partition, as they lie in the log."""
    found = defaultdict(list)
    for record in stored:
        found[record.partition].append(record.key)
    return found


def read_back(cluster, topic) -> list[Stored]:
    """All records of a topic, partition by partition, in the order of offsets."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "never-committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    partitions = list(end_offsets(cluster, topic))
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Stored] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 180
    while len(ended) < len(partitions):
        assert time.monotonic() < deadline, "the topic could not be read to its end"
        messages: list[Any] = consumer.consume(5000, timeout=0.2)
        for message in messages:
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
                continue
            numbers = {
                name: int.from_bytes(value, "big", signed=True)
                for name, value in message.headers()
                if len(value) == 8
            }
            found.append(
                Stored(
                    key=message.key(),
                    seq=numbers.get("tt-seq"),
                    partition=message.partition(),
                    offset=message.offset(),
                    ts=numbers["tt-ts"],
                    size=len(message.value()),
                )
            )
    consumer.close()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def end_offsets(cluster, topic) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "asks"})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    ends = {
        p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=10)[1]
        for p in partitions
    }
    consumer.close()
    return ends


def leader(servers, topic, partition):
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return admin.list_topics(topic, timeout=10).topics[topic].partitions[partition].leader
