"""Makes a broker slow, not dead: its process is paused and resumed periodically.

Why      A process that runs for a share of each period serves that much less, and requests that
         arrive in a pause wait: like a broker on an overloaded machine. Needs no extra privileges.
Promise  The process runs again at the end of the block, when the caller dies (its pipe closes), or
         on SIGTERM. Only SIGKILL of both leaves it paused: use `trimtab cluster resume N`. The
         start time is checked, so a reused process id is never signalled.
Cost     A small process, two signals per period.
Program  ``python -m trimtab_lab.slow_broker PID STARTED SHARE PERIOD_S`` prints a line when it has
         started, and runs until its standard input closes or the process ends.
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

_NICE = -10  # keeps the timing exact on a busy machine; most users lack the permission
_START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 10.0


@contextlib.contextmanager
def slowed(
    cluster: LocalCluster, *, broker: int, share: float, period_s: float = 0.1
) -> Iterator[None]:
    """Pauses a broker for `share` of every period while the block runs."""
    with slowed_process(cluster.process(broker), share=share, period_s=period_s):
        yield


@contextlib.contextmanager
def slowed_process(process: ProcessId, *, share: float, period_s: float = 0.1) -> Iterator[None]:
    """Does the same with any process that we may signal."""
    _check(share, period_s)
    pausing = subprocess.Popen(
        [
            *(sys.executable, "-m", "trimtab_lab.slow_broker"),
            *(str(process.pid), process.started, str(share), str(period_s)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert pausing.stdin is not None  # noqa: S101 - for the type checker
    assert pausing.stdout is not None  # noqa: S101 - for the type checker
    try:
        ready, _, _ = select.select([pausing.stdout], [], [], _START_TIMEOUT_S)
        if not ready or not pausing.stdout.readline():
            raise ConfigError(
                f"Process {process.pid} cannot be slowed: it is not running.",
                hint="Check the brokers: trimtab cluster status",
            )
        yield
    finally:
        pausing.stdin.close()
        try:
            pausing.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            pausing.kill()
            pausing.wait()
        pausing.stdout.close()
        send(process, signal.SIGCONT)


def pause_periodically(
    process: ProcessId, *, share: float, period_s: float, until_closed: int
) -> None:
    """Pauses and resumes a process until it ends or the file `until_closed` is closed."""
    pause_s, run_s = share * period_s, (1 - share) * period_s
    at = time.monotonic()
    try:
        while process_state(process) is not ProcessState.DEAD:
            for number, lasts_s in ((signal.SIGSTOP, pause_s), (signal.SIGCONT, run_s)):
                send(process, number)
                at = max(at + lasts_s, time.monotonic())  # no catching up after a delay
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
        raise ValueError(
            f"share must be between 0 and 1 and period_s above 0, not {share:g} and {period_s:g}"
        )


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
    pause_periodically(
        process,
        share=float(share),
        period_s=float(period_s),
        until_closed=sys.stdin.fileno(),
    )
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
