"""Consumers as processes of this machine.

Why      A laptop, one server and the tests need no orchestrator.
Promise  Every consumer ever started is found again, by this controller or the next one, whenever
         the one before was killed; a stranger under its pid is never taken for it. No index has
         two processes. `remove` never uses force.
Cost     A file of state per consumer, read at each look; one more start of a bare Python (some
         90 ms on two busy cores) per consumer.

The folder belongs to one group on one machine::

    consumers.lock       held while consumers are started and while their files are cleared away
    consumer-<i>.json    {"v":1,"pid":…,"started":…}, written by the process itself (`processes`)
    consumer-<i>.log     what it said; appended to
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

import structlog

from trimtab.errors import ApplyError
from trimtab.model.reading import parse
from trimtab.processes import (
    ProcessId,
    ProcessState,
    process_state,
    send,
    spawn_announced,
    wait_until_dead,
)

_LAST_WORDS_LINES = 8
_LAST_WORDS_BYTES = 4096
_KILLED_WITHIN_S = 30.0

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ProcessBackend:
    """Runs `command(i)` for consumer i; all that it knows is in the folder.

    Consumers work in `workdir`, where handlers and settings are looked for; else in the folder.
    """

    command: Callable[[int], Sequence[str]]
    folder: Path
    patience_s: float = field(default=30.0, kw_only=True)
    workdir: Path | None = field(default=None, kw_only=True)
    _leaving: set[ProcessId] = field(default_factory=set, init=False, repr=False, compare=False)

    def living(self) -> Mapping[int, str]:
        """Returns each living consumer, paused ones included, with its pid and start time."""
        known = self._known()
        dead = [i for i, process in known.items() if process_state(process) is ProcessState.DEAD]
        if dead:
            with self._locked():
                self._bury(dead)
        return {i: f"{p.pid} {p.started}" for i, p in known.items() if i not in dead}

    def create(self, consumers: Collection[int]) -> None:
        """Starts those that do not live; a second controller waits and then finds them."""
        with self._locked() as lock:
            self._bury(consumers)
            missing = sorted(set(consumers) - set(self._known()))
            for i in missing:
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
                        f"Consumer {i} could not be started: {error.strerror or error}.",
                        hint="Free memory or processes on this machine, or ask for fewer.",
                    ) from error
                log.info("consumer_started", consumer=i, pid=process.pid, log=str(self._log(i)))
        # The lock is shared with those just started: it comes back when each has announced itself.
        with self._locked():
            silent = [i for i in missing if not self._lives(i)]
        if silent:
            raise ApplyError(
                f"Consumer {silent[0]} ended before it began: "
                f"{' '.join(_last_words(self._log(silent[0]))[-1:]) or 'it said nothing.'}",
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
            self._forget({i: p for i, p in leaving.items() if p not in stayed}, "consumer_removed")
        self._leaving.difference_update(stayed)  # if they end later, that is told as any end is
        if stayed:
            who = ", ".join(
                f"{i} (pid {p.pid}, {process_state(p).value})"
                for i, p in leaving.items()
                if p in stayed
            )
            raise ApplyError(
                f"Asked to end {self.patience_s:g} s ago and still there: consumer {who}.",
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
                f"Consumer {consumer} (pid {process.pid}) is still there {_KILLED_WITHIN_S:g} s "
                "after it was killed.",
                hint="It may wait for a disk. Its partitions stay with it until it is gone.",
            )
        with self._locked():
            self._forget({consumer: process}, "consumer_killed")

    def close(self) -> None:
        """Does nothing: consumers go on, and the next controller finds them in the folder."""

    def _known(self) -> dict[int, ProcessId]:
        """Returns what the files say, by index."""
        found = {}
        for path in self.folder.glob("consumer-*.json"):
            if number := re.fullmatch(r"consumer-(\d+)\.json", path.name):
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
                    last = _last_words(self._log(i))
                    log.warning("consumer_died", consumer=i, pid=process.pid, last_words=last)
                self._file(i).unlink(missing_ok=True)

    def _forget(self, gone: Mapping[int, ProcessId], event: str) -> None:
        for i, process in gone.items():
            if _read(self._file(i)) == process:
                self._file(i).unlink(missing_ok=True)
            self._leaving.discard(process)
            log.info(event, consumer=i, pid=process.pid)

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO]:
        """Keeps other controllers out, until the file is closed here and in what was started."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "consumers.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield lock

    def _file(self, consumer: int) -> Path:
        return self.folder / f"consumer-{consumer}.json"

    def _log(self, consumer: int) -> Path:
        return self.folder / f"consumer-{consumer}.log"


def _read(path: Path) -> ProcessId | None:
    """Returns the process of a file; None if it was cleared away meanwhile."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    node = parse(text, origin=str(path))
    node.version()
    return ProcessId(node.need("pid").integer(least=1), node.need("started").text())


def _last_words(path: Path) -> list[str]:
    """Returns the last lines of a log."""
    if not path.exists():
        return []
    with path.open("rb") as text:
        text.seek(max(0, text.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
        return text.read().decode(errors="replace").splitlines()[-_LAST_WORDS_LINES:]
