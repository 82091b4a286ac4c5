"""The running totals of the README, run as they are written."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from tests import ROOT
from tests.kafka.streams import wait_until
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster

PAYMENTS = {b"ann": [5, 7, 11], b"bob": [100], b"cid": [1] * 20}


def readme() -> tuple[str, list[str]]:
    """The file of the example, and the commands below it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.search(
        r"^```python\n(# totals\.py\n.*?)^```\n\n```console\n(.*?)^```", text, re.DOTALL | re.M
    )
    assert found is not None
    return found[1], [line.removeprefix("$ ") for line in found[2].splitlines()]


def command(line: str, servers: str) -> list[str]:
    name, *arguments = shlex.split(line)
    assert name == "trimtab"
    return [sys.executable, "-m", "trimtab.cli.main", *arguments, "--bootstrap-server", servers]


@contextmanager
def consuming(argv: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    with (folder / "consumer.log").open("wb") as log:
        process = subprocess.Popen(argv, cwd=folder, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def told(consumer: Consumer, found: dict[bytes, list[Any]]) -> int:
    """Reads on in the totals; returns how many there are so far."""
    for message in consumer.consume(100, 0.2):
        assert message.error() is None
        found.setdefault(message.key() or b"", []).append(json.loads(message.value() or b""))
    return sum(map(len, found.values()))


def test_each_customer_has_a_running_total(cluster: LocalCluster, tmp_path: Path) -> None:
    servers = cluster.bootstrap_servers
    code, (consume, status) = readme()
    assert len(code.splitlines()) <= 15
    (tmp_path / "totals.py").write_text(code, encoding="utf-8")
    with Cluster(servers).admin() as admin:
        for name in ("payments", "totals"):
            admin.create_topic(TopicSpec(name=name, partitions=2, replication=1))
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for customer, payments in PAYMENTS.items():
        for cents in payments:
            producer.produce("payments", json.dumps({"cents": cents}).encode(), customer)
    assert producer.flush(30) == 0
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "readme",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    reader.subscribe(["totals"])
    found: dict[bytes, list[Any]] = {}
    expected = sum(map(len, PAYMENTS.values()))

    with consuming(command(consume, servers), tmp_path) as process:
        log = tmp_path / "consumer.log"
        wait_until(
            lambda: told(reader, found) >= expected or process.poll() is not None,
            what=f"all totals; see {log}",
        )
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    reader.close()
    shown = subprocess.run(
        [*command(status, servers), "--json"], capture_output=True, check=True, text=True
    )

    assert {
        customer: [(total["payments"], total["cents"]) for total in totals]
        for customer, totals in found.items()
    } == {
        customer: [(n, sum(payments[:n])) for n in range(1, len(payments) + 1)]
        for customer, payments in PAYMENTS.items()
    }
    described = json.loads(shown.stdout)
    assert described["total"]["owned"] == len(PAYMENTS)
    assert described["total"]["lag_records"] == 0
