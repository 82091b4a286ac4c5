"""Ends work after a given time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def stopped_after(stop: threading.Event, after_s: float | None) -> Iterator[None]:
    """Sets `stop` after `after_s` seconds, unless the block ends earlier; None never does."""
    if after_s is None:
        yield
        return
    timer = threading.Timer(after_s, stop.set)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
