"""What is seen of a live run: running consumers, lag, rebalances; threads that watch it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import structlog

from trimtab.errors import ApplyError, TrimtabError
from trimtab.kafka.admin import Admin
from trimtab.local.processes import ProcessId, ProcessState, process_state
from trimtab.model.cluster import TopicPartition
from trimtab_lab.papers.live.plan import (
    Timeline,
    changes,
)

log = structlog.get_logger()

SAMPLE_S = 0.5
_ENDED_WITHIN_S = 60.0


class RunWatch:
    """Records the number of running consumers and the lag, twice a second."""

    def __init__(
        self, admin: Admin, folder: Path, group: str, partitions: Sequence[TopicPartition]
    ) -> None:
        self._admin, self._folder, self._group = admin, folder, group
        self._partitions = partitions
        self.replicas: list[tuple[float, int]] = []
        self.lags: list[tuple[float, int]] = []
        self.lag: int | None = None
        self.sampled_at = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches while the block runs."""
        with in_thread("watch", self._watch):
            yield

    def _watch(self, stop: threading.Event) -> None:
        while not stop.is_set():
            self.replicas.append((time.monotonic(), running_consumers(self._folder)))
            try:
                self._sample()
            except TrimtabError as error:  # tried again soon
                log.warning("offsets_unavailable", why=error.message)
            stop.wait(SAMPLE_S)

    def _sample(self) -> None:
        began = time.monotonic()
        done = self._admin.committed([self._group]).get(self._group)
        ends = ends_of(self._admin, self._partitions[0].topic)
        if done is None or len(ends) < len(self._partitions):
            return
        self.lag = sum(end - done.get(p, first) for p, (first, end) in ends.items())
        self.sampled_at = began
        self.lags.append((began, self.lag))


def running_consumers(folder: Path) -> int:
    """The number of running consumers of a folder; unlike a backend, does not change the folder."""
    count = 0
    for path in folder.glob("consumer-*.json"):
        try:
            entry = json.loads(path.read_bytes())
        except (FileNotFoundError, ValueError):  # just deleted, or just being written
            continue
        process = ProcessId(entry["pid"], entry["started"])
        count += process_state(process) is not ProcessState.DEAD
    return count


def rebalances(folder: Path, from_ts: int, to_ts: int) -> Iterator[float]:
    """How long members had no partitions, from their logs between two times."""
    for path in folder.glob("consumer-*.log"):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"partitions_assigned"' not in line:
                continue
            try:
                entry = json.loads(line)
            except ValueError:  # interrupted by a line of the client library
                continue
            ts = datetime.fromisoformat(entry["timestamp"]).timestamp() * 1e6
            if from_ts <= ts <= to_ts and entry["blocked_s"] > 0:
                yield float(entry["blocked_s"])


def ends_of(admin: Admin, topic: str) -> dict[TopicPartition, tuple[int, int]]:
    """First and next offset of each partition of a topic."""
    placed = admin.topics([topic])
    return admin.offsets({p.name: p.leader for p in placed if not p.offline})


def timeline_since(began: float, samples: Sequence[tuple[float, int]]) -> Timeline:
    """The timeline from `began` on; the last value before it counts from 0."""
    before = [n for t, n in samples if t <= began]
    first = [(0.0, before[-1])] if before else []
    return changes([*first, *((round(t - began, 2), n) for t, n in samples if t > began)])


@contextmanager
def in_thread(name: str, work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Runs `work` in a thread until the block ends; raises if it failed."""
    stop, failed = threading.Event(), []

    def guarded() -> None:
        try:
            work(stop)
        except Exception as error:  # raised below, in the calling thread
            log.exception("thread_failed", thread=name)
            failed.append(error)

    thread = threading.Thread(target=guarded, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(_ENDED_WITHIN_S)
    if failed:
        raise ApplyError(
            f"The thread for the {name} failed: {failed[0]}",
            hint="Fix the cause, then start the experiment again: it repeats this run.",
        ) from failed[0]
