"""Parses durations of the command line and of settings."""

from __future__ import annotations

import re
from decimal import Decimal

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|m|h|d)?")
_UNITS = {
    "us": "0.000001",
    "ms": "0.001",
    None: "1",
    "s": "1",
    "m": "60",
    "h": "3600",
    "d": "86400",
}
_LONGEST_S = 36500 * 86400.0
"""Python's clocks and timers do not accept longer durations."""


def duration_s(text: str) -> float:
    """Parses `50us`, `500ms`, `30s`, `2m`, `1.5h`, `1d`; without a unit it is in seconds.

    >>> duration_s("50us"), duration_s("500ms"), duration_s("2m"), duration_s("30")
    (5e-05, 0.5, 120.0, 30.0)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"invalid duration {text!r}: write it as 500ms, 30s, 10m or 2h")
    # In decimals: 50 times 1e-6 is not 5e-05 in floats.
    value = float(Decimal(found["number"]) * Decimal(_UNITS[found["unit"]]))
    if value > _LONGEST_S:
        raise ValueError(f"{text!r} is too long: at most 36500d")
    return value
