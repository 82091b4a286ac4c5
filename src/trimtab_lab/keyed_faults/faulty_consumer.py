"""`trimtab consume` that ends itself at a named point, or that breaks one rule of the protocol.

Run as `python -m trimtab_lab.keyed_faults.faulty_consumer [OPTIONS] -- consume …`. The product's
classes are the ones that run; single methods of them are wrapped. The time that keys were blocked
is written to a file, one line for each adoption.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from trimtab.apply.keys import task
from trimtab.apply.keys.kafka.keyed_worker import KeyedWorker
from trimtab.apply.keys.kafka.task_writer import TaskWriter
from trimtab.apply.keys.key_entry import EntryStatus, ParkedRecord
from trimtab.apply.keys.message_sets import EndMarker
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import parse
from trimtab.apply.keys.state_layout import parked_key
from trimtab_lab.keyed_faults.faults import BrokenVariant, KillPoint

_BETWEEN_S = 3.0
"""How long a broken restore waits before it fences: a predecessor that runs writes meanwhile."""

Method = Callable[..., Any]


def main() -> None:
    """Wraps what the options name, then runs the command behind `--`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--point", type=KillPoint, choices=list(KillPoint))
    parser.add_argument("--nth", type=int, default=1)
    parser.add_argument("--variant", type=BrokenVariant, choices=list(BrokenVariant))
    parser.add_argument("--adoptions", type=Path)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.point is not None:
        _KILLERS[options.point](_Countdown(options.nth))
    if options.variant is not None:
        _BREAKERS[options.variant]()
    if options.adoptions is not None:
        _note_adoptions(options.adoptions)
    sys.argv = ["trimtab", *options.command[1:]]
    from trimtab.cli.entry import main as trimtab

    trimtab()


def _wrap(owner: Any, name: str, around: Callable[[Method], Method]) -> None:
    setattr(owner, name, around(getattr(owner, name)))


# ------------------------------------------------------------ kill points


class _Countdown:
    """Ends the process when it was reached so many times."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def reach(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def _before_end(countdown: _Countdown) -> None:
    def around(read: Method) -> Method:
        def wrapped(self: PartitionTask, record: Any) -> None:
            if isinstance(parse(record), EndMarker):
                countdown.reach()
            read(self, record)

        return wrapped

    _wrap(PartitionTask, "read", around)


def _handover_sent(countdown: _Countdown) -> None:
    def around(produce: Method) -> Method:
        def wrapped(self: TaskWriter, finished: Any) -> None:
            produce(self, finished)
            if any(write.value is not None for write in finished.handovers):
                self._producer.flush(30)
                countdown.reach()

        return wrapped

    _wrap(TaskWriter, "_produce", around)


def _parking(countdown: _Countdown) -> None:
    def around(read: Method) -> Method:
        def wrapped(self: PartitionTask, record: Any) -> None:
            before = self.counts.parked_records
            read(self, record)
            if self.counts.parked_records > before:
                countdown.reach()

        return wrapped

    _wrap(PartitionTask, "read", around)


def _adopting(countdown: _Countdown) -> None:
    def around(adopted: Method) -> Method:
        def wrapped(self: PartitionTask, key: bytes, effect: Any) -> None:
            adopted(self, key, effect)
            countdown.reach()

        return wrapped

    _wrap(PartitionTask, "_adopted", around)


def _adopted(countdown: _Countdown) -> None:
    def around(write: Method) -> Method:
        def wrapped(self: TaskWriter, finished: Any, group: Any) -> None:
            write(self, finished, group)
            if finished.adoptions:
                countdown.reach()

        return wrapped

    _wrap(TaskWriter, "write", around)


_KILLERS: dict[KillPoint, Callable[[_Countdown], None]] = {
    KillPoint.BEFORE_END: _before_end,
    KillPoint.HANDOVER_SENT: _handover_sent,
    KillPoint.PARKING: _parking,
    KillPoint.ADOPTING: _adopting,
    KillPoint.ADOPTED: _adopted,
}


# ------------------------------------------------------------ broken variants


def _no_left() -> None:
    def around(process_end: Method) -> Method:
        def wrapped(entry: Any, end: Any, partition: int) -> Any:
            after, effects = process_end(entry, end, partition)
            if after.status is EntryStatus.LEFT and after is not entry:
                after = replace(after, status=EntryStatus.OWN, set_id=0)
            return after, effects

        return wrapped

    _wrap(task, "_process_end", around)


def _parked_in_memory() -> None:
    def around(perform: Method) -> Method:
        def wrapped(self: PartitionTask, key: bytes, effect: Any, record: Any) -> None:
            perform(self, key, effect, record)
            if isinstance(effect, ParkedRecord):
                del self._round.state[parked_key(key, effect.number)]

        return wrapped

    _wrap(PartitionTask, "_perform", around)


def _restore_first() -> None:
    fence = TaskWriter.fence

    def around(opened: Method) -> Method:
        def wrapped(self: KeyedWorker, partition: Any) -> Any:
            running = opened(self, partition)
            if running is not None:
                time.sleep(_BETWEEN_S)
                fence(running.writer, self._stop)
            return running

        return wrapped

    _wrap(TaskWriter, "fence", lambda _fence: lambda _self, _stop: True)
    _wrap(KeyedWorker, "_open", around)


_BREAKERS: dict[BrokenVariant, Callable[[], None]] = {
    BrokenVariant.NO_LEFT: _no_left,
    BrokenVariant.PARKED_IN_MEMORY: _parked_in_memory,
    BrokenVariant.RESTORE_FIRST: _restore_first,
}


# ------------------------------------------------------------ times


def _note_adoptions(file: Path) -> None:
    def around(count: Method) -> Method:
        def wrapped(self: KeyedWorker, partition: Any, running: Any, finished: Any) -> None:
            count(self, partition, running, finished)
            if finished.adoptions:
                lines = (
                    json.dumps({"blocked_s": one.blocked_s, "bytes": one.size_bytes})
                    for one in finished.adoptions
                )
                with file.open("a") as out:
                    out.write("".join(f"{line}\n" for line in lines))

        return wrapped

    _wrap(KeyedWorker, "_count", around)


if __name__ == "__main__":
    main()
