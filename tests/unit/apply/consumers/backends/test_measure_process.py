"""The measuring that a controller lives on."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import pytest

from trimtab.apply.consumers.backends import measure_process as module
from trimtab.apply.consumers.backends.measure_process import measuring
from trimtab.errors import ApplyError

WITHIN_S = 30.0


class Processes:
    """A backend with one process, that a test can end."""

    def __init__(self, *, fails: int = 0) -> None:
        self.runs = False
        self.started = 0
        self.removed = 0
        self.fails = fails
        self.changed = threading.Condition()

    def names(self) -> None: ...

    def running(self) -> Mapping[int, str]:
        return {0: str(self.started)} if self.runs else {}

    def exit_reasons(self) -> Mapping[int, str]:
        return {}

    def create(self, consumers: Collection[int]) -> None:
        with self.changed:
            self.started += 1
            self.changed.notify_all()
            if self.started <= self.fails:
                raise ApplyError("no room")
            self.runs = True

    def remove(self, idle: Collection[int]) -> None:
        self.removed += 1
        self.runs = False

    def kill(self, consumer: int) -> None:
        raise AssertionError("measuring is never ended by force")

    def close(self) -> None:
        raise AssertionError("the processes are not measuring's to close")

    def wait_for(self, starts: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.started >= starts, WITHIN_S)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CHECK_EVERY_S", 0.01)
    monkeypatch.setattr(module, "_FIRST_PAUSE_S", 0.01)


def test_nothing_is_started_while_somebody_publishes():
    processes = Processes()

    with measuring(processes, lambda: True):
        pass

    assert (processes.started, processes.removed) == (0, 0)


def test_measuring_runs_while_the_block_does_and_ends_with_it():
    processes = Processes()

    with measuring(processes, lambda: False):
        processes.wait_for(1)

    assert (processes.started, processes.removed, processes.runs) == (1, 1, False)


def test_a_process_that_dies_or_does_not_start_is_started_again():
    processes = Processes(fails=1)

    with measuring(processes, lambda: False):
        processes.wait_for(2)
        processes.runs = False
        processes.wait_for(3)

    assert processes.started == 3


def test_a_process_of_another_is_ended_only_by_who_leads():
    processes = Processes()
    processes.runs = True

    with measuring(processes, lambda: True):
        pass
    left = processes.removed
    with measuring(processes, lambda: True) as ours:
        ours.set()

    assert (processes.started, left, processes.removed) == (0, 0, 1)
