"""Yardsticks as tables and as a picture."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from trimtab.report.policy_comparison import comparison_view, picture
from trimtab.simulate import closed_forms
from trimtab.simulate.brokers import QueueOutcome, QueueWorld
from trimtab.simulate.policy_comparison import ComparisonCell

QUEUE = closed_forms.m_m_1(0.5)


def cell(policy, wait, *, dispatchers=None, utilisation=0.5, offered=0.5, form=None):
    run = QueueOutcome(
        mean_wait=wait,
        p50=0.0,
        p95=2.0,
        p99=3.0,
        mean_stay=wait + 1,
        offered={1: 0.5, 2: offered},
        shares={1: 0.5, 2: 0.5},
    )
    runs = (run, replace(run, mean_wait=wait * 1.1))
    return ComparisonCell(
        policy=policy,
        dispatchers=dispatchers,
        utilisation=utilisation,
        runs=runs,
        closed_form=form,
    )


def printed(*cells):
    console = Console(width=120)
    with console.capture() as shown:
        console.print(comparison_view(cells, QueueWorld.even(2), arrivals=1000, seeds=2))
    return shown.get()


def row(text, policy):
    return next(line.split() for line in text.splitlines() if line.startswith(f" {policy} "))


def test_a_wait_stands_beside_its_form_and_over_that_of_full_knowledge():
    text = printed(cell("random", 1.0, form=QUEUE), cell("least-work", 0.5))

    assert row(text, "random") == [
        *("random", "any", "1.05", "±", "0.64", "2.00", "2.00", "3.00", "1.00", "+5.0%")
    ]
    assert "× is the wait divided by the wait under least-work." in text


def test_a_bound_is_marked_and_nothing_is_off_from_it():
    bound = replace(QUEUE, kind=closed_forms.FormKind.BOUND)

    text = printed(cell("jsq-own", 2.0, dispatchers=4, form=bound))

    assert row(text, "jsq-own")[-3:] == ["≥", "1.00", "–"]
    assert "≥ is a lower bound" in text


def test_a_wait_that_grows_is_said_to_and_the_broker_is_named():
    text = printed(cell("random", 9.0, offered=1.5), cell("jsq", 1.0))

    assert row(text, "random") == ["random", "any", "grows", "–", "–", "2:", "150%"]
    assert "receives more than it can serve" in text


def test_each_utilisation_has_a_table():
    text = printed(cell("jsq", 1.0), cell("jsq", 2.0, utilisation=0.7))

    assert "2 brokers, 0.5 busy" in text
    assert "2 brokers, 0.7 busy" in text


CELLS = [
    cell("random", 1.0, form=QUEUE),
    cell("random", 9.0, utilisation=0.9),
    cell("jiq", 0.3, dispatchers=1),
    cell("jiq", 0.6, dispatchers=4),
    cell("node", 9.0, dispatchers=1, offered=2.0),
]
CURVES = {
    ("random", None): [(u, closed_forms.m_m_1(u)) for u in (0.5, 0.7, 0.9)],
    ("jiq", 4): [(u, closed_forms.idle_queue_many(2, u)) for u in (0.5, 0.9)],
}


def test_the_same_cells_give_the_same_picture():
    first, second = (picture(CELLS, CURVES) for _ in range(2))

    assert first == second
    assert first.startswith(b"<?xml")


def test_a_picture_names_each_policy_and_each_number_of_dispatchers():
    text = picture(CELLS, CURVES).decode()

    for word in ("random", "jiq", "node (grows)", "1 dispatcher", "4 dispatchers", "in theory"):
        assert f">{word}<" in text


def test_a_picture_can_be_a_png():
    assert picture(CELLS, CURVES, form="png").startswith(b"\x89PNG")


@pytest.mark.parametrize("seeds", [1, 2])
def test_an_interval_is_explained_where_there_is_one(seeds):
    console = Console(width=120)
    with console.capture() as shown:
        console.print(comparison_view(CELLS, QueueWorld.even(2), arrivals=10, seeds=seeds))

    assert ("95 % confidence interval" in shown.get()) == (seeds > 1)
