"""A time limit, measured with a clock that is advanced by hand."""

from __future__ import annotations

import math

import pytest

from trimtab.plan.consumers.deadline import Deadline


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_time_is_up_when_the_limit_has_passed() -> None:
    clock = Clock()
    deadline = Deadline(2.0, clock)
    assert (deadline.left_s(), deadline.is_over()) == (2.0, False)

    clock.now += 1.5
    assert (deadline.left_s(), deadline.is_over()) == (0.5, False)

    clock.now += 0.5
    assert deadline.is_over()
    assert 0 < deadline.left_s() < 0.01  # a solver takes no limit of 0


def test_without_a_limit_the_time_is_never_up() -> None:
    deadline = Deadline(None)
    assert (deadline.left_s(), deadline.is_over()) == (math.inf, False)


@pytest.mark.parametrize("limit", [0, -1, math.nan])
def test_a_limit_must_be_positive(limit: float) -> None:
    with pytest.raises(ValueError, match="the time limit must be a positive number of seconds"):
        Deadline(limit)
