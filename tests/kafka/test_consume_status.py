"""The status of a keyed group on real brokers, while no consumer runs."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.chunks import state_key
from trimtab.apply.keys.handover_layout import handover_tombstones, handover_writes, held_writes
from trimtab.apply.keys.key_entry import AwaitedEnd, EntryStatus, KeyEntry, KeyHandover
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.state_layout import entry_text, parked_key, parked_text
from trimtab.apply.keys.stored_json import StoredWrite
from trimtab.cli.main import run
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab.model.record import Record

PARTITIONS = 3
WAIT: KeyEntry[bytes] = KeyEntry(status=EntryStatus.WAIT, set_id=7, awaited=AwaitedEnd(1, 15))
LEFT: KeyEntry[bytes] = KeyEntry(status=EntryStatus.LEFT, set_id=7)
OWN: KeyEntry[bytes] = KeyEntry(value=b"41", last_src=((0, 5),))
WRITTEN_MS = 1_700_000_000_000


def entry(key: bytes, found: KeyEntry[bytes]) -> StoredWrite:
    return state_key(key, 0), entry_text(found)


def send(
    servers: str, topic: str, partition: int, writes: Iterable[StoredWrite], ts: int = WRITTEN_MS
) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for key, value in writes:
        producer.produce(topic, value, key, partition, timestamp=ts)
    assert producer.flush(30) == 0


def stage(servers: str) -> KeyedTopics:
    """Keys a and b wait at partition 0 for END at offset 15 of partition 1, which is at 10."""
    topics = KeyedTopics(f"orders-{uuid.uuid4().hex[:8]}", f"pay-{uuid.uuid4().hex[:8]}")
    with Cluster(servers).admin() as admin:
        for name in (topics.data, topics.state, topics.handover):
            policy = {} if name == topics.data else {"cleanup.policy": "compact"}
            admin.create_topic(
                TopicSpec(name=name, partitions=PARTITIONS, replication=1, settings=policy)
            )
    for partition in (0, 1):
        send(servers, topics.data, partition, [(b"k", b"v")] * 20, ts=0)  # 0: the time of now
    parked = Record(topics.data, 0, 9, b"a", b"12345", (), WRITTEN_MS)
    early = KeyHandover(set_id=9, source=2, value=b"xyz")
    at_0 = [
        entry(b"a", OWN),
        entry(b"a", WAIT),
        entry(b"b", WAIT),
        entry(b"c", OWN),
        (parked_key(b"a", 0), parked_text(parked)),
        *held_writes(b"c", early, 1000),
    ]
    send(servers, topics.state, 0, at_0)
    send(servers, topics.state, 1, [entry(b"d", OWN), entry(b"e", OWN), entry(b"e", LEFT)])
    done = KeyHandover(set_id=3, source=2, value=b"old")
    handovers = [
        *handover_writes(b"c", early, 1000),
        *handover_writes(b"d", done, 1000),
        *handover_tombstones(b"d", 3, 1),
    ]
    send(servers, topics.handover, 0, handovers)
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topics.group})
    offsets = [
        TheirPartition(topics.data, 0, 18),
        TheirPartition(topics.data, 1, 10),
        TheirPartition(topics.handover, 0, 1),
    ]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()
    return topics


def test_a_group_without_consumers_is_described_from_its_topics(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = cluster.bootstrap_servers
    topics = stage(servers)
    named = ["--topic", topics.data, "--group", topics.group, "--bootstrap-server", servers]

    code = run(["consume-status", *named, "--watch", "100ms", "--json"])
    found = json.loads(capsys.readouterr().out)

    assert code == 0
    assert found["summary"][0].startswith("2 keys wait, the oldest for ")
    assert "partition 1 has no reader, 10 records behind" in found["summary"][0]
    assert found["summary"][1].startswith("1 state is under way (")
    assert found["summary"][2] == "Partition 2 was never read by this group."
    first, second, third = found["partitions"]
    assert [first[name] for name in ("owned", "waiting", "left")] == [1, 2, 0]
    assert [first[name] for name in ("parked_records", "parked_bytes")] == [1, 6]
    assert [first[name] for name in ("early_handovers", "handovers_under_way")] == [1, 1]
    assert [first[name] for name in ("lag_records", "handover_lag_records")] == [2, 2]
    assert [second[name] for name in ("owned", "left", "lag_records")] == [1, 1, 10]
    assert [third[name] for name in ("never_read", "lag_records")] == [True, 0]
    assert found["total"]["lag_records"] == 12
    assert {wait["key"] for wait in found["waiting"]} == {"a", "b"}
    assert {wait["since_ts"] for wait in found["waiting"]} == {WRITTEN_MS * 1000}


def test_a_group_that_does_not_consume_by_key_is_refused(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    servers = cluster.bootstrap_servers
    name = f"plain-{uuid.uuid4().hex[:8]}"
    with Cluster(servers).admin() as admin:
        admin.create_topic(TopicSpec(name=name, partitions=1, replication=1))

    code = run(["consume-status", "--topic", name, "--group", "pay", "--bootstrap-server", servers])

    said = capsys.readouterr().err
    assert code == 2
    assert f"Group pay does not consume {name} by key" in said
    assert "trimtab consume --keyed" in said
