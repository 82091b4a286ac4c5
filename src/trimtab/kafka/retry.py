"""Retries: how many attempts, the pauses between them, and the loop of all repeated requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """The total number of attempts, and pauses that double up to a maximum.

    >>> list(Retry(attempts=5, first_s=1.0, most_s=3.0).pauses())
    [1.0, 2.0, 3.0, 3.0]
    """

    attempts: int = 5
    first_s: float = 0.1
    most_s: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.first_s < 0 or self.most_s < self.first_s:
            raise ValueError(f"invalid retry settings: {self}")

    def pauses(self) -> Iterator[float]:
        """The pause before each further attempt, in seconds."""
        for pause_s, _ in zip(self.endless_pauses(), range(self.attempts - 1), strict=False):
            yield pause_s

    def endless_pauses(self) -> Iterator[float]:
        """The same pauses, without a limit on the number of attempts."""
        pause_s = self.first_s
        while True:
            yield pause_s
            pause_s = min(2 * pause_s, self.most_s)


STEADY = Retry(first_s=0.1, most_s=0.1)
"""For a change that brokers see soon, such as a new topic or a coordinator that has moved."""

SLOWING = Retry(first_s=0.1, most_s=2.0)
"""For brokers that may be down for long."""


def attempts(
    retry: Retry = STEADY,
    *,
    within_s: float = float("inf"),
    stop: threading.Event | None = None,
) -> Iterator[float]:
    """The seconds left at each attempt, until the time is over or `stop` is set.

    There is always a first attempt. The caller leaves the loop when one succeeds; between two
    attempts there is a pause of `retry`, whose number of attempts is not used.

    >>> answers = iter(["", "", "found"])
    >>> next(answer for _ in attempts(within_s=30) if (answer := next(answers)))
    'found'
    """
    until = time.monotonic() + within_s
    yield within_s
    for pause_s in retry.endless_pauses():
        rest_s = min(pause_s, max(0.0, until - time.monotonic()))
        if stop is None:
            time.sleep(rest_s)
        elif stop.wait(rest_s):
            return
        left_s = until - time.monotonic()
        if left_s <= 0:
            return
        yield left_s
