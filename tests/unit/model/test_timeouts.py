"""Time-outs, and which of them are refused."""

from __future__ import annotations

from dataclasses import fields

import pytest

from trimtab.model.timeouts import LONGEST_S, Timeouts, milliseconds


@pytest.mark.parametrize("name", [field.name for field in fields(Timeouts)])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), LONGEST_S + 1])
def test_a_time_out_that_is_not_a_time_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name} must be above 0 and at most 300 s"):
        Timeouts(**{name: value})


def test_clients_get_whole_milliseconds_and_never_none_of_them() -> None:
    assert [milliseconds(s) for s in (20.0, 0.0004, 1.2345)] == [20_000, 1, 1234]
