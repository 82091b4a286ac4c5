"""How people write durations on the command line."""

from __future__ import annotations

import re

import typer

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|m|h|d)?")
_UNITS = {"us": 1e-6, "ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str | float) -> float:
    """Reads `500ms`, `30s`, `2m`, `1.5h`, `1d`; a bare number, as defaults are, is seconds.

    >>> seconds("500ms"), seconds("2m"), seconds("30")
    (0.5, 120.0, 30.0)
    """
    found = _DURATION.fullmatch(str(text).strip())
    value = float(found["number"]) * _UNITS[found["unit"]] if found else 0.0
    if value <= 0:
        raise typer.BadParameter(f"{text!r} is no duration such as 500ms, 30s, 10m or 2h")
    return value
