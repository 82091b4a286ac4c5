"""Keeps the measuring going that a controller lives on.

Why      Rates come from Spark, in a process of its own. Without it the controller refuses to act.
Promise  Nothing is started while somebody publishes already. A process that dies is started again,
         with growing pauses. It ends with the one who started it, or with the one who leads: so one
         that was left behind by a controller that was killed does not stay for ever, and one that
         only waits does not end another's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

from trimtab.apply.consumers.backends.backend import Backend
from trimtab.errors import TrimtabError

log = structlog.get_logger()

_LOOK_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0
_THE_ONE = 0


@contextmanager
def measuring(processes: Backend, is_published: Callable[[], bool]) -> Iterator[threading.Event]:
    """Measures while the block runs; `processes` runs the one process that does it.

    The event says that the process is this one's to end: because it was started here, or because
    the caller, who leads, has set it.
    """
    ours, over = threading.Event(), threading.Event()
    if _THE_ONE not in processes.living() and is_published():
        log.info("rates_are_published_already")
        yield ours
        return
    keeper = threading.Thread(
        target=_keep, args=(processes, ours, over), name="measuring", daemon=True
    )
    keeper.start()
    try:
        yield ours
    finally:
        over.set()
        keeper.join()
        if ours.is_set():
            try:
                processes.remove([_THE_ONE])
            except TrimtabError as error:
                log.warning("measuring_did_not_end", why=error.message)


def _keep(processes: Backend, ours: threading.Event, over: threading.Event) -> None:
    pause_s, started = _FIRST_PAUSE_S, float("-inf")
    while True:
        try:
            if _THE_ONE not in processes.living():
                if time.monotonic() - started > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                elif over.wait(pause_s):
                    return
                else:
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                processes.create([_THE_ONE])
                started = time.monotonic()
                ours.set()
                log.info("measuring_was_started")
        except Exception as error:  # a thread has nobody to raise to, and must go on
            log.warning("measuring_was_not_started", why=str(error))
        if over.wait(_LOOK_S):
            return
