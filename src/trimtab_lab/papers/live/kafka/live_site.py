"""Where live runs happen: a cluster and a folder; its measurement, and deleting a run's topics."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.apply.consumers.backends.processes import ProcessBackend
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab_lab.papers.live.plan import (
    Timeline,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSite:
    """The cluster of the runs, and a folder for processes and their logs."""

    cluster: Cluster
    folder: Path
    command_config: Path | None = None

    def to(self) -> list[str]:
        """The command-line options with which our programs connect to it."""
        named = ["--bootstrap-server", self.cluster.servers]
        if self.command_config is not None:
            named += ["--command-config", str(self.command_config.absolute())]
        return named


@dataclass(frozen=True, slots=True, kw_only=True)
class RunObservations:
    """Observations made during a run; the rest is in its receipts.

    `began_ts` is the start of the evaluated load, in microseconds; the times of `replicas` and
    `lag` are seconds from then. `ready_ts` is when the group was ready, before a `settled` run got
    its first rates. `late` is the number of records that were not sent on time. `rebalances_s` is
    how long members had no partitions in group mode, one value per member and rebalance.
    """

    name: str
    group: str
    topic: str
    ready_ts: int
    began_ts: int
    ended_ts: int
    replicas: Timeline
    lag: tuple[tuple[float, int], ...]
    offsets: Mapping[TopicPartition, tuple[int, int]]
    decisions: tuple[Mapping[str, Any], ...]
    rebalances_s: tuple[float, ...]
    sla_s: float
    sent: int
    late: int
    max_late_ms: float


def delete_topics(place: LiveSite, run: RunObservations) -> None:
    """Deletes the topics of an evaluated run, so that they are no longer measured."""
    with place.cluster.admin() as admin:
        for topic in (
            run.topic,
            place.cluster.topics.control(run.group),
            place.cluster.topics.group(run.group),
        ):
            admin.delete_topic(topic)


@contextmanager
def measured(place: LiveSite, *, window_s: float = 5.0) -> Iterator[None]:
    """Runs one Spark pipeline that measures the topics of all runs, while the block runs.

    It computes no outcomes: runs are evaluated at their end, and the CPU time is needed meanwhile.
    """
    from trimtab.apply.consumers.backends.measure_process import measuring

    words = ["trimtab.cli.main", "measure", "--continuous", "--pattern", "live-.*"]
    words += ["--keys", "none", "--no-outcomes", "--window", f"{window_s:g}s"]
    command = [sys.executable, "-m", *words, *place.to()]
    folder = place.folder / "measure"
    with measuring(ProcessBackend(lambda _: command, folder, kind="measuring"), lambda: False):
        yield
