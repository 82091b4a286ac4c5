"""Following a plan that someone else has ordered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.golden import samples
from trimtab.apply.kafka import plan_topic
from trimtab.kafka.cluster import Cluster
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan_codec import plan_id
from trimtab.services import apply

PLAN = samples.readme_plan("trim", group="pay")


def entry(state: PlanState, ts: int) -> JournalEntry:
    return JournalEntry(plan=plan_id(PLAN), state=state, step=2, of=2, ts=ts)


def test_the_end_of_an_earlier_run_is_not_taken_for_that_of_a_new_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    earlier, ordered, done = (
        entry(PlanState.DONE, 1),
        entry(PlanState.MADE, 2),
        entry(PlanState.DONE, 3),
    )
    readers: list[Any] = []

    class Topic:
        """The first reader sees the new records late; the others see them at once."""

        def __init__(self, _cluster: Cluster) -> None:
            readers.append(self)
            self.late = [earlier, ordered, done] if len(readers) == 1 else []
            self.entry = earlier if len(readers) == 1 else ordered

        def refresh(self) -> None: ...

        def wait(self, _seconds: float) -> None:
            if self.late:
                self.entry = self.late.pop(0)

        def newest(self, _plan: str) -> JournalEntry:
            return self.entry

        def close(self) -> None: ...

    monkeypatch.setattr(plan_topic, "PlanTopic", Topic)
    there = SimpleNamespace(partitions=frozenset(), assignment=None)
    monkeypatch.setattr(apply, "present_group", lambda *_: there)
    monkeypatch.setattr(apply, "check_fresh", lambda *_: None)
    monkeypatch.setattr(apply, "_check_controller", lambda *_: None)

    found = apply.carry_out(PLAN, Cluster("localhost:1"), apply.ApplyOptions())

    assert found == done
