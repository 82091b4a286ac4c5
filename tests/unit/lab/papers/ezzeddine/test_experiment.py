"""The parts of Ezzeddine's experiment: the curve, the rivals, and the rows."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from trimtab_lab.papers.ezzeddine import experiment as ezzeddine
from trimtab_lab.papers.ezzeddine import fluid_runs
from trimtab_lab.papers.ezzeddine.experiment import EzzeddineDesign
from trimtab_lab.papers.ezzeddine.fluid_runs import SHARES, schedule_of, skewed_curve
from trimtab_lab.papers.grid import run_here
from trimtab_lab.papers.published import ezzeddine as paper
from trimtab_lab.papers.verdict import RowVerdict

FEW = EzzeddineDesign(
    seeds=1,
    intervals_s=(1.0, 30.0),
    cooldowns_s=(0.0, 30.0),
    controllers=("ll-ffd", *fluid_runs.STICKY, "fixed 5"),
)


def run(cells, work, per_task):
    return run_here(cells, work)


@cache
def part(name):
    return ezzeddine.PARTS[name](FEW, run)


@cache
def figures(controller):
    return fluid_runs.scaled(
        {
            "workload": fluid_runs.WORKLOAD_1,
            "controller": controller,
            "interval_s": 1.0,
            "cooldown_s": 0.0,
            "reported_rate": 95.0,
            "seed": 0,
        }
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_curve_is_dealt_by_the_papers_shares_and_asks_no_more_than_a_consumer_of_a_partition(
    seed,
):
    curve = skewed_curve(seed)
    for t_s in range(0, 600, 7):
        total = curve.total_rate_at(t_s)
        assert 40 - 1e-9 <= total <= 345 + 1e-9
        rates = [curve.rate_at(p, t_s) for p in range(5)]
        assert rates == pytest.approx([share * total for share in SHARES])
        assert max(rates) < 95


def test_a_curve_is_made_by_its_seed_alone():
    assert skewed_curve(1) == skewed_curve(1)
    assert skewed_curve(1) != skewed_curve(2)
    assert schedule_of(fluid_runs.WORKLOAD_1, 1) == schedule_of(fluid_runs.WORKLOAD_1, 2)


def test_the_load_aware_group_is_within_everything_that_is_judged():
    found = part("workload-1")
    judged = [row for row in found.rows if row.verdict is not RowVerdict.NOT_COMPARABLE]
    assert {row.verdict for row in judged} == {RowVerdict.WITHIN}
    assert len(judged) > 10


def test_sticky_dealing_is_judged_by_the_model_within_a_tolerance_that_means_something():
    rows = {row.what: row for row in part("workload-1").rows}
    for keeps, share in (("lowest", 0.54), ("highest", 0.68)):
        row = rows[f"sla share kafka-sticky, keeps {keeps}"]
        assert (row.paper, row.model, row.tolerance) == (0.44, share, 0.02)


def test_a_figure_of_the_second_workload_is_the_papers_own():
    rows = {row.what: row for row in part("curve").rows}
    assert rows["replica-minutes as a part of those of 5 fixed consumers, curve"].paper == 0.522
    assert {row.verdict for row in rows.values()} == {RowVerdict.NOT_COMPARABLE}
    assert all(row.paper is not None for row in rows.values())


def test_other_intervals_and_cooldowns_have_their_rows():
    found = part("workload-1")
    assert [
        (e["interval_s"], e["cooldown_s"], e["reported_rate"]) for e in found.figures["effects"]
    ] == [
        (1.0, 0.0, 95.0),
        (1.0, 0.0, 100.0),
        (1.0, 30.0, 95.0),
        (30.0, 0.0, 95.0),
        (30.0, 30.0, 95.0),
    ]


def test_a_scaling_at_another_time_or_to_another_number_stands_outside():
    changes: list[list[Any]] = [[t_s, action, 0, n, 1] for t_s, action, n in paper.ACTIONS_MODEL]
    changes[0][0] += 4
    changes[1][3] += 1
    verdicts = [row.verdict for row in ezzeddine._action_rows(changes)]
    assert verdicts == [
        RowVerdict.WITHIN,
        RowVerdict.OUTSIDE,
        RowVerdict.OUTSIDE,
        *[RowVerdict.WITHIN] * 4,
    ]
    assert ezzeddine._action_rows(changes[:-1])[0].verdict is RowVerdict.OUTSIDE


def test_a_consumer_each_keeps_every_record_in_time_at_the_highest_cost():
    found = figures("fixed 5")
    assert found["sla_share"] == 1.0
    assert found["replica_minutes"] == pytest.approx(50)


def test_keda_looks_every_quarter_of_a_minute_and_forgets_what_was_asked_after_five_minutes():
    changes = figures("keda-lag 10")["changes"]
    assert changes
    assert all(t_s % 15 == 0 for t_s, *_ in changes)
    grown = [t_s for t_s, action, *_ in changes if action == "scale_up"]
    shrunk = [t_s for t_s, action, *_ in changes if action == "scale_down"]
    assert all(later - max(t for t in grown if t < later) >= 300 for later in shrunk)


def test_dealing_otherwise_costs_what_the_same_schedule_costs():
    costs = {name: figures(name)["replica_minutes"] for name in (*fluid_runs.STICKY, "lag-based")}
    assert set(costs.values()) == {figures("ll-ffd")["replica_minutes"]}


def test_no_two_rows_of_an_experiment_have_the_same_name():
    whats = [row.what for name in ezzeddine.PARTS for row in part(name).rows]
    assert len(set(whats)) == len(whats)
