"""The one wall clock: microseconds since 1970, the unit of every time in files and topics."""

from __future__ import annotations

import time


def wall_clock_us() -> int:
    """The time now, in microseconds."""
    return time.time_ns() // 1000
