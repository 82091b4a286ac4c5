"""Repeated requests: when the next attempt is made, and when there is none."""

from __future__ import annotations

import threading
from itertools import islice
from types import SimpleNamespace

import pytest

from trimtab.kafka import retry
from trimtab.kafka.retry import Retry, attempts

PAUSES = Retry(first_s=1.0, most_s=3.0)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which passes only in pauses; all that were made."""
    paused: list[float] = []
    fake = SimpleNamespace(monotonic=lambda: sum(paused), sleep=paused.append)
    monkeypatch.setattr(retry, "time", fake)
    return paused


def test_attempts_are_made_until_the_time_is_over(clock: list[float]) -> None:
    #  time     0 ──1── 1 ──2── 3 ──3── 6 ──1── 7
    assert list(attempts(PAUSES, within_s=7.0)) == [7.0, 6.0, 4.0, 1.0]
    assert clock == [1.0, 2.0, 3.0, 1.0]


def test_there_is_one_attempt_however_short_the_time() -> None:
    assert list(attempts(PAUSES, within_s=0.0)) == [0.0]


def test_without_a_limit_attempts_go_on(clock: list[float]) -> None:
    assert len(list(islice(attempts(PAUSES), 50))) == 50
    assert clock[-1] == PAUSES.most_s


def test_a_caller_that_succeeds_does_not_wait(clock: list[float]) -> None:
    for _ in attempts(PAUSES, within_s=7.0):
        break

    assert clock == []


def test_a_stop_ends_the_pause_and_the_attempts() -> None:
    stop = threading.Event()
    made = 0
    for _ in attempts(PAUSES, stop=stop):
        made += 1
        stop.set()

    assert made == 1
