"""How verbs are stopped by Ctrl-C and by SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def until_interrupted() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that what is under way is still delivered.

    A second one does not wait for that.
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
    """SIGTERM unwinds as Ctrl-C does, so that no process of ours stays behind."""

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(on_signal, signal.SIGTERM):
        yield


@contextmanager
def _handled(
    handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals
) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():  # signals are not its business
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
