"""The executor's protocol, with a layer in memory: journal, resume, cancel, failure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from trimtab.apply.executor import Found, execute
from trimtab.errors import ApplyError
from trimtab.model.journal import TRANSITIONS, JournalEntry, PlanState

PLAN = "7f3a9c01d2e4"
BATCHES = (("a", "b"), ("c",), ("d", "e"))
FOUND: Found = {"broker 1": {"leader.replication.throttled.rate": None}}


class Crash(BaseException):
    """The machine is gone: nothing runs any more."""


class Layer:
    """Moves letters; may crash or fail at a batch. `throttled` is a setting that it changes."""

    def __init__(self, *, crash_at: int = -1, fail_at: int = -1) -> None:
        self.crash_at, self.fail_at = crash_at, fail_at
        self.done: list[str] = []
        self.throttled = False
        self.calls = 0

    def prepare(self) -> Found:
        self.throttled = True
        return FOUND

    def carry_out(self, batch: Sequence[str]) -> None:
        self.calls += 1
        if self.calls - 1 == self.crash_at:
            raise Crash
        if self.calls - 1 == self.fail_at:
            raise ApplyError("broker 3 did not answer")
        self.done += [move for move in batch if move not in self.done]

    def restore(self, found: Found) -> None:
        assert found == FOUND
        self.throttled = False


class Kept:
    """A journal in memory that refuses what may not follow."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []

    def newest(self, plan: str) -> JournalEntry | None:
        return self.entries[-1] if self.entries else None

    def write(self, entry: JournalEntry) -> None:
        if self.entries:
            assert entry.state in TRANSITIONS[self.entries[-1].state]
        self.entries.append(entry)


def run(layer: Layer, journal: Kept, **more: object) -> JournalEntry:
    return execute(PLAN, BATCHES, layer, journal, clock=count().__next__, **more)  # type: ignore[arg-type]


def test_every_batch_is_journalled_before_it_is_done_and_settings_are_restored() -> None:
    layer, journal = Layer(), Kept()

    last = run(layer, journal)

    assert layer.done == list("abcde")
    assert not layer.throttled
    assert [(e.state, e.step) for e in journal.entries] == [
        *((PlanState.RUNNING, n) for n in range(4)),
        (PlanState.DONE, 3),
    ]
    assert [dict(e.found) for e in journal.entries[:-1]] == [FOUND] * 4
    assert last.found == {}


@pytest.mark.parametrize("at", range(3))
def test_another_machine_goes_on_where_the_journal_ends(at: int) -> None:
    layer, journal = Layer(crash_at=at), Kept()
    with pytest.raises(Crash):
        run(layer, journal)
    assert layer.throttled

    layer.crash_at = -1
    run(layer, journal)

    assert layer.done == list("abcde")
    assert not layer.throttled
    assert journal.entries[-1].state is PlanState.DONE


def test_a_failure_ends_the_plan_with_its_reason_and_restores_what_was_found() -> None:
    layer, journal = Layer(fail_at=1), Kept()

    with pytest.raises(ApplyError, match="broker 3"):
        run(layer, journal)

    assert (journal.entries[-1].state, journal.entries[-1].step) == (PlanState.FAILED, 1)
    assert journal.entries[-1].why == "broker 3 did not answer"
    assert not layer.throttled
    with pytest.raises(ApplyError, match="cannot become running"):
        run(layer, journal)


def test_a_cancelled_plan_stops_after_the_batch_under_way() -> None:
    layer, journal = Layer(), Kept()

    last = run(layer, journal, cancelled=lambda: layer.calls == 2)

    assert (last.state, last.step) == (PlanState.CANCELLED, 2)
    assert layer.done == list("abc")
    assert not layer.throttled


def test_progress_is_told() -> None:
    seen: list[tuple[int, int]] = []

    run(Layer(), Kept(), on_progress=lambda done, total: seen.append((done, total)))

    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
