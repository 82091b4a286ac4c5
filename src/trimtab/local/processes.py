"""Processes that outlive the command which started them, known again by pid and start time.

A pid alone is no name: after a crash or a reboot it may belong to a stranger, and a signal sent
to it would hit the wrong one. Pid and start time together are unique on a machine. Linux counts
the start time from its boot, so there the boot is part of it.

Run as a program, this file announces itself and becomes another one: see `spawn_announced`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import BinaryIO, NoReturn

_KILLED_WITHIN_S = 30.0
SENDER_NICE = -10
"""How far a load goes ahead of what it is sent to."""

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
    return _spawn(argv, folder=folder, log=log, stdin=subprocess.DEVNULL)


def spawn_announced(
    argv: Sequence[str], *, folder: Path, log: Path, announcement: Path, lock: BinaryIO
) -> ProcessId:
    """Starts a process that writes down who it is before it becomes the program asked for.

    It holds `lock` (by sharing the open file) until that is written, so that whoever gets the lock
    later finds every process that was ever started under it, even if the starter was killed.
    """
    itself = (sys.executable, "-I", "-S", __file__, str(announcement), *argv)
    return _spawn(itself, folder=folder, log=log, stdin=lock)


def process_state(process: ProcessId) -> ProcessState:
    """Returns the state of a process; a stranger under the same pid means that ours is dead."""
    if _has_ended(process.pid):
        return ProcessState.DEAD
    match _look(process.pid):
        case (code, started) if started == process.started and code not in "ZX":
            return ProcessState.PAUSED if code in "Tt" else ProcessState.RUNNING
        case _:
            _has_ended(process.pid)  # it may have ended between the two looks
            return ProcessState.DEAD


def _has_ended(pid: int) -> bool:
    """Whether a child of ours has ended, which is asked for so that no zombie stays."""
    child = _children.get(pid)
    if child is None or child.poll() is None:
        return False
    _children.pop(pid, None)  # another thread may have been faster
    return True


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
        wait_until_dead(ours, patience_s)
    for process in ours:
        send(process, signal.SIGKILL)
    if alive := wait_until_dead(ours, _KILLED_WITHIN_S):
        from trimtab.errors import ConfigError  # the program below runs without our packages

        raise ConfigError(
            f"Still there {_KILLED_WITHIN_S:g} s after they were killed: processes "
            f"{', '.join(str(process.pid) for process in alive)}.",
            hint="They may wait for a disk or a debugger. Run the command again when they are "
            "gone.",
        )


def wait_until_dead(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Returns those that are still alive when the time is up."""
    deadline = time.monotonic() + timeout_s
    while alive := [p for p in processes if process_state(p) is not ProcessState.DEAD]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
    return alive


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """This thread goes before all others while the block runs, where the system allows it.

    A load comes from outside: that it shares a machine with what it is sent to must not slow it.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)  # on Linux, of this thread and those it starts
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, SENDER_NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def _spawn(argv: Sequence[str], *, folder: Path, log: Path, stdin: BinaryIO | int) -> ProcessId:
    with log.open("ab") as out:
        child = subprocess.Popen(
            argv,
            cwd=folder,
            stdin=stdin,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    _children[child.pid] = child
    seen = _look(child.pid)
    return ProcessId(child.pid, seen[1] if seen else "")


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


def _announce_and_become(announcement: Path, argv: Sequence[str]) -> NoReturn:
    """Writes pid and start time, lets go of the lock that is its standard input, runs `argv`."""
    seen = _look(os.getpid())
    half = announcement.with_name(f".{announcement.name}.{os.getpid()}.part")
    half.write_text(
        json.dumps({"v": 1, "pid": os.getpid(), "started": seen[1] if seen else ""}),
        encoding="utf-8",
    )
    half.replace(announcement)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.execvp(argv[0], list(argv))


if __name__ == "__main__":
    _announce_and_become(Path(sys.argv[1]), sys.argv[2:])
