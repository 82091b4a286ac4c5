"""Processes that outlive the command which started them, known again by pid and start time.

A pid alone is no name: after a crash or a reboot it may belong to a stranger, and a signal sent
to it would hit the wrong one. Pid and start time together are unique on a machine. Linux counts
the start time from its boot, so there the boot is part of it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

from trimtab.errors import ConfigError

_KILLED_WITHIN_S = 30.0

# Children must be asked for their exit, or they stay behind as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


class ProcessState(StrEnum):
    """What became of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process that cannot be taken for another one: its pid and when it was started."""

    pid: int
    started: str


def spawn(argv: Sequence[str], *, folder: Path, log: Path) -> ProcessId:
    """Starts a process in a session of its own, so that Ctrl-C in the terminal passes it by."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    seen = _look(child.pid)
    return ProcessId(child.pid, seen[1] if seen else "")


def process_state(process: ProcessId) -> ProcessState:
    """Returns the state of a process; a stranger under the same pid means that ours is dead."""
    child = _children.get(process.pid)
    if child is not None and child.poll() is not None:
        del _children[process.pid]
        return ProcessState.DEAD
    match _look(process.pid):
        case (code, started) if started == process.started and code not in "ZX":
            return ProcessState.PAUSED if code in "Tt" else ProcessState.RUNNING
        case _:
            return ProcessState.DEAD


def send(process: ProcessId, number: signal.Signals) -> None:
    """Sends a signal, unless the process is gone."""
    if process_state(process) is not ProcessState.DEAD:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def end(processes: Iterable[ProcessId], *, patience_s: float) -> None:
    """Ends processes and returns when all are gone; asks first if there is patience, then kills.

    Raises ConfigError if one outlives even that.
    """
    ours = tuple(processes)
    if patience_s > 0:
        for process in ours:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a paused one hears nothing else
        _wait_until_dead(ours, patience_s)
    for process in ours:
        send(process, signal.SIGKILL)
    if alive := _wait_until_dead(ours, _KILLED_WITHIN_S):
        raise ConfigError(
            f"Still there {_KILLED_WITHIN_S:g} s after they were killed: processes "
            f"{', '.join(str(process.pid) for process in alive)}.",
            hint="They may wait for a disk or a debugger. Run the command again when they are "
            "gone.",
        )


def _wait_until_dead(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Returns those that are still alive when the time is up."""
    deadline = time.monotonic() + timeout_s
    while alive := [p for p in processes if process_state(p) is not ProcessState.DEAD]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return alive


def _look(pid: int) -> tuple[str, str] | None:
    """Returns the one-letter state and the start time of a pid."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold blanks
        code, threads, started = fields[0], int(fields[17]), fields[19]
        # A killed process counts as a zombie while its last threads still hold files and ports.
        return ("D" if code == "Z" and threads > 1 else code), f"{_boot_id()} {started}"
    said = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return (said[0][0], said[1].strip()) if len(said) == 2 else None


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
