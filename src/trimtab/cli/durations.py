"""Durations on the command line."""

from __future__ import annotations

import typer

from trimtab.model.durations import duration_s


def seconds(text: str | float) -> float:
    """Parses `50us`, `500ms`, `30s`, `2m`, `1.5h` or `1d`; without a unit it is in seconds.

    >>> seconds("500ms"), seconds("2m"), seconds("30")
    (0.5, 120.0, 30.0)
    """
    value = seconds_or_zero(text)
    if value == 0:
        raise typer.BadParameter(f"{text!r} is too short: the duration must be greater than 0")
    return value


def seconds_or_zero(text: str | float) -> float:
    """Parses a duration as `seconds` does; 0 is allowed.

    >>> seconds_or_zero("0"), seconds_or_zero("0s"), seconds_or_zero("5ms")
    (0.0, 0.0, 0.005)
    """
    if isinstance(text, float):  # the default of an option; as text, 0.00005 would be 5e-05
        return text
    try:
        return duration_s(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
