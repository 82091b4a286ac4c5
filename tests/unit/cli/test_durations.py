"""Durations as people write them."""

from __future__ import annotations

import pytest
import typer

from trimtab.cli.durations import seconds, seconds_or_zero


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("250ms", 0.25),
        ("30s", 30),
        ("1.5m", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("7", 7),
    ],
)
def test_durations_carry_their_unit(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text", ["", "0s", "-1s", "9" * 400, "soon", "1 fortnight", "s", "nan", "1e3"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"invalid duration|too short|too long"):
        seconds(text)


def test_no_time_at_all_may_be_a_duration_too() -> None:
    assert seconds_or_zero("0s") == seconds_or_zero("0") == 0
    with pytest.raises(typer.BadParameter, match="invalid duration"):
        seconds_or_zero("-1s")
