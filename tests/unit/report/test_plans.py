"""Plans of every layer as text, and a forecast beside what was found."""

from __future__ import annotations

from rich.console import Console, RenderableType

from tests.golden import samples
from trimtab.evaluate.forecast import check_forecast
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Unit
from trimtab.plan.consumers.rollback import rollback_of
from trimtab.report.plans import forecast_view, plan_view


def text_of(view: RenderableType) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


def test_a_plan_for_keys_shows_figures_moves_and_cost() -> None:
    shown = text_of(plan_view(samples._key_plan()))

    assert "for keys of orders by smalops" in shown
    assert "imbalance  2 → 1.25" in shown
    assert "3 → 5" in shown
    assert "balance" in shown
    assert "2 with 1235 records" in shown


def test_a_plan_for_brokers_shows_replicas_leader_first() -> None:
    shown = text_of(plan_view(samples._broker_plan()))

    assert "1, 2, 3 → 2, 1, 3" in shown
    assert "reorder" in shown
    assert "f1         6 → 4.5" in shown


def test_a_plan_for_consumers_is_shown_as_ever() -> None:
    shown = text_of(plan_view(samples.readme_plan("trim")))

    assert "Plan 5f6e31330b6c by trim" in shown


def test_a_rollback_says_where_each_partition_returns_to() -> None:
    plan = samples.readme_plan("trim")

    shown = text_of(plan_view(rollback_of(plan, made_ts=1)))

    assert "by rollback" in shown
    assert "returns to consumer 0, which had it before" in shown


def test_a_forecast_is_shown_beside_what_was_found() -> None:
    plan = samples.readme_plan("trim")
    p = [TopicPartition("orders", n) for n in range(4)]
    loads = dict(zip(p, (900_000.0, 1_000_000.0, 400_000.0, 300_000.0), strict=True))

    check = check_forecast(plan, loads, plan.assignment)
    shown = text_of(forecast_view(check, Unit.BYTES_S))

    assert check.error["consumers"] == 0
    assert check.observed.max_load == max(plan.assignment.loads(loads).values())
    assert check.error["max_load"] == check.observed.max_load - plan.after.max_load
    assert f"Plan {check.plan}" in shown
    assert "max load" in shown


def test_other_topics_of_the_group_do_not_count() -> None:
    plan = samples.readme_plan("trim")
    other = TopicPartition("refunds", 0)
    present = Assignment({**plan.assignment, other: 9})

    check = check_forecast(plan, dict.fromkeys(present, 1.0), present)

    assert check.observed.consumers == plan.after.consumers
