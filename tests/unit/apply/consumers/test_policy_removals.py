"""What is decided where only the highest consumers can be removed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.apply.consumers.policy_cases import (
    BYTES,
    CONSUMERS,
    HELD,
    LATENCY,
    WITHIN_TWO,
    P,
    decided,
    measured,
    rates,
    seen,
)
from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.model.assignment import Assignment
from trimtab.model.control import Action

TRIM = replace(BYTES, planner=CONSUMERS["trim"])


def stateful(owners: dict[int, int], consumers: set[int], **more: float) -> GroupView:
    view = seen(owners, consumers=consumers, quiet_s=60.0, **more)
    return replace(view, removes_highest_only=True)


def owners_in(found: GroupVerdict) -> dict[int, int]:
    assert found.target is not None
    return {p.partition: c for p, c in found.target.items()}


@pytest.mark.parametrize("planner", ["trim", "mwf", "ll-ffd"])
def test_no_partition_moves_for_a_spare_below_where_the_highest_is_idle(planner):
    aim = replace(LATENCY if planner == "ll-ffd" else BYTES, planner=CONSUMERS[planner])
    view = stateful({0: 1, 1: 1, 2: 1, 3: 1}, {0, 1, 2}, spares=1)

    found = decided(view, measured(rates([20, 20, 20, 20])), aim)

    assert (found.decision.action, found.target) == (Action.NONE, None)


def test_a_group_that_shrinks_keeps_the_spare_that_is_below():
    view = stateful({0: 1, 1: 2, 2: 2, 3: 3}, {0, 1, 2, 3}, spares=1)

    found = decided(view, measured(rates([40, 40, 30, 10])), TRIM)

    assert owners_in(found) == {0: 1, 1: 2, 2: 2, 3: 1}


def test_as_many_of_the_highest_are_replaced_as_the_budget_allows():
    view = stateful({0: 2, 1: 2, 2: 2, 3: 3}, {0, 1, 2, 3})
    aim = replace(TRIM, planner=CONSUMERS["trim"].with_options(max_moves=2))

    found = decided(view, measured(rates([30, 30, 30, 60])), aim)

    assert owners_in(found) == {0: 2, 1: 2, 2: 2, 3: 0}
    assert "so consumer 0 should read instead of consumer 3" in found.decision.reason


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_moves": 3}, "--max-moves allows"),
        ({"max_moved_load": 70.0}, "--max-moved-load allows"),
        ({"max_moves": 3, "max_moved_load": 70.0}, "--max-moves and --max-moved-load allow"),
    ],
)
def test_a_decision_says_which_budget_keeps_an_idle_consumer(options, words):
    aim = replace(TRIM, planner=CONSUMERS["trim"].with_options(**options))

    found = decided(stateful(dict.fromkeys(range(4), 1), {0, 1}), measured(rates([20] * 4)), aim)

    assert found.decision.action is Action.NONE
    assert found.decision.reason.endswith(
        "; only the highest consumers can be removed, "
        f"and to replace consumer 1 by consumer 0 takes more than {words}"
    )


AT_ITS_MAXIMUM = stateful({0: 1, 1: 1, 2: 2, 3: 2}, {0, 1, 2})


@pytest.mark.parametrize("aim", WITHIN_TWO, ids=lambda aim: aim.planner.name)
def test_also_a_group_at_its_maximum_leaves_no_idle_consumer_below_a_busy_one(aim):
    found = decided(AT_ITS_MAXIMUM, measured(rates([62, 60, 60, 60])), aim)

    assert owners_in(found) == {0: 1, 1: 1, 2: 0, 3: 0}


@pytest.mark.parametrize("aim", WITHIN_TWO, ids=lambda aim: aim.planner.name)
def test_the_numbers_of_a_plan_that_is_held_do_not_change_even_if_a_consumer_has_too_much(aim):
    found = decided(replace(AT_ITS_MAXIMUM, hold=HELD), measured(rates([62, 60, 60, 60])), aim)

    assert (found.decision.action, found.target) == (Action.NONE, None)
    assert "plan 7f3a9c01d2e4 is held" in found.decision.reason


def test_a_silent_consumer_replaces_no_other():
    view = stateful(dict.fromkeys(range(4), 1), {0, 1})
    known = measured(rates([20] * 4))

    heard = decided(view, known, TRIM)
    silent = decided(replace(view, silent=frozenset({0})), known, TRIM)

    assert heard.target == Assignment(dict.fromkeys(P, 0))
    assert silent.target is None
