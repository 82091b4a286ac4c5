"""Warnings about the age of a measurement that a plan rests on."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.model.load import Measurement

_MICROS = 1_000_000
_CLOCKS_DIFFER_S = 60


def about_age(measured: Measurement, *, now_ts: int, max_age_s: float) -> Iterator[str]:
    """Warns of loads that are old or have a time in the future."""
    age_s = (now_ts - measured.to_ts) / _MICROS
    if age_s > max_age_s:
        yield f"the loads were measured {_long(age_s)} ago, longer than {_long(max_age_s)}"
    if age_s < -_CLOCKS_DIFFER_S:
        yield f"the measurement is dated {_long(-age_s)} in the future: check the clocks"


def _long(seconds: float) -> str:
    """A duration as readable text.

    >>> [_long(s) for s in (45, 900, 7200, 200_000)]
    ['45 s', '15 min', '2 h', '2 days']
    """
    for unit, size in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
