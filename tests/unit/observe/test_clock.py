"""Waiting for a condition."""

from __future__ import annotations

import pytest

from trimtab.observe.clock import TimedOut, wait_until


def test_the_first_true_answer_is_returned() -> None:
    answers = iter([0, "", None, "here", "later"])

    assert wait_until(lambda: next(answers), within_s=20.0, every_s=0.0) == "here"
    assert next(answers) == "later"


def test_without_time_it_asks_once_and_a_true_answer_counts() -> None:
    assert wait_until(lambda: True, within_s=-1.0)


def test_a_timeout_names_what_was_waited_for_and_how_long() -> None:
    with pytest.raises(TimedOut, match=r"^Timed out after 0 s waiting for a leader\.$"):
        wait_until(lambda: False, within_s=0.0, every_s=0.001, what="a leader")


def test_an_error_of_the_condition_ends_the_wait() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 / 0, within_s=20.0)
