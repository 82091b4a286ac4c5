"""Handling of Ctrl-C and SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that outstanding work can be finished.

    A second signal interrupts at once.
    """
    stop = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with _handled(on_signal, signal.SIGINT, signal.SIGTERM):
        yield stop


@contextmanager
def terminable() -> Iterator[None]:
    """Makes SIGTERM raise KeyboardInterrupt, so that child processes are cleaned up."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(on_signal, signal.SIGTERM):
        yield


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can set signal handlers
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
