"""Rates on the executors of a real Spark cluster, of which a worker is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.streams import wait_until
from tests.standalone import standalone_cluster
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics, ensure_topics
from trimtab.local.cluster import LocalCluster

TOPICS = [f"t{number}" for number in range(8)]
WINDOW_S = 60


@pytest.fixture
def own(cluster: LocalCluster) -> OwnTopics:
    topics = OwnTopics(f"own-{uuid.uuid4().hex[:8]}.")
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        ensure_topics(admin, topics)
    return topics


@contextmanager
def _sampling(cluster: LocalCluster, telemetry: str) -> Iterator[None]:
    """A sample of every topic twice a second, of one partition that grows by a byte per ms."""
    stop = threading.Event()

    def sample() -> None:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
        while not stop.wait(0.5):
            ts = time.time_ns() // 1000
            for topic in TOPICS:
                columns = {"partition": [0], "leader": [1], "log_bytes": [ts // 1000]}
                value = {"v": 2, "sample_id": "s", "ts": ts, "topic": topic, **columns}
                more = {"replicas": [[1]], "isr": [[1]], "begin_offset": [0], "end_offset": [0]}
                producer.produce(telemetry, json.dumps(value | more).encode(), topic.encode())
            producer.flush(30)

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


class Rates:
    """What is published, read as it comes."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.newest: dict[str, dict[str, Any]] = {}

    def newer_than(self, ts: int) -> bool:
        """Whether every topic has rates of a sample after this time."""
        while (message := self._consumer.poll(0.1)) is not None:
            if message.error() is None:
                value = json.loads(message.value() or b"")
                self.newest[value["topic"]] = value
        return all(topic in self.newest and self.newest[topic]["ts"] > ts for topic in TOPICS)


@contextmanager
def _measuring(cluster: LocalCluster, own: OwnTopics, master: str, folder: Path) -> Iterator[None]:
    (folder / "events").mkdir()
    command = [sys.executable, "-m", "trimtab.cli.main", "measure", "--continuous"]
    command += ["--bootstrap-server", cluster.bootstrap_servers, "--no-monitor", "--keys", "none"]
    command += ["--window", f"{WINDOW_S}s", "--master", master]
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "700m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (folder / "events").as_uri(),
    }.items():
        command += ["--conf", f"{name}={value}"]
    environment = os.environ | {
        "TRIMTAB_HOME": str(folder / "home"),
        "TRIMTAB_TOPIC_PREFIX": own.prefix,
        "TRIMTAB_MEASURE__RATES_ON": "executors",
    }
    with (folder / "measure.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait(120)


def _tasks_by_executor(folder: Path) -> Counter[str]:
    """Finished tasks that wrote rates, by executor, from Spark's own event log."""
    found: Counter[str] = Counter()
    for path in (folder / "events").rglob("*"):
        for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
            if '"SparkListenerTaskEnd"' in line and line.endswith("}"):
                info = json.loads(line)["Task Info"]
                if not info["Failed"]:
                    found[info["Executor ID"]] += 1
    return found


def test_both_workers_compute_rates_and_the_death_of_one_loses_nothing(
    cluster: LocalCluster, own: OwnTopics, tmp_path: Path
) -> None:
    with (
        standalone_cluster(tmp_path) as spark,
        _sampling(cluster, own.telemetry),
        _measuring(cluster, own, spark.master, tmp_path),
    ):
        rates = Rates(cluster, own.rates)
        start = time.time_ns() // 1000
        wait_until(lambda: rates.newer_than(start), within_s=400, what="the first rates")
        wait_until(
            lambda: len([n for n in _tasks_by_executor(tmp_path).values() if n >= 3]) >= 2,
            what="tasks on both workers",
        )

        before = dict(rates.newest)
        spark.workers[0].kill()
        killed = time.time_ns() // 1000
        wait_until(lambda: rates.newer_than(killed + 5_000_000), what="rates after the death")

        for topic, after in rates.newest.items():
            assert after["window_start"] <= before[topic]["ts"], "the window before is still known"
            assert after["partitions"]["0"]["bytes_s"] == pytest.approx(1000, rel=0.05)
            assert after["partitions"]["0"]["complete"]
