"""The set audit reads what brokers have stored: all of it, and nothing that was rolled back."""

from __future__ import annotations

import uuid

from confluent_kafka import Producer

from tests.unit.services.keyed_topics_world import PARTITIONS, RECEIPTS, A, travelled
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topic_log import topic_logs
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.services.evaluate_sets import audited


def test_topics_on_brokers_are_audited_without_aborted_records(cluster: LocalCluster) -> None:
    name = f"sets-{uuid.uuid4().hex[:8]}"
    world = travelled(name)
    known = Cluster(cluster.bootstrap_servers, topics=OwnTopics(f"{name}."))
    with known.admin() as admin:
        for topic in world.logs:
            target = known.topics.receipts if topic == RECEIPTS else topic
            admin.create_topic(TopicSpec(name=target, partitions=PARTITIONS, replication=1))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for topic, log in world.logs.items():
        target = known.topics.receipts if topic == RECEIPTS else topic
        for record in (record for partition in log for record in partition):
            producer.produce(
                target,
                record.value,
                key=record.key,
                partition=record.partition,
                headers=list(record.headers),
            )
    assert producer.flush(30) == 0
    rolled_back = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name}
    )
    rolled_back.init_transactions(30)
    rolled_back.begin_transaction()
    for record in world.logs[RECEIPTS][A[0] % PARTITIONS]:
        rolled_back.produce(
            known.topics.receipts, record.value, key=record.key, partition=record.partition
        )
    rolled_back.flush(30)
    rolled_back.abort_transaction(30)

    found = audited(known, name, "pay")

    assert found.findings == ()
    assert (found.keys, found.applied, found.sets, found.adoptions) == (2, 6, 3, 3)
    assert found.complete
    with topic_logs(known, client_id="test") as logs:
        assert logs(f"{name}.nowhere") is None
