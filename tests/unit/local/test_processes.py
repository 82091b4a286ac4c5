"""Processes that are known again, and threads that go ahead."""

from __future__ import annotations

import os

from trimtab.local.processes import SENDER_NICE, ahead_of_others


def test_the_sender_goes_ahead_where_it_may_and_is_as_before_afterwards(monkeypatch):
    before = os.getpriority(os.PRIO_PROCESS, 0)
    asked: list[int] = []

    def refused(_which: int, _who: int, nice: int) -> None:
        asked.append(nice)
        if nice < before:
            raise PermissionError

    monkeypatch.setattr(os, "setpriority", refused)
    with ahead_of_others():
        pass

    assert asked == [SENDER_NICE, before]
