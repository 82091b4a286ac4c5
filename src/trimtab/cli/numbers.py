"""Numbers on the command line: finite, and in the range that an option names.

Options that take a number have one of these as `callback`, beside Typer's own `min` and `max`;
lists and pairs of numbers are read with `number`.
"""

from __future__ import annotations

import math

import typer


def finite(value: float | None) -> float | None:
    """Rejects nan and infinity, which Python parses as numbers."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


def positive(value: float | None) -> float | None:
    """Rejects numbers that are not finite and greater than 0."""
    finite(value)
    if value is not None and value <= 0:
        raise typer.BadParameter(f"{value:g} is not greater than 0")
    return value


def number(text: str) -> float:
    """Parses a finite number.

    >>> number("1e3")
    1000.0
    """
    try:
        value = float(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is not a number") from error
    finite(value)
    return value
