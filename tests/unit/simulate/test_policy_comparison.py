"""Which closed form stands beside a policy, and how runs become a cell."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.simulate import closed_forms
from trimtab.simulate.brokers import QueueOutcome, QueueWorld, Service, SpeedChange
from trimtab.simulate.closed_forms import FormKind
from trimtab.simulate.dispatchers import policy_of
from trimtab.simulate.policy import DEFAULTS, DispatchSettings
from trimtab.simulate.policy_comparison import (
    TOPOLOGIES,
    ComparisonCell,
    Effort,
    curves,
    expected,
    known,
    sweep,
)

EVEN = QueueWorld.even(10)


def theory(policy, world=EVEN, *, dispatchers=1, utilisation=0.8, settings=DEFAULTS):
    return known(world, policy_of(policy), utilisation, dispatchers, settings)


def on(topology):
    leaders = LeaderSnapshot(TOPOLOGIES[topology])
    return QueueWorld(leaders=((0.0, leaders),), speeds=dict.fromkeys(leaders.leading, 1.0))


def alike(*topics, rates=None):
    """Ten brokers that each lead a partition of every topic."""
    leaders = LeaderSnapshot({topic: {n: n + 1 for n in range(10)} for topic in topics})
    return replace(EVEN, leaders=((0.0, leaders),), rates=rates or {})


def ran(mean_wait, offered=None, error=0.0):
    return QueueOutcome(
        mean_wait=mean_wait,
        p50=0.0,
        p95=1.0,
        p99=2.0,
        mean_stay=mean_wait + 1,
        offered=offered or {1: 0.5, 2: 0.5},
        shares={1: 0.5, 2: 0.5},
        offered_error={1: error, 2: error},
    )


def cell(*runs, form=None):
    return ComparisonCell(
        policy="jsq", dispatchers=None, utilisation=0.5, runs=runs, closed_form=form
    )


@pytest.mark.parametrize(
    ("policy", "dispatchers", "name", "kind"),
    [
        ("random", 4, "M/M/1", FormKind.EXACT),
        ("round-robin", 1, "E_n/M/1", FormKind.EXACT),
        ("round-robin", 4, "M/M/n", FormKind.BOUND),
        ("node", 1, "E_n/M/1", FormKind.EXACT),
        ("default", 1, "E_n/M/1", FormKind.EXACT),
        ("sqf", 4, "M/M/n", FormKind.BOUND),
        ("jsq-d", 4, "shortest of 2, n → ∞", FormKind.LIMIT),
        ("jiq", 4, "idle queue, n → ∞", FormKind.LIMIT),
        ("jiq", 1, "M/M/n", FormKind.BOUND),
        ("jsq", 4, "M/M/n", FormKind.BOUND),
        ("jsq-own", 1, "M/M/n", FormKind.BOUND),
        ("least-work", 4, "M/M/n", FormKind.EXACT),
    ],
)
def test_each_policy_stands_beside_its_form(policy, dispatchers, name, kind):
    form = theory(policy, dispatchers=dispatchers)

    assert form is not None
    assert (form.name, form.kind) == (name, kind)


@pytest.mark.parametrize(
    ("world", "dispatchers", "kind"),
    [
        (alike("a", "b"), 2, FormKind.LIMIT),
        (alike("a", "b"), 4, FormKind.LIMIT),
        (alike("a", "b", "c"), 2, FormKind.BOUND),  # one sends two topics, the other one
        (alike("a", "b"), 3, FormKind.BOUND),
        (alike("a", "b", rates={"a": 10.0}), 2, FormKind.BOUND),
    ],
)
def test_the_idle_queue_has_its_limit_only_where_all_send_equally_much(world, dispatchers, kind):
    form = theory("jiq", world, dispatchers=dispatchers)

    assert form is not None
    assert form.kind is kind


def test_where_a_sum_would_be_too_long_there_is_no_form():
    constant = replace(EVEN, service=Service.CONSTANT)

    assert theory("least-work", constant, utilisation=0.9999) is None
    assert theory("jsq", constant, utilisation=0.9999) is None


@pytest.mark.parametrize("policy", ["jsq", "jsq-d", "jsq-own"])
def test_with_few_brokers_the_shortest_queue_is_a_chain(policy):
    form = theory(policy, QueueWorld.even(2))

    assert form is not None
    assert form.kind is FormKind.EXACT
    assert form == closed_forms.shortest_of_few(2, 2, 0.8)


def test_lengths_that_grow_old_have_no_form_but_the_bound():
    form = theory("jsq", QueueWorld.even(2), settings=DispatchSettings(refresh=1.0))

    assert form is not None
    assert form.kind is FormKind.BOUND


def test_on_an_uneven_topic_node_has_the_form_and_default_has_not():
    node, default = theory("node", on("U2")), theory("default", on("U2"))

    assert node == closed_forms.round_robin(2, 0.8)
    assert default is not None
    assert default.kind is FormKind.BOUND


# partitions 0, 1 on broker 1 and 2, 3 on broker 2: in turn they are 1, 1, 2, 2
def test_partitions_that_stand_in_blocks_are_not_in_turn():
    leaders = LeaderSnapshot({"t": {0: 1, 1: 1, 2: 2, 3: 2}})
    form = theory("default", QueueWorld(leaders=((0.0, leaders),), speeds={1: 1.0, 2: 1.0}))

    assert form is not None
    assert form.kind is FormKind.BOUND


@pytest.mark.parametrize("policy", ["round-robin", "node", "least-work"])
def test_with_constant_work_turns_are_one_queue(policy):
    form = theory(policy, replace(EVEN, service=Service.CONSTANT))

    assert form == closed_forms.m_d_n(10, 0.8)


def test_brokers_of_another_speed_wait_in_their_own_time():
    twice = replace(EVEN, speeds=dict.fromkeys(EVEN.speeds, 2.0))
    fast, plain = theory("least-work", twice), theory("least-work")

    assert fast is not None
    assert plain is not None
    assert fast.mean_wait == pytest.approx(plain.mean_wait / 2)
    assert fast.quantile(0.99) == pytest.approx(plain.quantile(0.99) / 2)


@pytest.mark.parametrize("policy", ["random", "jsq", "jsq-own", "jsq-d", "jiq", "least-work"])
def test_with_one_broker_there_is_nothing_to_choose(policy):
    form = theory(policy, QueueWorld.even(1), dispatchers=4)

    assert form is not None
    assert form.mean_wait == pytest.approx(closed_forms.m_m_1(0.8).mean_wait)


def test_brokers_that_lead_nothing_do_not_help():
    leaders = LeaderSnapshot({"t": {0: 1, 1: 2}})
    world = QueueWorld(leaders=((0.0, leaders),), speeds=dict.fromkeys((1, 2, 3), 1.0))

    form = theory("least-work", world, utilisation=0.6)

    assert form is not None
    assert form.mean_wait == pytest.approx(closed_forms.m_m_n(2, 0.9).mean_wait)
    assert theory("least-work", world, utilisation=0.8) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"speeds": {1: 1.0, 2: 0.5}},
        {"foreign": {1: 0.5}},
        {"changes": (SpeedChange(broker=1, at=1.0, speed=0.5),)},
    ],
)
def test_unequal_brokers_have_no_form(changed):
    assert theory("jsq", replace(QueueWorld.even(2), **changed)) is None


def test_chance_has_a_form_even_among_unequal_brokers():
    form = theory("random", replace(QueueWorld.even(2), speeds={1: 1.0, 2: 0.5}), utilisation=0.5)

    assert form is not None
    assert form.mean_wait == pytest.approx((0.375 / 0.625 + (0.75 / 0.25) / 0.5) / 2)


def test_a_cell_has_the_mean_of_its_runs_and_an_interval():
    found = cell(ran(1.0), ran(2.0), ran(3.0), form=closed_forms.m_m_1(0.5))

    assert found.mean_wait == 2.0
    assert found.half_width == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert found.difference == pytest.approx(1.0)


def test_one_run_has_no_interval():
    assert cell(ran(1.0)).half_width is None


def test_where_a_broker_is_overloaded_no_mean_is_stated():
    found = cell(ran(9.0, offered={1: 0.9, 2: 1.4}), form=closed_forms.m_m_1(0.5))

    assert found.overloaded == (2,)
    assert [found.mean_wait, found.half_width, found.difference] == [None, None, None]
    assert json.loads(json.dumps(found.to_json()))["overloaded"] == [2]


@pytest.mark.parametrize(
    ("runs", "overloaded"), [([1.02], ()), ([1.02] * 9, (2,)), ([1.05], (2,)), ([0.9, 1.0], ())]
)
def test_what_chance_explains_is_no_overload(runs, overloaded):
    found = cell(*(ran(9.0, offered={1: 0.9, 2: part}, error=0.01) for part in runs))

    assert found.overloaded == overloaded


def test_overload_is_judged_by_what_is_expected_where_that_is_known():
    by_chance = cell(ran(9.0, offered={1: 0.9, 2: 1.4}))

    assert replace(by_chance, expected={1: 0.99, 2: 0.99}).mean_wait == 9.0
    assert replace(by_chance, expected={1: 1.0, 2: 0.99}).overloaded == (1,)


@pytest.mark.parametrize(
    ("policy", "parts"),
    [
        ("random", {1: 0.75, 2: 0.75}),
        ("node", {1: 0.75, 2: 0.75}),
        ("default", {1: 0.5, 2: 1.0}),
        ("jsq", None),
        ("sqf", None),
    ],
)
def test_what_brokers_are_expected_to_get_depends_on_how_records_are_dealt(policy, parts):
    assert expected(on("U2"), policy_of(policy), 0.75) == parts


def test_foreign_load_and_speeds_are_part_of_what_is_expected():
    world = replace(QueueWorld.even(2), speeds={1: 1.0, 2: 2.0}, foreign={2: 0.5})

    found = expected(world, policy_of("random"), 0.8)

    assert found == pytest.approx({1: 0.7, 2: 0.35 + 0.5})
    slow = replace(world, changes=(SpeedChange(broker=1, at=1.0, speed=0.5),))
    assert expected(slow, policy_of("random"), 0.8) is None


def test_a_sweep_runs_once_what_does_not_depend_on_dispatchers():
    heard: list[str] = []

    found = list(
        sweep(
            lambda _: QueueWorld.even(3),
            [policy_of("random"), policy_of("jiq"), policy_of("jsq")],
            utilisations=(0.5, 0.8),
            dispatchers=(1, 2),
            settings=DEFAULTS,
            effort=Effort(count=500, seeds=2),
            on_run=heard.append,
        )
    )

    assert [(c.utilisation, c.policy, c.dispatchers) for c in found[:4]] == [
        (0.5, "random", None),
        (0.5, "jiq", 1),
        (0.5, "jiq", 2),
        (0.5, "jsq", None),
    ]
    assert len(found) == 8
    assert heard == [name for c in found for name in [c.policy] * 2]


def test_lengths_that_are_told_are_known_to_each_dispatcher_alone():
    assert not policy_of("jsq").alike(DispatchSettings(refresh=1.0))
    assert policy_of("jsq").alike(DEFAULTS)


def test_curves_go_from_the_least_to_the_most_utilisation():
    cells = [replace(cell(ran(1.0)), utilisation=u) for u in (0.5, 0.9)]

    found = curves(QueueWorld.even(10), cells, DEFAULTS, points=3)

    assert [u for u, _ in found["jsq", None]] == pytest.approx([0.5, 0.7, 0.9])
