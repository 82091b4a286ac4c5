"""Parses durations of the command line and of settings."""

from __future__ import annotations

import re

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|m|h|d)?")
_UNITS = {"us": 1e-6, "ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_S = 36500 * 86400.0
"""Python's clocks and timers do not accept longer durations."""


def duration_s(text: str) -> float:
    """Parses `500ms`, `30s`, `2m`, `1.5h`, `1d`; a number without a unit is in seconds.

    >>> duration_s("500ms"), duration_s("2m"), duration_s("30")
    (0.5, 120.0, 30.0)
    """
    found = _DURATION.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"invalid duration {text!r}: write it as 500ms, 30s, 10m or 2h")
    value = float(found["number"]) * _UNITS[found["unit"]]
    if value > _LONGEST_S:
        raise ValueError(f"{text!r} is too long: at most 36500d")
    return value
