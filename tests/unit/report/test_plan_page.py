"""The HTML of plans: every layer has its facts and moves, and names are escaped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.golden import samples
from tests.unit.report.report_values import measurement, plan
from trimtab.model.load import Unit
from trimtab.model.plan import AnyPlan, ConsumerPlan
from trimtab.model.plan_codec import plan_id
from trimtab.report.plan_page import plan_page


def consumer_plan() -> ConsumerPlan:
    made = plan()
    assert isinstance(made, ConsumerPlan)
    return made


@pytest.mark.parametrize(
    "made", [consumer_plan(), samples._key_plan(), samples._broker_plan()], ids=lambda p: p.layer
)
def test_the_page_of_every_layer_names_the_plan_its_planner_and_each_move(made: AnyPlan) -> None:
    html = plan_page(made)

    assert f"plan for {made.layer}" in html
    assert plan_id(made) in html
    assert made.planner in html
    assert made.moves
    assert html.count("<tr><td>") == len(made.moves)


def test_a_consumers_plan_shows_the_load_of_each_consumer_where_loads_are_known() -> None:
    drawn = 'aria-label="load of each consumer, before and after"'

    assert drawn in plan_page(consumer_plan(), measurement().loads(Unit.RECORDS_S))
    assert drawn not in plan_page(consumer_plan())


def test_a_keys_plan_shows_partitions_records_and_reasons() -> None:
    html = plan_page(samples._key_plan())

    assert "3 → 5" in html
    assert "balance" in html
    assert "busiest partition over the mean" in html
    assert "1235 records in the window" in html


def test_a_brokers_plan_shows_replicas_and_the_load_after_failures() -> None:
    html = plan_page(samples._broker_plan())

    assert "1, 2, 3 → 2, 1, 3" in html
    assert "after one failure" in html
    assert "6 → 4.5" in html


def test_names_in_a_plan_are_escaped() -> None:
    made = samples._key_plan()
    move = replace(made.moves[0], key=b"<script>")

    html = plan_page(replace(made, moves=(move,)))

    assert "&lt;script&gt;" in html
    assert "<script>" not in html


def test_a_page_shows_a_thousand_moves_and_says_how_many_are_left_out() -> None:
    made = samples._key_plan()

    html = plan_page(replace(made, moves=made.moves[:1] * 1003))

    assert html.count("<tr><td>") == 1000
    assert "3 more are in the plan&#39;s file" in html or "3 more are in the plan's file" in html


def test_a_plan_without_moves_says_so() -> None:
    assert "<p>None.</p>" in plan_page(replace(samples._key_plan(), moves=()))
