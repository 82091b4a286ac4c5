"""Processor time and memory of a process and all its descendants, from Linux's /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_TICKS_S = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


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


def _processes() -> dict[int, ProcessUsage]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            name, _, rest = text[text.index("(") + 1 :].rpartition(")")
            fields = rest.split()
            found[int(folder.name)] = ProcessUsage(
                parent=int(fields[1]),
                name=name,
                cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_S,
                rss_bytes=int(fields[21]) * _PAGE_BYTES,
            )
    return found
