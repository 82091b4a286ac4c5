"""Memory of a running Spark job over time: driver, JVM and Python workers.

Resident memory is read from `/proc`, so it is unknown on systems without it. The JVM keeps what it
once took, so its figure is what its heap holds after a collection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from pyspark.sql import SparkSession

EVERY_S = 5.0
_WORKER = b"pyspark.daemon"


@dataclass(slots=True)
class MemoryCurve:
    """The figures of each process in megabytes, in order of time."""

    samples: list[Mapping[str, float]] = field(default_factory=list)

    def growth(self) -> dict[str, float]:
        """The mean of the last third over that of the first; empty with fewer than 3 samples.

        >>> MemoryCurve([{"driver": mb} for mb in (100, 100, 110, 105, 120, 130)]).growth()
        {'driver': 1.25}
        """
        third = len(self.samples) // 3
        if not third:
            return {}
        return {
            name: round(_mean(self.samples[-third:], name) / _mean(self.samples[:third], name), 3)
            for name in self.samples[0]
        }

    def last(self) -> dict[str, float]:
        """The newest figures."""
        return {name: round(mb, 1) for name, mb in self.samples[-1].items()} if self.samples else {}


def _mean(samples: Sequence[Mapping[str, float]], name: str) -> float:
    return fmean(s[name] for s in samples)


@contextmanager
def watched_memory(session: SparkSession, *, every_s: float = EVERY_S) -> Iterator[MemoryCurve]:
    """Takes a sample every few seconds while the block runs, and one at its end."""
    curve, done = MemoryCurve(), threading.Event()

    def watch() -> None:
        while not done.wait(every_s):
            curve.samples.append(memory_mb(session))

    thread = threading.Thread(target=watch, name="bench-memory", daemon=True)
    thread.start()
    try:
        yield curve
    finally:
        done.set()
        thread.join()
        curve.samples.append(memory_mb(session))


def memory_mb(session: SparkSession) -> dict[str, float]:
    """Memory now: this process, the JVM's heap after a collection, all Python workers."""
    jvm: Any = session.sparkContext._jvm
    jvm.java.lang.System.gc()
    runtime = jvm.java.lang.Runtime.getRuntime()
    found = {"heap": (runtime.totalMemory() - runtime.freeMemory()) / 1e6}
    parents = _parents()
    if parents:
        ours = os.getpid()
        workers = [p for p in parents if _descends(p, ours, parents) and _WORKER in _command(p)]
        found |= {
            "driver": _resident_bytes(ours) / 1e6,
            "workers": sum(map(_resident_bytes, workers)) / 1e6,
        }
    return found


def _parents() -> dict[int, int]:
    """The parent of each running process; empty without `/proc`."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            after_name = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
        except OSError:  # it has ended
            continue
        found[int(stat.parent.name)] = int(after_name.split()[1])
    return found


def _descends(pid: int, ancestor: int, parents: Mapping[int, int]) -> bool:
    while pid in parents and pid != ancestor:
        pid = parents[pid]
    return pid == ancestor


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
