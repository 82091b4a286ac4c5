"""Orders as a controller takes them: what is read, refused, and not begun twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.golden.samples import readme_plan
from trimtab.apply.consumers.kafka import plan_orders
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.errors import BadFile, BrokerUnavailable, PlanDamaged
from trimtab.kafka.cluster import Cluster
from trimtab.model.control import PlanOrder
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan_codec import plan_id
from trimtab.observe.clock import wall_clock_us

PLAN = readme_plan("trim", group="pay")
NAME = plan_id(PLAN)
CONFIG = GroupConfig(cluster=Cluster("nowhere:1"), group="pay", topics=("orders",))


def entry(state: PlanState) -> JournalEntry:
    return JournalEntry(plan=NAME, state=state, step=0, of=1, ts=1)


def an_order(*, late: bool = False) -> PlanOrder:
    expires_ts = 1 if late else wall_clock_us() + 60_000_000
    return PlanOrder(plan=NAME, hold_s=60.0, expires_ts=expires_ts)


def test_a_plan_that_is_kept_becomes_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = PLAN, entry(PlanState.MADE)
    monkeypatch.setattr(plan_orders, "kept_plan", lambda *_: kept)

    event = plan_orders.ordered(CONFIG, an_order())

    assert event is not None
    assert (event.plan, event.refused, event.hold_s, event.step) == (PLAN, "", 60.0, None)
    assert 50 < event.until - event.now <= 60


@pytest.mark.parametrize("state", [s for s in PlanState if s is not PlanState.MADE])
def test_an_order_that_is_no_longer_open_is_ignored(
    monkeypatch: pytest.MonkeyPatch, state: PlanState
) -> None:
    monkeypatch.setattr(plan_orders, "kept_plan", lambda *_: (PLAN, entry(state)))

    assert plan_orders.ordered(CONFIG, an_order()) is None


@pytest.mark.parametrize(
    ("config", "kept", "late", "why"),
    [
        (CONFIG, (None, None), False, "has no such plan"),
        (CONFIG, (PLAN, entry(PlanState.MADE)), True, "has expired"),
        (
            GroupConfig(cluster=CONFIG.cluster, group="book", topics=("orders",)),
            (PLAN, entry(PlanState.MADE)),
            False,
            "not a plan for the consumers of group book",
        ),
        (
            GroupConfig(cluster=CONFIG.cluster, group="pay", topics=("refunds",)),
            (PLAN, entry(PlanState.MADE)),
            False,
            "refunds only",
        ),
    ],
)
def test_what_cannot_be_carried_out_is_refused_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
    config: GroupConfig,
    kept: tuple[object, object],
    late: bool,
    why: str,
) -> None:
    monkeypatch.setattr(plan_orders, "kept_plan", lambda *_: kept)

    event = plan_orders.ordered(config, an_order(late=late))

    assert event is not None
    assert why in event.refused


def test_a_plan_that_cannot_be_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> None:
        raise BrokerUnavailable("trimtab.plans could not be read to its end.")

    monkeypatch.setattr(plan_orders, "kept_plan", silent)

    event = plan_orders.ordered(CONFIG, an_order())

    assert event is not None
    assert "could not be read" in event.refused


class Kept:
    """`trimtab.plans` in memory; a plan that is an exception is raised when it is read."""

    def __init__(self, plans: dict[str, Any], states: dict[str, PlanState]) -> None:
        self._plans, self._states = plans, states

    def refresh(self) -> None: ...

    def close(self) -> None: ...

    def entries(self) -> list[JournalEntry]:
        return [
            JournalEntry(plan=name, state=state, step=0, of=1, ts=at)
            for at, (name, state) in enumerate(self._states.items())
        ]

    def plan(self, name: str) -> Any:
        found = self._plans[name]
        if isinstance(found, Exception):
            raise found
        return found


def test_a_damaged_plan_does_not_hide_the_one_in_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = {NAME: PLAN, "0" * 12: BadFile("trimtab.plans: is empty"), "1" * 12: PlanDamaged("x")}
    states = {"0" * 12: PlanState.DONE, NAME: PlanState.RUNNING, "1" * 12: PlanState.RUNNING}
    monkeypatch.setattr(plan_orders, "PlanTopic", lambda _: Kept(plans, states))

    left = plan_orders.left_orders(CONFIG)

    assert left.unfinished is not None
    assert left.unfinished[0] == PLAN


def test_a_journal_that_cannot_be_read_ends_the_lead_instead_of_forgetting_a_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(_: Cluster) -> None:
        raise BrokerUnavailable("trimtab.plans could not be read to its end.")

    monkeypatch.setattr(plan_orders, "PlanTopic", silent)

    with pytest.raises(BrokerUnavailable):
        plan_orders.left_orders(CONFIG)
