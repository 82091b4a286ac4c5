"""How people write durations on the command line."""

from __future__ import annotations

import re

import typer

_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>us|ms|s|m|h|d)?")
_UNITS = {"us": 1e-6, "ms": 1e-3, None: 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_S = 36500 * 86400.0
"""Longer than that no clock or timer of Python takes."""


def seconds(text: str | float) -> float:
    """Reads `500ms`, `30s`, `2m`, `1.5h`, `1d`; a bare number, as defaults are, is seconds.

    >>> seconds("500ms"), seconds("2m"), seconds("30")
    (0.5, 120.0, 30.0)
    """
    value = seconds_or_zero(text)
    if value == 0:
        raise typer.BadParameter(f"{text!r} is too short: a duration above 0 is needed")
    return value


def seconds_or_zero(text: str | float) -> float:
    """Reads a duration as `seconds` does, and takes 0 for none at all.

    >>> seconds_or_zero("0"), seconds_or_zero("0s"), seconds_or_zero("5ms")
    (0.0, 0.0, 0.005)
    """
    found = _DURATION.fullmatch(str(text).strip())
    if found is None:
        raise typer.BadParameter(f"invalid duration {text!r}: write it as 500ms, 30s, 10m or 2h")
    value = float(found["number"]) * _UNITS[found["unit"]]
    if value > _MOST_S:
        raise typer.BadParameter(f"{text!r} is too long: at most 36500d")
    return value
