"""Steering on real brokers: equal, one slowed, one hung, the steering process dead."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaError

from tests.kafka.streams import wait_until
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.apply.records.kafka.steering import open_steering
from trimtab.apply.records.kafka.weights_reader import WeightsReader
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics
from trimtab.local.cluster import LocalCluster
from trimtab.plan.records.live_weights import LiveWeights
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab_lab.slow_broker import slowed

NONE = ClientProperties.none()
EQUAL = {1: 1.0, 2: 1.0, 3: 1.0}


@contextmanager
def steering(cluster: LocalCluster, own: OwnTopics, folder: Path) -> Iterator[Any]:
    """`trimtab steer --execute` as a process; its lines of JSON go to a file."""
    with (folder / "steer.json").open("w") as said:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "trimtab.cli.main", "steer", "--execute", "--json"),
                *("--valid", "4s", "--bootstrap-server", cluster.bootstrap_servers),
            ],
            env={"PATH": "/usr/bin:/bin", "TRIMTAB_TOPIC_PREFIX": own.prefix, "HOME": str(folder)},
            stdout=said,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def sent(producer: RoutedProducer, topic: str, records: int) -> Mapping[int, int]:
    """Sends records without keys; returns how many landed in each partition."""
    landed: Counter[int] = Counter()

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        assert error is None
        landed[message.partition()] += 1

    for _ in range(records):
        producer.produce(topic, b"x" * 100, on_delivery=on_delivery)
    assert producer.flush(60) == 0
    return landed


def test_producers_leave_a_slow_broker_alone_and_come_back(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    own, topic = OwnTopics(f"s{uuid.uuid4().hex[:8]}."), f"steered-{uuid.uuid4().hex[:8]}"
    server, live = cluster.bootstrap_servers, LiveWeights()
    config = {"bootstrap.servers": server, "acks": 1, "on_delivery": lambda *_: None}
    with Cluster(server).admin() as admin:
        admin.create_topic(
            TopicSpec(name=topic, partitions=3, replication=1, assignment={0: [1], 1: [2], 2: [3]})
        )
    with (
        steering(cluster, own, tmp_path) as process,
        WeightsReader(config, live, topic=own.weights),
        RoutedProducer(config, "weighted-node", RoutingOptions(weights=live)) as producer,
    ):
        wait_until(lambda: live() == EQUAL, within_s=180, what="equal weights")

        with slowed(cluster, broker=2, share=0.7, period_s=0.2):
            wait_until(lambda: live().get(2, 1.0) < 0.1, within_s=30, what="a low weight")
            landed = sent(producer, topic, 300)
        assert landed[1] < 30
        assert landed[0] + landed[2] > 270
        wait_until(lambda: live() == EQUAL, within_s=180, what="recovery")

        cluster.pause(3)
        try:
            wait_until(lambda: live().get(3, 1.0) == 0.0, within_s=30, what="weight 0")
        finally:
            cluster.resume(3)
        wait_until(lambda: live().get(3, 0.0) > 0.5, within_s=180, what="a broker that is back")

        process.kill()
        wait_until(lambda: live() == {}, within_s=30, what="staleness")
        assert sorted(sent(producer, topic, 300).values()) == [100, 100, 100]

    changes = [json.loads(line) for line in (tmp_path / "steer.json").read_text().splitlines()]
    assert any(change["brokers"]["2"]["why"] == "slow" for change in changes)
    assert any(change["brokers"]["3"]["why"] == "silent" for change in changes)
    assert all(change["published"] for change in changes)


def test_without_execute_nothing_is_published(cluster: LocalCluster) -> None:
    own = OwnTopics(f"s{uuid.uuid4().hex[:8]}.")
    with open_steering(Cluster(cluster.bootstrap_servers, topics=own), execute=False) as steerer:
        report = steerer.run(threading.Event(), for_s=3.0)

    assert report.weights.keys() == EQUAL.keys()
    assert report.published == 0
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        assert admin.topics([own.weights]) == ()
        assert [tuple(p.replicas) for p in admin.topics([own.probe])] == [(1,), (2,), (3,)]
