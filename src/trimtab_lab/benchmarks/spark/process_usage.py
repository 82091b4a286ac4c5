"""Processor time and memory of a Spark job: its driver, the JVM, and the Python workers.

Read from `/proc`, so unknown on systems without it. The JVM keeps what it once took, so the figure
of its memory over time is what its heap holds after a collection.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

EVERY_S = 5.0
_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_WORKER = b"pyspark.daemon"


class ProcessUsage(NamedTuple):
    """Parent, name of the program, seconds of processor time, and resident bytes."""

    parent: int
    name: str
    cpu_s: float
    rss_bytes: int


@dataclass(slots=True)
class TreeMeter:
    """Adds up what a process and its descendants use; look often, as those that end are lost."""

    root: int
    _first: dict[int, ProcessUsage] = field(default_factory=dict)
    _last: dict[int, ProcessUsage] = field(default_factory=dict)
    _looked: bool = False

    def look(self) -> None:
        """Notes the usage of the processes that run now."""
        found = tree(self.root)
        if not self._looked:
            self._first, self._looked = found, True
        self._last |= found

    def cpu_s(self) -> dict[str, float]:
        """Seconds of processor time since the first look, by program."""
        spent: dict[str, float] = {}
        for pid, last in self._last.items():
            before = self._first[pid].cpu_s if pid in self._first else 0.0
            spent[last.name] = spent.get(last.name, 0.0) + last.cpu_s - before
        return spent

    def rss_bytes(self) -> dict[str, int]:
        """Resident bytes now, by program."""
        now: dict[str, int] = {}
        for usage in tree(self.root).values():
            now[usage.name] = now.get(usage.name, 0) + usage.rss_bytes
        return now


def tree(root: int) -> dict[int, ProcessUsage]:
    """A process and its descendants, by process id."""
    found = _processes()
    wanted = {root}
    while more := {pid for pid, usage in found.items() if usage.parent in wanted} - wanted:
        wanted |= more
    return {pid: found[pid] for pid in wanted & found.keys()}


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
    ours = tree(os.getpid())
    if ours:
        workers = (usage.rss_bytes for pid, usage in ours.items() if _WORKER in _command(pid))
        found |= {"driver": ours[os.getpid()].rss_bytes / 1e6, "workers": sum(workers) / 1e6}
    return found


def _processes() -> dict[int, ProcessUsage]:
    """All running processes; none without `/proc`."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue  # it has ended
        name, _, rest = text[text.index("(") + 1 :].rpartition(")")
        fields = rest.split()
        found[int(stat.parent.name)] = ProcessUsage(
            parent=int(fields[1]),
            name=name,
            cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_S,
            rss_bytes=int(fields[21]) * _PAGE_BYTES,
        )
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
