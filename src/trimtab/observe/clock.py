"""The one wall clock, and the one way to wait for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

_Answer = TypeVar("_Answer")


class TimedOut(Exception):
    """A condition was not met in time; the caller says what that means for its user."""


def wall_clock_us() -> int:
    """The time now in microseconds since 1970, the unit of every time in files and topics."""
    return time.time_ns() // 1000


def wait_until(
    condition: Callable[[], _Answer],
    *,
    within_s: float,
    every_s: float = 0.1,
    what: str = "a condition",
) -> _Answer:
    """Asks again every `every_s` until the answer is true, and returns it.

    Asks at least once. An error of the condition ends the wait.

    Raises:
        TimedOut: if the answer is still false after `within_s`; the message names `what`.
    """
    deadline = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            raise TimedOut(f"Timed out after {within_s:g} s waiting for {what}.")
        time.sleep(every_s)
    return answer
