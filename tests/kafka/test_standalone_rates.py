"""Rates on the executors of a real Spark cluster: a worker is paused, then the driver; one dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.kafka.streams import wait_until
from tests.standalone import standalone_cluster
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics, ensure_topics
from trimtab.local.cluster import LocalCluster
from trimtab_lab.benchmarks.spark.process_usage import tree

TOPICS = [f"t{number}" for number in range(8)]
WINDOW_S = 60


@pytest.fixture
def own(cluster: LocalCluster) -> OwnTopics:
    topics = OwnTopics(f"own-{uuid.uuid4().hex[:8]}.")
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        ensure_topics(admin, topics)
    return topics


class Sampler:
    """A sample of every topic twice a second, of one partition that grows by a byte per ms.

    Its records grow ever faster, and `groups` are where the log once ended. So the lag of a group
    in seconds is exact only if that very sample is known.
    """

    def __init__(self, cluster: LocalCluster, telemetry: str) -> None:
        self._cluster, self._telemetry = cluster, telemetry
        self._started = time.time_ns() // 1000
        self.times: list[int] = []
        self.groups: dict[str, int] = {}

    def end_offset(self, ts: int) -> int:
        return (ts - self._started) ** 2 // 10**9

    def watch(self, times: list[int]) -> None:
        """From now on there is a group where the log ended at each of these samples."""
        self.groups = {str(ts): self.end_offset(ts) for ts in times}

    @contextmanager
    def running(self) -> Iterator[None]:
        stop = threading.Event()

        def sample() -> None:
            producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers})
            while not stop.wait(0.5):
                self._take(producer)

        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _take(self, producer: Producer) -> None:
        ts = time.time_ns() // 1000
        columns: dict[str, Any] = {"partition": [0], "leader": [1], "log_bytes": [ts // 1000]}
        columns |= {"replicas": [[1]], "isr": [[1]], "begin_offset": [0]}
        columns |= {"end_offset": [self.end_offset(ts)]}
        columns |= {"committed": {group: [offset] for group, offset in self.groups.items()}}
        for topic in TOPICS:
            value = {"v": 2, "sample_id": "s", "ts": ts, "topic": topic, **columns}
            producer.produce(self._telemetry, json.dumps(value).encode(), topic.encode())
        assert producer.flush(30) == 0
        self.times.append(ts)


class Rates:
    """What is published, read as it comes."""

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        self._consumer = Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex}
        )
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.newest: dict[str, dict[str, Any]] = {}
        self.times: dict[str, list[int]] = {topic: [] for topic in TOPICS}

    def newer_than(self, ts: int) -> bool:
        """Whether every topic has rates of a sample after this time."""
        while (message := self._consumer.poll(0.1)) is not None:
            if message.error() is None:
                value = json.loads(message.value() or b"")
                self.newest[value["topic"]] = value
                self.times[value["topic"]].append(value["ts"])
        return all(topic in self.newest and self.newest[topic]["ts"] > ts for topic in TOPICS)


@contextmanager
def _paused(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process and its descendants do not run, as on a machine that is suspended."""
    pids = list(tree(process.pid))
    try:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def _check_pause(sampler: Sampler, rates: Rates, process: subprocess.Popen[bytes]) -> None:
    """After a pause every sample that came meanwhile is known, and no rate is there twice."""
    before = len(sampler.times)
    with _paused(process):
        wait_until(lambda: len(sampler.times) >= before + 6, what="samples during the pause")
        missed = sampler.times[before : before + 6]
    sampler.watch(missed)
    watched = sampler.times[-1] + 1_000_000
    wait_until(lambda: rates.newer_than(watched), what="rates after the pause")
    for found in rates.newest.values():
        partition = found["partitions"]["0"]
        assert partition["bytes_s"] == pytest.approx(1000, rel=0.05)
        assert partition["complete"]
        lags = {ts: (found["ts"] - ts) / 1_000_000 for ts in missed}
        assert {int(ts): s for ts, s in partition["lag_s"].items()} == pytest.approx(lags, abs=1e-5)
    for topic, times in rates.times.items():
        assert times == sorted(set(times)), f"rates of {topic} were published twice, or late"


@contextmanager
def _measuring(
    cluster: LocalCluster, own: OwnTopics, master: str, folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
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
        yield process
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


def test_both_workers_compute_rates_and_neither_pauses_nor_a_death_lose_anything(
    cluster: LocalCluster, own: OwnTopics, tmp_path: Path
) -> None:
    sampler = Sampler(cluster, own.telemetry)
    with (
        standalone_cluster(tmp_path) as spark,
        sampler.running(),
        _measuring(cluster, own, spark.master, tmp_path) as driver,
    ):
        rates = Rates(cluster, own.rates)
        start = time.time_ns() // 1000
        wait_until(lambda: rates.newer_than(start), within_s=400, what="the first rates")
        wait_until(
            lambda: len([n for n in _tasks_by_executor(tmp_path).values() if n >= 3]) >= 2,
            what="tasks on both workers",
        )

        _check_pause(sampler, rates, spark.workers[1])
        _check_pause(sampler, rates, driver)

        before = dict(rates.newest)
        spark.workers[0].kill()
        killed = time.time_ns() // 1000
        wait_until(lambda: rates.newer_than(killed + 5_000_000), what="rates after the death")

        for topic, after in rates.newest.items():
            assert after["window_start"] <= before[topic]["ts"], "the window before is still known"
            assert after["partitions"]["0"]["bytes_s"] == pytest.approx(1000, rel=0.05)
            assert after["partitions"]["0"]["complete"]
