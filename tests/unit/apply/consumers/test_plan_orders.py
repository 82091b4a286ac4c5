"""Which order a new controller inherits, by the journals of the group's plans."""

from __future__ import annotations

from dataclasses import replace

from tests.golden import samples
from trimtab.apply.consumers.controller_state import PlanOrdered
from trimtab.apply.consumers.plan_orders import InheritedOrders, entry_of, inherited_orders
from trimtab.model.journal import JournalEntry, PlanState
from trimtab.model.plan import ConsumerPlan, Scope

SECOND = 1_000_000
PLAN: ConsumerPlan = replace(
    samples.readme_plan("trim"), scope=Scope(group="pay", topics=("orders",))
)


def begun(plan: str, at_s: float) -> tuple[ConsumerPlan, JournalEntry]:
    """A plan that was started, and given up before its first move was done."""
    written = entry_of(PlanOrdered(0.0, plan, PLAN), PlanState.FAILED, why="x", begun=True)
    return PLAN, replace(written, ts=round(at_s * SECOND))


def entry(
    plan: str, state: PlanState, at_s: float, *, hold_s: float = 300, step: int = 0
) -> tuple[ConsumerPlan, JournalEntry]:
    order = PlanOrdered(0.0, plan, PLAN, hold_s=hold_s)
    written = entry_of(order, state, step=step, of=4)
    return PLAN, replace(written, ts=round(at_s * SECOND))


def inherited(*kept: tuple[ConsumerPlan, JournalEntry], now_s: float) -> InheritedOrders:
    return inherited_orders(kept, "pay", now_ts=round(now_s * SECOND))


def test_a_done_plan_is_held_from_its_end() -> None:
    found = inherited(entry("a", PlanState.DONE, 100), now_s=350)

    assert (found.held_plan, found.held_s) == ("a", 50)
    assert inherited(entry("a", PlanState.DONE, 100), now_s=401) == InheritedOrders()


def test_a_plan_in_progress_keeps_its_whole_hold_for_its_end() -> None:
    found = inherited(entry("a", PlanState.RUNNING, 100, step=1), now_s=1000)

    assert found.unfinished is not None
    assert (found.unfinished[1].plan, found.held_s) == ("a", 300)


def test_a_refused_or_open_order_hides_neither_a_plan_in_progress_nor_a_held_one() -> None:
    later = entry("b", PlanState.FAILED, 200), entry("c", PlanState.MADE, 210)

    running = inherited(entry("a", PlanState.RUNNING, 100), *later, now_s=220)
    held = inherited(entry("a", PlanState.DONE, 100), *later, now_s=220)

    assert running.unfinished is not None
    assert held.held_plan == "a"


def test_a_plan_that_was_started_and_failed_ends_the_hold_of_the_one_before() -> None:
    found = inherited(entry("a", PlanState.DONE, 100), begun("b", 200), now_s=220)

    assert found == InheritedOrders()


def test_a_plan_that_is_not_held_leaves_nothing() -> None:
    assert inherited(entry("a", PlanState.DONE, 100, hold_s=0), now_s=100) == InheritedOrders()


def test_plans_of_other_groups_do_not_count() -> None:
    kept = [entry("a", PlanState.RUNNING, 100)]

    assert inherited_orders(kept, "other", now_ts=100 * SECOND) == InheritedOrders()
