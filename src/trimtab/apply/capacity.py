"""Measures how much a consumer can handle per second, from its working time under load.

Why      While a consumer waits for records, its rate is the arrival rate, not its capacity; without
         the time for fetching the rate would be too high.
Promise  Only time without waiting counts, in windows of at least `window_s`: fetching, handling,
         writing and committing. Waiting discards an incomplete window. Windows with a backlog at
         the brokers include fetching and replace those with a backlog only in the fetched batch,
         where fetching cannot be told from waiting. The capacity is the upper quartile of the last
         `windows`, so one odd window in four changes nothing; unknown before `least` windows.
Paper    Landau et al. pack to 5/6 of the peak that was measured: `model.load.MEASURED_HEADROOM`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

_QUANTILE = 0.75


def upper_quartile(values: Sequence[float]) -> float:
    """The upper quartile, linearly interpolated between two values.

    >>> upper_quartile([100.0, 104.0, 96.0, 4000.0, 100.0])
    104.0
    """
    ordered = sorted(values)
    place = _QUANTILE * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


class _Window(NamedTuple):
    records_s: float
    bytes_s: float


class Capacity:
    """The capacity of one consumer; `add` and `pause` are called by its working thread only."""

    def __init__(self, *, window_s: float = 1.0, windows: int = 30, least: int = 3) -> None:
        self._window_s = window_s
        self._least = least
        self._backlog: deque[_Window] = deque(maxlen=windows)
        self._batch: deque[_Window] = deque(maxlen=windows)
        self._busy_s, self._records, self._bytes, self._behind = 0.0, 0, 0, True

    def add(self, busy_s: float, records: int, size: int, *, behind: bool) -> None:
        """Adds work without waiting; `behind` if the brokers had more than was fetched."""
        self._busy_s += busy_s
        self._records += records
        self._bytes += size
        self._behind = self._behind and behind
        if self._busy_s >= self._window_s:
            if self._records:
                window = _Window(self._records / self._busy_s, self._bytes / self._busy_s)
                (self._backlog if self._behind else self._batch).append(window)
            self.pause()

    def pause(self) -> None:
        """The consumer waited for records: discards the incomplete window."""
        self._busy_s, self._records, self._bytes, self._behind = 0.0, 0, 0, True

    @property
    def records_s(self) -> float | None:
        """Records per second; None while unknown."""
        windows = self._windows()
        return upper_quartile([w.records_s for w in windows]) if windows else None

    @property
    def bytes_s(self) -> float | None:
        """Bytes per second; None while unknown."""
        windows = self._windows()
        return upper_quartile([w.bytes_s for w in windows]) if windows else None

    def _windows(self) -> Sequence[_Window]:
        found = (tuple(self._backlog), tuple(self._batch))
        return next((windows for windows in found if len(windows) >= self._least), ())
