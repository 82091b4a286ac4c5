"""The time limit of a planner that searches."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Annotated

TimeLimit = Annotated[
    float | None, "After this time, exact and trim return the best plan found so far."
]
"""The option `time_limit_s` of planners that search."""


class Deadline:
    """The remaining part of a time limit, which begins now; without a limit it is infinite."""

    def __init__(self, limit_s: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        if limit_s is not None and not limit_s > 0:
            raise ValueError(f"the time limit must be a positive number of seconds, not {limit_s}")
        self.limit_s = limit_s
        self._clock = clock
        self._end = None if limit_s is None else clock() + limit_s

    def left_s(self) -> float:
        """The remaining seconds, always above 0, so that the solver itself reports the timeout."""
        return math.inf if self._end is None else max(1e-3, self._end - self._clock())

    def is_over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and self._clock() >= self._end
