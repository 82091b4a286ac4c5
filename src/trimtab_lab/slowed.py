"""A broker that is slow, not dead: its process is paused and resumed in a steady beat.

Why      A process that runs for a share of each period serves as much less, and what meets it in
         a pause waits for the rest of that pause: the picture of a broker with too little of its
         machine. It needs no right that a user has not got over their own processes.
Promise  The process runs when this ends: at the end of the block, when whoever asked for it dies
         (the pipe from it closes), or when this is told to end. Only SIGKILL of both leaves it
         paused; `trimtab cluster resume N` mends that. No stranger is ever signalled.
Cost     A small process, two signals per period.

Run as a program: ``python -m trimtab_lab.slowed PID STARTED SHARE PERIOD_S``. It says a line
when it has begun, and beats until its standard input closes or the process is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

from trimtab.errors import ConfigError
from trimtab.local.cluster import LocalCluster
from trimtab.local.processes import ProcessId, ProcessState, process_state, send

_NICE = -10  # a beat that waits for the processor is no beat; refused to most users
_BEGIN_WITHIN_S = 30.0
_END_WITHIN_S = 10.0


@contextlib.contextmanager
def slowed(
    cluster: LocalCluster, *, broker: int, share: float, period_s: float = 0.1
) -> Iterator[None]:
    """Keeps a broker paused for `share` of every period; inside the block it is slow."""
    with slowed_process(cluster.process(broker), share=share, period_s=period_s):
        yield


@contextlib.contextmanager
def slowed_process(process: ProcessId, *, share: float, period_s: float = 0.1) -> Iterator[None]:
    """The same for any process that we may signal."""
    _check(share, period_s)
    beating = subprocess.Popen(
        [
            *(sys.executable, "-m", "trimtab_lab.slowed"),
            *(str(process.pid), process.started, str(share), str(period_s)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert beating.stdin is not None  # noqa: S101 - for the type checker
    assert beating.stdout is not None  # noqa: S101 - for the type checker
    try:
        ready, _, _ = select.select([beating.stdout], [], [], _BEGIN_WITHIN_S)
        if not ready or not beating.stdout.readline():
            raise ConfigError(f"Process {process.pid} could not be slowed: it is gone.")
        yield
    finally:
        beating.stdin.close()
        try:
            beating.wait(_END_WITHIN_S)
        except subprocess.TimeoutExpired:
            beating.kill()
            beating.wait()
        beating.stdout.close()
        send(process, signal.SIGCONT)


def beat(process: ProcessId, *, share: float, period_s: float, until_closed: int) -> None:
    """Pauses and resumes until the file `until_closed` ends, or the process does."""
    pause_s, run_s = share * period_s, (1 - share) * period_s
    at = time.monotonic()
    try:
        while process_state(process) is not ProcessState.DEAD:
            for number, lasts_s in ((signal.SIGSTOP, pause_s), (signal.SIGCONT, run_s)):
                send(process, number)
                at = max(at + lasts_s, time.monotonic())  # a late beat is not made up for
                if _closed_before(at, until_closed):
                    return
    finally:
        send(process, signal.SIGCONT)


def _closed_before(moment: float, file: int) -> bool:
    while (left_s := moment - time.monotonic()) > 0:
        ready, _, _ = select.select([file], [], [], left_s)
        if ready and not os.read(file, 1024):
            return True
    return False


def _check(share: float, period_s: float) -> None:
    if not 0 < share < 1 or period_s <= 0:
        raise ValueError(f"a share within 0 and 1 of a period, not {share:g} of {period_s:g} s")


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _main(pid: str, started: str, share: str, period_s: str) -> int:
    process = ProcessId(int(pid), started)
    _check(float(share), float(period_s))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _end)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, _NICE)
    if process_state(process) is ProcessState.DEAD:
        return 1
    print("slowing", flush=True)
    beat(
        process,
        share=float(share),
        period_s=float(period_s),
        until_closed=sys.stdin.fileno(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
