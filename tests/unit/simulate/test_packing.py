"""A planner over a stream: what it is told, and how its steps are judged."""

from __future__ import annotations

from itertools import count

import pytest

from trimtab.evaluate.rscore import rscore
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import NO_CONTEXT, NO_OPTIONS, PackingContext, PackingPlanner
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.packing import simulate, summary

A, B, C = (TopicPartition("t", n) for n in range(3))
MWF, BFD = (PLANNERS[Layer.CONSUMERS][name] for name in ("mwf", "bfd"))


def stream(*loads, capacity=100, **fields):
    return Loads(capacity=capacity, steps=tuple(LoadStep(loads=step) for step in loads), **fields)


def listening(answers=None):
    """A planner that puts everything on consumer 0, or gives its answers, and notes its calls."""
    calls = []

    def rule(loads, current, limits, context=NO_CONTEXT, _options=NO_OPTIONS, /):
        calls.append((dict(loads), current, limits, context))
        return answers[len(calls) - 1] if answers else Assignment(dict.fromkeys(loads, 0))

    return PackingPlanner(name="listening", rule=rule), calls


def test_each_step_starts_from_where_the_one_before_left_the_group():
    answers = [Assignment({A: 3, B: 4}), Assignment({A: 4, B: 4})]
    planner, calls = listening(answers)

    run = simulate(stream({A: 10, B: 20}, {A: 30, B: 20}), planner)

    assert [current for _, current, _, _ in calls] == [Assignment(), answers[0]]
    assert [(s.consumers, s.moves, s.rscore) for s in run.steps] == [(2, 0, 0), (1, 1, 0.3)]


def test_the_assignment_of_the_file_stands_before_the_first_step():
    run = simulate(stream({A: 60, B: 60}, assignment=Assignment({A: 0, B: 0, C: 0})), MWF)
    assert run.steps[0].moves == 1
    assert run.steps[0].rscore == 0.6


def test_departures_are_dropped_and_arrivals_placed_and_neither_moves():
    planner, calls = listening([Assignment({A: 0, B: 1}), Assignment({B: 1, C: 0})])

    run = simulate(stream({A: 1, B: 1}, {B: 1, C: 1}), planner)

    assert calls[1][1] == Assignment({B: 1})
    assert run.steps[1].moves == 0


def test_what_dead_consumers_had_is_an_orphan_and_no_move():
    planner, calls = listening([Assignment({A: 0, B: 1}), Assignment({A: 0, B: 0})])

    run = simulate(stream({A: 1, B: 7}, {A: 1, B: 7}), planner, dead={1: frozenset({1})})

    assert calls[1][1] == Assignment({A: 0})
    assert [(s.moves, s.orphan_load) for s in run.steps] == [(0, 0), (0, 7)]
    assert summary(run)["orphan_load"] == 7


def test_a_planner_is_told_step_lags_and_sla_of_the_file():
    planner, calls = listening()
    file = Loads(
        capacity=100,
        sla_s=5,
        capacities={1: 50},
        steps=(LoadStep(loads={A: 1}), LoadStep(loads={A: 1}, lags={A: 9})),
    )

    simulate(file, planner, PackingContext(seed=4))

    told = [context for *_, context in calls]
    assert [(c.seed, c.iteration, c.lags, c.sla_s) for c in told] == [
        (4, 0, {}, 5),
        (4, 1, {A: 9}, 5),
    ]
    assert calls[0][2].of(1) == 50


def test_an_sla_that_is_asked_for_stands_above_that_of_the_file():
    planner, calls = listening()
    simulate(stream({A: 1}, sla_s=5), planner, PackingContext(sla_s=2))
    assert calls[0][3].sla_s == 2


def test_the_summary_has_means_and_sums_over_the_steps():
    ticks = count()
    run = simulate(stream({A: 60, B: 40}, {A: 60, B: 60}), BFD, clock=lambda: float(next(ticks)))

    found = summary(run)

    assert found == {
        "mean_consumers": 1.5,
        "e_rscore": 0.3,
        "moves": 1,
        "moved_fraction": 0.25,
        "utilisation": pytest.approx((1 + 0.6) / 2),
        "overload": 0,
        "orphan_load": 0,
        "seconds": 2.0,
    }


@pytest.mark.parametrize("planner", [MWF, BFD], ids=lambda p: p.name)
def test_figures_recompute_from_the_assignments(planner):
    loads = [{A: 10 * k, B: 70 - 7 * k, C: 50} for k in range(8)]
    run = simulate(stream(*loads), planner)
    before = Assignment()
    for step, asked in zip(run.steps, loads, strict=True):
        assert step.rscore == rscore(before, step.assignment, asked, capacity=100)
        before = step.assignment


def test_progress_is_told_after_every_step():
    heard: list[int] = []
    simulate(stream({A: 1}, {A: 1}, {A: 1}), MWF, on_step=heard.append)
    assert heard == [1, 2, 3]


def test_a_planner_that_only_deals_is_seen_to_overload_its_consumers():
    sticky = PLANNERS[Layer.CONSUMERS]["kafka-sticky"]
    run = simulate(stream({A: 60, B: 40}, {A: 160, B: 40}), sticky)
    assert [step.overload for step in run.steps] == [0, 100]
    assert summary(run)["overload"] == 0.25
