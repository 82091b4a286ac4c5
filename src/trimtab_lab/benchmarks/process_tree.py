"""Processor time and memory of a process and all its descendants, from Linux's /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class TreeUsage:
    """Seconds of processor time and resident bytes, by the name of the program."""

    cpu_s: dict[str, float]
    rss_bytes: dict[str, int]


def tree_usage(root: int) -> TreeUsage:
    """The usage of a process, its descendants, and those of them that have ended."""
    cpu_s: dict[str, float] = {}
    rss: dict[str, int] = {}
    found = _processes()
    wanted = {root}
    while more := {pid for pid, (parent, *_) in found.items() if parent in wanted} - wanted:
        wanted |= more
    for pid in wanted & found.keys():
        _, name, ticks, pages = found[pid]
        cpu_s[name] = cpu_s.get(name, 0.0) + ticks / _TICKS_S
        rss[name] = rss.get(name, 0) + pages * os.sysconf("SC_PAGE_SIZE")
    return TreeUsage(cpu_s, rss)


def _processes() -> dict[int, tuple[int, str, int, int]]:
    """Process id → parent, name, ticks with those of ended children, resident pages."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                text = (folder / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # it has ended
            name, _, rest = text[text.index("(") + 1 :].rpartition(")")
            fields = rest.split()
            ticks = sum(int(field) for field in fields[11:15])
            found[int(folder.name)] = (int(fields[1]), name.split(":")[0], ticks, int(fields[21]))
    return found
