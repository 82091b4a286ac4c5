"""Processes that outlive the command that started them, identified by pid and start time.

A pid alone does not identify a process: after a crash or a reboot another process may have it, and
would get our signals. Pid and start time together are unique on a machine. Linux counts the start
time from boot, so there the boot id is part of it.

Run as a program, this file records its process and then executes another: see `spawn_announced`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import BinaryIO, NoReturn

_KILLED_WITHIN_S = 30.0
SENDER_NICE = -10
"""Priority (nice value) of a load generator, above the brokers it sends to."""

# Children must be waited for, or they remain as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


class ProcessState(StrEnum):
    """State of a process."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies a process by its pid and start time."""

    pid: int
    started: str


def spawn(argv: Sequence[str], *, folder: Path, log: Path) -> ProcessId:
    """Starts a process in its own session, so that Ctrl-C in the terminal does not reach it."""
    return _spawn(argv, folder=folder, log=log, stdin=subprocess.DEVNULL)


def spawn_announced(
    argv: Sequence[str], *, folder: Path, log: Path, announcement: Path, lock: BinaryIO
) -> ProcessId:
    """Starts a process that records its pid and start time before it executes the program.

    It holds `lock` (by sharing the open file) until the record is written, so the next holder of
    the lock finds every process started under it, even if the starting process was killed.
    """
    itself = (sys.executable, "-I", "-S", __file__, str(announcement), *argv)
    return _spawn(itself, folder=folder, log=log, stdin=lock)


def process_state(process: ProcessId) -> ProcessState:
    """Returns the state of a process; another process with the same pid means ours is dead."""
    if _has_ended(process.pid):
        return ProcessState.DEAD
    match _state_and_start(process.pid):
        case (code, started) if started == process.started and code not in "ZX":
            return ProcessState.PAUSED if code in "Tt" else ProcessState.RUNNING
        case _:
            _has_ended(process.pid)  # it may have ended between the two checks
            return ProcessState.DEAD


def _has_ended(pid: int) -> bool:
    """Whether a child process has ended; waiting for it also removes the zombie."""
    child = _children.get(pid)
    if child is None or child.poll() is None:
        return False
    _children.pop(pid, None)  # another thread may have removed it
    return True


def send(process: ProcessId, number: signal.Signals) -> None:
    """Sends a signal, unless the process is gone."""
    if process_state(process) is not ProcessState.DEAD:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)


def end(processes: Iterable[ProcessId], *, patience_s: float) -> None:
    """Ends processes and returns when all have ended: SIGTERM if `patience_s` > 0, then SIGKILL.

    Raises ConfigError if a process is still alive afterwards.
    """
    ours = tuple(processes)
    if patience_s > 0:
        for process in ours:
            send(process, signal.SIGTERM)
            send(process, signal.SIGCONT)  # a paused process handles no other signal
        wait_until_dead(ours, patience_s)
    for process in ours:
        send(process, signal.SIGKILL)
    if alive := wait_until_dead(ours, _KILLED_WITHIN_S):
        from trimtab.errors import ConfigError  # not importable as a program

        raise ConfigError(
            f"Still running {_KILLED_WITHIN_S:g} s after SIGKILL: processes "
            f"{', '.join(str(process.pid) for process in alive)}.",
            hint="They may wait for a disk or a debugger. Run the command again when they are "
            "gone.",
        )


def wait_until_dead(processes: Sequence[ProcessId], timeout_s: float) -> list[ProcessId]:
    """Returns the processes that are still alive when the time is up."""
    from trimtab.observe.clock import TimedOut, wait_until  # not importable as a program

    def alive() -> list[ProcessId]:
        return [p for p in processes if process_state(p) is not ProcessState.DEAD]

    try:
        wait_until(lambda: not alive(), within_s=timeout_s, every_s=0.02)
    except TimedOut:
        return alive()
    return []


@contextlib.contextmanager
def ahead_of_others() -> Iterator[None]:
    """Raises the priority of this thread while the block runs, if the system allows it.

    A load generator should not be slowed down by brokers that run on the same machine.
    """
    before = os.getpriority(os.PRIO_PROCESS, 0)  # on Linux: of this thread and its children
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
    seen = _state_and_start(child.pid)
    return ProcessId(child.pid, seen[1] if seen else "")


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """Returns the one-letter state and the start time of a pid."""
    if Path("/proc/self/stat").exists():
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may contain blanks
        code, threads, started = fields[0], int(fields[17]), fields[19]
        # A killed process counts as a zombie while its last threads still hold files and ports.
        return ("D" if code == "Z" and threads > 1 else code), f"{_boot_id()} {started}"
    output = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(maxsplit=1)
    return (output[0][0], output[1].strip()) if len(output) == 2 else None


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _announce_and_become(announcement: Path, argv: Sequence[str]) -> NoReturn:
    """Writes pid and start time, releases the lock (its standard input), executes `argv`."""
    seen = _state_and_start(os.getpid())
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
