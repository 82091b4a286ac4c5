"""Processes that outlive the command which started them, known again by pid and start time.

A pid alone is no name: after a crash or a reboot it may belong to a stranger, and a signal sent
to it would hit the wrong one. Pid and start time together are unique on a machine.
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
from pathlib import Path

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
    """Ends processes and returns when all are gone; asks first if there is patience, then kills."""
    ours = tuple(processes)
    if patience_s > 0:
        for process in ours:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a paused one hears nothing else
        _wait_until_dead(ours, patience_s)
    for process in ours:
        send(process, signal.SIGKILL)
    _wait_until_dead(ours, 30.0)


def _wait_until_dead(processes: Sequence[ProcessId], timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline and any(
        process_state(process) is not ProcessState.DEAD for process in processes
    ):
        time.sleep(0.02)


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
        return ("D" if code == "Z" and threads > 1 else code), started
    said = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return (said[0][0], said[1].strip()) if len(said) == 2 else None
