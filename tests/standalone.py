"""A real standalone Spark cluster: a master and two workers, each a process."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from trimtab.local.jars import pyspark_home
from trimtab.local.ports import free_ports
from trimtab.observe.clock import TimedOut, wait_until


@dataclass(frozen=True)
class Standalone:
    """The master's address, and the processes of its workers."""

    master: str
    workers: tuple[subprocess.Popen[bytes], ...]


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[Standalone]:
    """A cluster of two workers with one core each, with logs and work in the folder."""
    port, web = free_ports(2)
    address = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        log = folder / "master.log"
        running.enter_context(
            _daemon(
                log,
                "org.apache.spark.deploy.master.Master",
                *("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(web)),
            )
        )
        _wait_for(log, "I have been elected leader")
        workers = tuple(
            running.enter_context(
                _daemon(
                    folder / f"worker-{number}.log",
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(folder / f"work-{number}"), "--webui-port", "0"),
                    address,
                )
            )
            for number in range(2)
        )
        _wait_for(log, "Registering worker", times=2)
        yield Standalone(address, workers)


@contextmanager
def _daemon(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    environment = os.environ | {
        "SPARK_HOME": str(pyspark_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
    }
    command = [str(pyspark_home() / "bin" / "spark-class"), *arguments]
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, env=environment, stdout=file, stderr=file, cwd=log.parent
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


def _wait_for(log: Path, pattern: str, times: int = 1) -> None:
    def is_written() -> bool:
        return len(re.findall(pattern, log.read_text() if log.exists() else "")) >= times

    try:
        wait_until(is_written, within_s=180, every_s=0.2)
    except TimedOut:
        raise AssertionError(log.read_text()) from None
