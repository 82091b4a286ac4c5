"""Consumers as processes of this machine.

Why      A laptop, one server and the tests need no orchestrator.
Promise  Every consumer ever started is found again, by this controller or the next one, whenever
         the one before was killed; a stranger under its pid is never taken for it. No index has
         two processes. `remove` never uses force. Consumers that die at the same record, or soon
         after their start, are started again with growing pauses, and the record is named.
Cost     A file of state per consumer, read at each look; one more start of a bare Python (some
         90 ms on two busy cores) per consumer.

The folder belongs to one group on one machine::

    consumers.lock       held while consumers are started and while their files are cleared away
    consumer-<i>.json    {"v":1,"pid":…,"started":…}, written by the process itself (`processes`)
    consumer-<i>.log     what it said; appended to
    consumer-<i>.record  which record it has in hand (`in_hand`), if it was told to note that
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

from trimtab.apply.consumers.backends.deaths import Deaths
from trimtab.apply.consumers.backends.in_hand import in_hand
from trimtab.errors import ApplyError
from trimtab.local.processes import (
    ProcessId,
    ProcessState,
    process_state,
    send,
    spawn_announced,
    wait_until_dead,
)
from trimtab.model.reading import parse

_LAST_WORDS_LINES = 8
_LAST_WORDS_BYTES = 4096
_SUMMARY_CHARS = 300
_KILLED_WITHIN_S = 30.0
_SOON_S = 60.0
"""A consumer that dies within this time of its start, no record in hand, is said to die there."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs `command(i)` for consumer i; all that it knows of the living is in the folder.

    Consumers work in `workdir`, where handlers and settings are looked for; else in the folder.
    `kind` is what the processes are called in logs, errors and file names.
    """

    command: Callable[[int], Sequence[str]]
    folder: Path
    patience_s: float = field(default=30.0, kw_only=True)
    workdir: Path | None = field(default=None, kw_only=True)
    kind: str = field(default="consumer", kw_only=True)
    deaths: Deaths = field(default_factory=Deaths, kw_only=True)
    _leaving: set[ProcessId] = field(default_factory=set, init=False, repr=False, compare=False)
    _words: dict[int, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def living(self) -> Mapping[int, str]:
        """Returns each living consumer, paused ones included, with its pid and start time."""
        known = self._known()
        dead = [i for i, process in known.items() if process_state(process) is ProcessState.DEAD]
        if dead:
            with self._locked():
                self._bury(dead)
        return {i: f"{p.pid} {p.started}" for i, p in known.items() if i not in dead}

    def last_words(self) -> Mapping[int, str]:
        """Returns the end of the log of each consumer that ended by itself or was killed."""
        return dict(self._words)

    def names(self) -> None:
        """Processes have numbers of their own."""

    def create(self, consumers: Collection[int]) -> None:
        """Starts those that do not live; a second controller waits and then finds them.

        Raises ApplyError while it is too early after others died.
        """
        with self._locked() as lock:
            self._bury(consumers)
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
                        hint="Free memory or processes on this machine, or ask for fewer.",
                    ) from error
                self._words.pop(i, None)
                self._tell("started", i, process, log=str(self._log(i)))
        # The lock is shared with those just started: it comes back when each has announced itself.
        with self._locked():
            silent = [i for i in missing if not self._lives(i)]
        if silent:
            raise ApplyError(
                f"{self._who(silent[0]).capitalize()} ended before it began: "
                f"{_summary(_last_words(self._log(silent[0]))) or 'it said nothing.'}",
                hint=f"Its log is {self._log(silent[0])}.",
            )

    def remove(self, idle: Collection[int]) -> None:
        """Asks consumers to end (SIGTERM) and waits; none is forced."""
        leaving = {i: process for i, process in self._known().items() if i in idle}
        self._leaving.update(leaving.values())
        for process in leaving.values():
            send(process, signal.SIGTERM)
        stayed = wait_until_dead(tuple(leaving.values()), self.patience_s)
        with self._locked():
            self._forget({i: p for i, p in leaving.items() if p not in stayed}, "removed")
        self._leaving.difference_update(stayed)  # if they end later, that is told as any end is
        if stayed:
            who = ", ".join(
                f"{self._who(i)} (pid {p.pid}, {process_state(p).value})"
                for i, p in leaving.items()
                if p in stayed
            )
            raise ApplyError(
                f"Still there {self.patience_s:g} s after being asked to end: {who}.",
                hint="A long batch needs more patience; a paused process must be resumed "
                f"(kill -CONT) or killed. What it says: {self.folder}.",
            )

    def kill(self, consumer: int) -> None:
        """Kills a consumer, running or paused, and returns when the system says it is gone."""
        process = self._known().get(consumer)
        if process is None:
            return
        send(process, signal.SIGKILL)
        if wait_until_dead((process,), _KILLED_WITHIN_S):
            raise ApplyError(
                f"{self._who(consumer).capitalize()} (pid {process.pid}) is still there "
                f"{_KILLED_WITHIN_S:g} s after it was killed.",
                hint="It may wait for a disk. Its partitions stay with it until it is gone.",
            )
        self._remember(consumer, _last_words(self._log(consumer)))
        with self._locked():
            self._forget({consumer: process}, "killed")

    def close(self) -> None:
        """Does nothing: consumers go on, and the next controller finds them in the folder."""

    def _known(self) -> dict[int, ProcessId]:
        """Returns what the files say, by index."""
        found = {}
        for path in self.folder.glob(f"{self.kind}-*.json"):
            if number := re.fullmatch(rf"{self.kind}-(\d+)\.json", path.name):
                process = _read(path)
                if process is not None:
                    found[int(number[1])] = process
        return dict(sorted(found.items()))

    def _lives(self, consumer: int) -> bool:
        process = _read(self._file(consumer))
        return process is not None and process_state(process) is not ProcessState.DEAD

    def _bury(self, consumers: Iterable[int]) -> None:
        """Clears away those that ended by themselves, and says what they said last."""
        for i in consumers:
            # Read again: before we had the lock, another one may have been started.
            process = _read(self._file(i))
            if process is not None and process_state(process) is ProcessState.DEAD:
                if process not in self._leaving:  # else `remove` tells of it
                    self._mourn(i, process)
                self._file(i).unlink(missing_ok=True)

    def _mourn(self, i: int, process: ProcessId) -> None:
        """Tells of a process that ended by itself, and counts it."""
        record, lived_s = in_hand(self._record(i)), time.time() - _changed_at(self._file(i))
        times = 0
        if record is not None:
            times = self.deaths.note(f"at record {record}", time.monotonic())
        elif lived_s < _SOON_S:
            times = self.deaths.note(f"soon after its start ({self._who(i)})", time.monotonic())
        last = _last_words(self._log(i))
        self._remember(i, last, record)
        told = {
            "last_words": last,
            **({} if record is None else {"record": record}),
            **({"times": times} if times > 1 else {}),
        }
        self._tell("died", i, process, warn=True, **told)

    def _check_pause(self, wanted: int) -> None:
        waiting = self.deaths.waiting(time.monotonic())
        if waiting is not None:
            place, times, left_s = waiting
            raise ApplyError(
                f"{self._who(wanted).capitalize()} is not started yet: a process died {times} "
                f"times {place}. The next start is in {left_s:.0f} s.",
                hint="The handler, or a library it calls, ends the process. What was said last: "
                f"{self.folder}.",
            )

    def _remember(self, consumer: int, lines: Sequence[str], record: str | None = None) -> None:
        at = "" if record is None else f"at record {record}"
        if words := ": ".join(filter(None, (at, _summary(lines)))):
            self._words[consumer] = words

    def _forget(self, gone: Mapping[int, ProcessId], event: str) -> None:
        for i, process in gone.items():
            if _read(self._file(i)) == process:
                self._file(i).unlink(missing_ok=True)
            self._leaving.discard(process)
            self._tell(event, i, process)

    def _tell(
        self, event: str, i: int, process: ProcessId, *, warn: bool = False, **more: object
    ) -> None:
        """Logs what became of a process, under the name of its kind."""
        write = log.warning if warn else log.info
        write(f"{self.kind}_{event}", **{self.kind: i}, pid=process.pid, **more)

    def _who(self, i: int) -> str:
        return f"consumer {i}" if self.kind == "consumer" else f"the {self.kind} process"

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Keeps other controllers out, until the file is closed here and in what was started."""
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
    """Where a consumer is to note the record in hand, for the backend of this folder."""
    return folder / f"consumer-{consumer}.record"


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> ProcessId | None:
    """Returns the process of a file; None if it was cleared away meanwhile."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    node = parse(text, origin=str(path))
    node.version()
    return ProcessId(node.need("pid").integer(least=1), node.need("started").text())


def _summary(lines: Sequence[str]) -> str:
    """Returns the last error of these lines, else the last line; cut where it is long.

    >>> _summary(["INFO begins", "error: There is no topic orders.", "hint: Create it.", ""])
    'error: There is no topic orders.'
    """
    said = [line.strip() for line in lines if line.strip()]
    errors = [line for line in said if line.startswith("error:")]
    text = (errors or said or [""])[-1]
    return text if len(text) <= _SUMMARY_CHARS else f"{text[:_SUMMARY_CHARS]}…"


def _last_words(path: Path) -> list[str]:
    """Returns the last lines of a log."""
    if not path.exists():
        return []
    with path.open("rb") as text:
        text.seek(max(0, text.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
        return text.read().decode(errors="replace").splitlines()[-_LAST_WORDS_LINES:]
