"""Runs consumers as processes of this machine, for a laptop, one server and tests.

Promise  Every consumer that was started is found again, by this controller or the next one, even
         after a kill; another process with the same pid is never taken for it. No index has two
         processes. `remove` never uses force. Consumers that crash at the same record, or soon
         after their start, are restarted with growing pauses, and the record is named.
Cost     A state file per consumer, read at each observation; one more start of a bare Python (about
         90 ms on two busy cores) per consumer.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import structlog

from trimtab.apply.consumers.backends.crashes import Crashes
from trimtab.apply.consumers.backends.current_record import noted_record
from trimtab.errors import ApplyError
from trimtab.local.processes import (
    ProcessId,
    ProcessState,
    process_state,
    send,
    spawn_announced,
    wait_until_dead,
)
from trimtab.model.json_reader import parse

_LAST_LINES = 8
_LAST_LINES_BYTES = 4096
_SUMMARY_CHARS = 300
_KILLED_WITHIN_S = 30.0
_SOON_S = 60.0
"""A consumer that exits within this time after its start, handling no record, failed to start."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs `command(i)` for consumer i; the state of all processes is in the folder.

    The working directory of consumers, where handlers and settings are found, is `workdir`, else
    the folder. `kind` names the processes in logs, errors and file names. The folder belongs to one
    group on one machine::

        consumers.lock       held while consumers are started and while their files are removed
        consumer-<i>.json    {"v":1,"pid":…,"started":…}, written by the process (`local.processes`)
        consumer-<i>.log     its output; appended to
        consumer-<i>.record  the record that it is handling (`current_record`), if it notes that
    """

    command: Callable[[int], Sequence[str]]
    folder: Path
    patience_s: float = field(default=30.0, kw_only=True)
    workdir: Path | None = field(default=None, kw_only=True)
    kind: str = field(default="consumer", kw_only=True)
    crashes: Crashes = field(default_factory=Crashes, kw_only=True)
    _leaving: set[ProcessId] = field(default_factory=set, init=False, repr=False, compare=False)
    _reasons: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def running(self) -> Mapping[int, str]:
        """Returns each existing process, paused ones included, with its pid and start time."""
        known = self._known()
        dead = [i for i, process in known.items() if process_state(process) is ProcessState.DEAD]
        if dead:
            with self._locked():
                self._clear_exited(dead)
        return {i: f"{p.pid} {p.started}" for i, p in known.items() if i not in dead}

    def exit_reasons(self) -> Mapping[int, str]:
        """Returns the end of the log of each consumer that exited by itself or was killed."""
        return dict(self._reasons)

    def names(self) -> None:
        """Returns None: processes have a fixed index."""

    def create(self, consumers: Collection[int]) -> None:
        """Starts those that do not run; a second controller waits and then finds them.

        Raises ApplyError during a pause after repeated crashes.
        """
        with self._locked() as lock:
            self._clear_exited(consumers)
            missing = sorted(set(consumers) - set(self._known()))
            if missing:
                self._check_pause(missing[0])
            for i in missing:
                self._record(i).unlink(missing_ok=True)
                try:
                    process = spawn_announced(
                        self.command(i),
                        folder=self.workdir or self.folder,
                        log=self._log(i),
                        announcement=self._file(i).absolute(),
                        lock=lock,
                    )
                except OSError as error:
                    raise ApplyError(
                        f"{self._who(i).capitalize()} could not be started: "
                        f"{error.strerror or error}.",
                        hint="Free memory or processes on this machine, or run fewer consumers.",
                    ) from error
                self._reasons.pop(i, None)
                self._log_event("started", i, process, log=str(self._log(i)))
        # Started processes inherit the lock: it is free again when each has written its file.
        with self._locked():
            exited = [i for i in missing if not self._runs(i)]
        if exited:
            raise ApplyError(
                f"{self._who(exited[0]).capitalize()} exited while starting: "
                f"{_summary(_last_lines(self._log(exited[0]))) or 'it logged nothing.'}",
                hint=f"Its log is {self._log(exited[0])}.",
            )

    def remove(self, idle: Collection[int]) -> None:
        """Asks consumers to exit (SIGTERM) and waits; never uses SIGKILL."""
        leaving = {i: process for i, process in self._known().items() if i in idle}
        self._leaving.update(leaving.values())
        for process in leaving.values():
            send(process, signal.SIGTERM)
        stayed = wait_until_dead(tuple(leaving.values()), self.patience_s)
        with self._locked():
            self._forget({i: p for i, p in leaving.items() if p not in stayed}, "removed")
        self._leaving.difference_update(stayed)  # a later exit is logged like any other
        if stayed:
            who = ", ".join(
                f"{self._who(i)} (pid {p.pid}, {process_state(p).value})"
                for i, p in leaving.items()
                if p in stayed
            )
            raise ApplyError(
                f"Still running {self.patience_s:g} s after being asked to exit: {who}.",
                hint="A long batch needs more time; a paused process must be resumed "
                f"(kill -CONT) or killed. Logs are in {self.folder}.",
            )

    def kill(self, consumer: int) -> None:
        """Kills a consumer, running or paused, and returns when its process has exited."""
        process = self._known().get(consumer)
        if process is None:
            return
        send(process, signal.SIGKILL)
        if wait_until_dead((process,), _KILLED_WITHIN_S):
            raise ApplyError(
                f"{self._who(consumer).capitalize()} (pid {process.pid}) still exists "
                f"{_KILLED_WITHIN_S:g} s after it was killed.",
                hint="It may wait for a disk. It keeps its partitions until it has exited.",
            )
        self._remember(consumer, _last_lines(self._log(consumer)))
        with self._locked():
            self._forget({consumer: process}, "killed")

    def close(self) -> None:
        """Does nothing: consumers keep running, the next controller finds them in the folder."""

    def _known(self) -> dict[int, ProcessId]:
        """Returns the processes in the state files, by index."""
        found = {}
        for path in self.folder.glob(f"{self.kind}-*.json"):
            if number := re.fullmatch(rf"{self.kind}-(\d+)\.json", path.name):
                process = _read(path)
                if process is not None:
                    found[int(number[1])] = process
        return dict(sorted(found.items()))

    def _runs(self, consumer: int) -> bool:
        process = _read(self._file(consumer))
        return process is not None and process_state(process) is not ProcessState.DEAD

    def _clear_exited(self, consumers: Iterable[int]) -> None:
        """Removes the files of processes that exited by themselves, and logs their last lines."""
        for i in consumers:
            # Read again: another one may have been started before we had the lock.
            process = _read(self._file(i))
            if process is not None and process_state(process) is ProcessState.DEAD:
                if process not in self._leaving:  # else `remove` logs it
                    self._on_exit(i, process)
                self._file(i).unlink(missing_ok=True)

    def _on_exit(self, i: int, process: ProcessId) -> None:
        """Logs and counts a process that exited by itself."""
        record, lived_s = noted_record(self._record(i)), time.time() - _changed_at(self._file(i))
        times = 0
        if record is not None:
            times = self.crashes.note(f"at record {record}", time.monotonic())
        elif lived_s < _SOON_S:
            times = self.crashes.note(f"soon after its start ({self._who(i)})", time.monotonic())
        last = _last_lines(self._log(i))
        self._remember(i, last, record)
        fields = {
            "last_log_lines": last,
            **({} if record is None else {"record": record}),
            **({"times": times} if times > 1 else {}),
        }
        self._log_event("died", i, process, warn=True, **fields)

    def _check_pause(self, wanted: int) -> None:
        waiting = self.crashes.waiting(time.monotonic())
        if waiting is not None:
            place, times, left_s = waiting
            raise ApplyError(
                f"{self._who(wanted).capitalize()} is not started yet: a process died {times} "
                f"times {place}. The next start is in {left_s:.0f} s.",
                hint="The handler, or a library it calls, ends the process. Logs are in "
                f"{self.folder}.",
            )

    def _remember(self, consumer: int, lines: Sequence[str], record: str | None = None) -> None:
        at = "" if record is None else f"at record {record}"
        if reason := ": ".join(filter(None, (at, _summary(lines)))):
            self._reasons[consumer] = reason

    def _forget(self, gone: Mapping[int, ProcessId], event: str) -> None:
        for i, process in gone.items():
            if _read(self._file(i)) == process:
                self._file(i).unlink(missing_ok=True)
            self._leaving.discard(process)
            self._log_event(event, i, process)

    def _log_event(
        self, event: str, i: int, process: ProcessId, *, warn: bool = False, **more: object
    ) -> None:
        """Logs an event of a process, with the name of its kind."""
        write = log.warning if warn else log.info
        write(f"{self.kind}_{event}", **{self.kind: i}, pid=process.pid, **more)

    def _who(self, i: int) -> str:
        return f"consumer {i}" if self.kind == "consumer" else f"the {self.kind} process"

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Excludes other controllers until the file is closed, here and in started processes."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "consumers.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock

    def _file(self, consumer: int) -> Path:
        return self.folder / f"{self.kind}-{consumer}.json"

    def _log(self, consumer: int) -> Path:
        return self.folder / f"{self.kind}-{consumer}.log"

    def _record(self, consumer: int) -> Path:
        return record_file(self.folder, consumer)


def record_file(folder: Path, consumer: int) -> Path:
    """The file in which a consumer notes the record that it is handling."""
    return folder / f"consumer-{consumer}.record"


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> ProcessId | None:
    """Returns the process of a state file; None if the file has been removed."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    node = parse(text, origin=str(path))
    node.version()
    return ProcessId(node.need("pid").integer(least=1), node.need("started").text())


def _summary(lines: Sequence[str]) -> str:
    """Returns the last error of these lines, else the last line; shortened if it is long.

    >>> _summary(["INFO begins", "error: There is no topic orders.", "hint: Create it.", ""])
    'error: There is no topic orders.'
    """
    logged = [line.strip() for line in lines if line.strip()]
    errors = [line for line in logged if line.startswith("error:")]
    text = (errors or logged or [""])[-1]
    return text if len(text) <= _SUMMARY_CHARS else f"{text[:_SUMMARY_CHARS]}…"


def _last_lines(path: Path) -> list[str]:
    """Returns the last lines of a log."""
    if not path.exists():
        return []
    with path.open("rb") as text:
        text.seek(max(0, text.seek(0, os.SEEK_END) - _LAST_LINES_BYTES))
        return text.read().decode(errors="replace").splitlines()[-_LAST_LINES:]
