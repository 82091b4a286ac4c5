"""The programs of the documentation, run as they are shown."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import uuid
from pathlib import Path

from confluent_kafka import Producer

from tests import ROOT
from tests.kafka.streams import wait_until
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster

PAGE = ROOT / "docs" / "how-to" / "use-from-python.md"


def test_the_consumer_of_the_page_handles_every_record_and_stops_when_told(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    shown = re.search(r"^```python\n# consumer\.py\n(.*?)^```", PAGE.read_text(), re.S | re.M)
    assert shown is not None
    name = f"library-{uuid.uuid4().hex[:8]}"
    program = tmp_path / "consumer.py"
    program.write_text(
        shown[1]
        .replace('"localhost:9092"', repr(cluster.bootstrap_servers))
        .replace('"orders"', repr(name))
        .replace('"pay"', repr(name))
    )
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        admin.create_topic(TopicSpec(name=name, partitions=2, replication=1))
        with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            for number in range(20):
                producer.produce(name, b"%d" % number, partition=number % 2)
        said: list[str] = []
        with subprocess.Popen(
            [sys.executable, str(program)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            listening = threading.Thread(target=said.extend, args=(process.stdout,))
            listening.start()
            try:
                wait_until(
                    lambda: sum(line.startswith(name) for line in said) >= 20,
                    within_s=180,
                    what="every record",
                )
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(60)
                listening.join(60)
        committed = admin.committed([name])[name]
        admin.delete_topic(name)

    assert process.returncode == 0
    assert said[-1] == "20 records, 0 dead letters\n"
    assert sum(committed.values()) == 20
