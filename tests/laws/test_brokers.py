"""The laws of brokers as queues: for every policy, and against what theory says."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean, stdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.simulate import closed_forms
from trimtab.simulate.brokers import QueueWorld, Records, Service, SpeedChange, arrivals, served
from trimtab.simulate.closed_forms import ClosedForm
from trimtab.simulate.dispatchers import PARTITIONERS, POLICIES, choices, policy_of
from trimtab.simulate.policy import DEFAULTS, DispatchSettings
from trimtab.simulate.policy_comparison import Effort, known, sweep

ALL = [*POLICIES, *PARTITIONERS]
unhurried = settings(deadline=None, max_examples=60)


@st.composite
def worlds(draw: st.DrawFn) -> QueueWorld:
    """Brokers with ids that are no places, topics that overlap, speeds that change."""
    brokers = draw(st.lists(st.sampled_from([1, 2, 7, 42, 1001]), min_size=1, unique=True))
    topics = {
        f"t{i}": dict(enumerate(leaders))
        for i, leaders in enumerate(
            draw(
                st.lists(
                    st.lists(st.sampled_from(brokers), min_size=1, max_size=4),
                    min_size=1,
                    max_size=3,
                )
            )
        )
    }
    speeds = {broker: draw(st.sampled_from([0.5, 1.0, 2.0])) for broker in brokers}
    changes = [
        change
        for broker in draw(st.lists(st.sampled_from(brokers), unique=True))
        for change in (
            SpeedChange(broker=broker, at=draw(st.sampled_from([3.0, 10.0])), speed=0.0),
            SpeedChange(broker=broker, at=draw(st.sampled_from([12.0, 20.0])), speed=0.7),
        )
    ]
    foreign = {brokers[0]: 0.2} if draw(st.booleans()) else {}
    leaders = LeaderSnapshot(topics)
    return QueueWorld(
        leaders=((0.0, leaders),), speeds=speeds, changes=tuple(changes), foreign=foreign
    )


@st.composite
def runs(draw: st.DrawFn) -> tuple[QueueWorld, Records]:
    """A world and some records in it."""
    world = draw(worlds())
    return world, arrivals(
        world,
        utilisation=draw(st.sampled_from([0.5, 0.9])),
        count=draw(st.integers(1, 120)),
        dispatchers=draw(st.integers(1, 4)),
        seed=draw(st.integers(0, 1000)),
    )


def one_by_one(
    world: QueueWorld, records: Records, chosen: np.ndarray
) -> list[tuple[float, float]]:
    """Start and finish of each record, worked out record by record."""
    free = [0.0] * len(world.brokers)
    found = []
    for at, work, place in zip(records.at, records.work, chosen.tolist(), strict=True):
        pace = world.paces[place]
        begin = max(at, free[place])
        free[place] = pace.after(begin, work)
        found.append((begin, free[place]))
    return found


@unhurried
@given(runs(), st.sampled_from(ALL))
def test_every_record_is_served_once_by_a_leader_and_in_order(run, policy):
    world, records = run
    chosen = choices(policy, world, records, DispatchSettings(seed=1))

    done = served(world, records, chosen)

    rows = world.rows(records)
    for k, place in enumerate(chosen.tolist()):
        foreign = int(records.foreign[k])
        assert place == foreign if foreign >= 0 else place in world.led[rows[k]]
    assert np.isfinite(done.finish).all()
    assert (done.start >= records.at).all()
    for place in range(len(world.brokers)):
        mine = chosen == place
        assert (np.diff(done.start[mine]) >= 0).all()
        assert (done.start[mine][1:] >= done.finish[mine][:-1] - 1e-9).all()


@unhurried
@given(runs())
def test_all_at_once_is_the_same_as_one_by_one(run):
    world, records = run
    chosen = choices("random", world, records)

    done = served(world, records, chosen)

    expected = one_by_one(world, records, chosen)
    assert done.finish == pytest.approx([finish for _, finish in expected], abs=1e-9)
    if not world.changes:
        assert done.start == pytest.approx([start for start, _ in expected], abs=1e-9)


@settings(deadline=None, max_examples=25)
@given(runs(), st.sampled_from(ALL), st.integers(0, 5))
def test_equal_arguments_give_equal_choices(run, policy, seed):
    world, records = run
    first, second = (choices(policy, world, records, DispatchSettings(seed=seed)) for _ in range(2))

    assert np.array_equal(first, second)


# With equal work whoever goes round gives each record to the broker that is free first.
@unhurried
@given(
    st.lists(st.floats(0, 3), min_size=1, max_size=80),
    st.integers(1, 5),
)
def test_with_equal_work_turns_are_as_good_as_knowing_everything(gaps, brokers):
    world = replace(QueueWorld.even(brokers), service=Service.CONSTANT)
    records = Records.of(at=np.cumsum(gaps), work=np.ones(len(gaps)))

    in_turn, knowing = (
        served(world, records, choices(policy, world, records)).wait
        for policy in ("round-robin", "least-work")
    )

    assert in_turn == pytest.approx(knowing, abs=1e-9)


def simulated(policy, brokers, utilisation, *, dispatchers=1, effort, **changed):
    world = replace(QueueWorld.even(brokers), **changed)
    (cell,) = sweep(
        lambda _: world,
        [policy_of(policy)],
        utilisations=(utilisation,),
        dispatchers=(dispatchers,),
        settings=DEFAULTS,
        effort=effort,
    )
    return cell


@pytest.mark.parametrize(
    ("policy", "brokers", "utilisation", "changed"),
    [
        ("random", 4, 0.7, {}),
        ("random", 4, 0.7, {"service": Service.CONSTANT}),
        ("random", 3, 0.6, {"speeds": {1: 1.0, 2: 2.0, 3: 0.9}}),
        ("random", 3, 0.6, {"foreign": {1: 0.3}}),
        ("round-robin", 4, 0.7, {}),
        ("round-robin", 4, 0.7, {"service": Service.CONSTANT}),
        ("node", 4, 0.7, {}),
        ("jsq", 2, 0.7, {}),
        ("jsq", 3, 0.7, {}),
        ("jsq-d", 3, 0.7, {}),
        ("least-work", 4, 0.7, {}),
        ("least-work", 4, 0.7, {"service": Service.CONSTANT}),
    ],
)
def test_a_simulated_wait_agrees_with_its_exact_form(policy, brokers, utilisation, changed):
    """Within twice the interval of 95 %, which chance leaves about once in 700 cases."""
    effort = Effort(count=60_000 if policy == "random" else 15_000, seeds=10)

    cell = simulated(policy, brokers, utilisation, effort=effort, **changed)

    form = cell.closed_form
    assert form is not None
    assert form.kind is closed_forms.FormKind.EXACT
    assert cell.half_width < 0.1 * form.mean_wait
    assert abs(cell.mean_wait - form.mean_wait) <= 2 * cell.half_width
    if (p99 := form.quantile(0.99)) is not None:
        found = [run.p99 for run in cell.runs]
        half_width = 2.262 * stdev(found) / math.sqrt(len(found))
        assert half_width < 0.2 * p99
        assert abs(fmean(found) - p99) <= 2 * half_width


@pytest.mark.parametrize(
    ("policy", "dispatchers", "form"),
    [
        ("jsq-d", 1, closed_forms.shortest_of_many(2, 0.7)),
        ("jiq", 200, closed_forms.idle_queue_many(2, 0.7)),
        ("jiq", 40, closed_forms.idle_queue_many(10, 0.7)),
    ],
)
def test_a_limit_is_reached_by_many_brokers(policy, dispatchers, form: ClosedForm):
    cell = simulated(
        policy, 400, 0.7, dispatchers=dispatchers, effort=Effort(count=100_000, seeds=1)
    )

    assert cell.closed_form == form
    assert cell.mean_wait == pytest.approx(form.mean_wait, rel=0.05)


def test_who_knows_more_waits_less():
    order = ("least-work", "jsq", "jsq-d", "round-robin", "random")

    waits = [
        simulated(policy, 8, 0.9, effort=Effort(count=30_000, seeds=1)).mean_wait
        for policy in order
    ]

    assert waits == sorted(waits)
    assert waits[1] < 0.6 * waits[2]


@pytest.mark.parametrize("policy", ["round-robin", "node", "sqf", "jiq", "jsq-own"])
def test_what_each_knows_alone_is_worth_less_the_more_there_are(policy):
    one, four, many = (
        simulated(
            policy, 8, 0.8, dispatchers=dispatchers, effort=Effort(count=30_000, seeds=1)
        ).mean_wait
        for dispatchers in (1, 4, 64)
    )

    assert one < 0.98 * four
    assert four < 0.98 * many


def test_lengths_are_worth_less_the_older_they_are():
    world = QueueWorld.even(8)
    records = arrivals(world, utilisation=0.8, count=20_000, dispatchers=8)

    waits = [
        served(
            world, records, choices("jsq", world, records, DispatchSettings(refresh=age))
        ).wait.mean()
        for age in (None, 1.0, 5.0, 25.0)
    ]

    assert waits == sorted(waits)
    assert waits[-1] > closed_forms.m_m_1(0.8).mean_wait  # worse than not to look at all


@pytest.mark.parametrize("policy", ALL)
def test_nobody_waits_less_than_one_queue_for_all(policy):
    form = known(QueueWorld.even(5), policy_of("least-work"), 0.85, 1, DEFAULTS)

    cell = simulated(policy, 5, 0.85, dispatchers=3, effort=Effort(count=6_000, seeds=4))

    assert form is not None
    assert cell.mean_wait + 2 * cell.half_width > form.mean_wait
