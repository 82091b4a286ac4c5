"""Keeps the process running that measures rates for a controller.

Why      Rates come from Spark, in a separate process. Without them the controller refuses to act.
Promise  Nothing is started while rates are already published. A process that exits is restarted
         with growing pauses. It is stopped by the controller that started it, or by the one that
         leads: so a process of a killed controller is stopped in the end, and a waiting controller
         does not stop the leader's process.
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

_CHECK_EVERY_S = 1.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 2.0, 60.0
_INDEX = 0


@contextmanager
def measuring(processes: Backend, is_published: Callable[[], bool]) -> Iterator[threading.Event]:
    """Measures while the block runs; `processes` runs the one process that does it.

    While the event is set, the process is stopped at the end of the block: it was started here, or
    the caller became leader and has set the event.
    """
    ours, over = threading.Event(), threading.Event()
    if _INDEX not in processes.running() and is_published():
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
                processes.remove([_INDEX])
            except TrimtabError as error:
                log.warning("measuring_did_not_end", why=error.message)


def _keep(processes: Backend, ours: threading.Event, over: threading.Event) -> None:
    pause_s, started = _FIRST_PAUSE_S, float("-inf")
    while True:
        try:
            if _INDEX not in processes.running():
                if time.monotonic() - started > _LONGEST_PAUSE_S:
                    pause_s = _FIRST_PAUSE_S
                elif over.wait(pause_s):
                    return
                else:
                    pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                processes.create([_INDEX])
                started = time.monotonic()
                ours.set()
                log.info("measuring_was_started")
        except Exception as error:  # the thread must go on
            log.warning("measuring_was_not_started", why=str(error))
        if over.wait(_CHECK_EVERY_S):
            return
