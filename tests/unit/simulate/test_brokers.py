"""Brokers as queues: who waits how long, whatever happens to the broker meanwhile."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.simulate.brokers import (
    QueueWorld,
    Records,
    Service,
    SpeedChange,
    arrivals,
    outcome,
    sending_rates,
    served,
)
from trimtab.simulate.dispatchers import PARTITIONERS, POLICIES, choices

OVERLAP = LeaderSnapshot({"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}})


def world_of(leaders, **settings):
    return QueueWorld(
        leaders=((0.0, leaders),), speeds=dict.fromkeys(leaders.leading, 1.0), **settings
    )


def at(*times, work=1.0):
    return Records.of(at=times, work=[work] * len(times))


# broker 1 |--a--|--c--|          a, b arrive at 0, c at 0.5
# broker 2 |-b-|                  broker 2 is twice as fast
def test_a_broker_serves_one_after_another_at_its_own_speed():
    world = replace(QueueWorld.even(2), speeds={1: 1.0, 2: 2.0})

    done = served(world, at(0.0, 0.0, 0.5), [0, 1, 0])

    assert done.wait.tolist() == [0.0, 0.0, 0.5]
    assert done.finish.tolist() == [1.0, 0.5, 2.0]


# speed     1    |   0   |  0.5
# time   0      0.5     2.5           the first is half done when the broker stops
def test_a_broker_that_stands_still_goes_on_where_it_was():
    stops = (
        SpeedChange(broker=1, at=0.5, speed=0.0),
        SpeedChange(broker=1, at=2.5, speed=0.5),
    )
    world = replace(QueueWorld.even(1), changes=stops)

    done = served(world, at(0.0, 1.0), [0, 0])

    assert done.start.tolist() == [0.0, 3.5]
    assert done.finish.tolist() == [3.5, 5.5]


def test_what_finds_a_broker_idle_but_standing_still_waits_for_it():
    stops = (SpeedChange(broker=1, at=1.0, speed=0.0), SpeedChange(broker=1, at=4.0, speed=1.0))

    done = served(replace(QueueWorld.even(1), changes=stops), at(2.0), [0])

    assert done.wait.tolist() == [2.0]


def test_a_broker_that_never_serves_again_is_refused():
    world = replace(QueueWorld.even(2), changes=(SpeedChange(broker=2, at=1.0, speed=0.0),))

    with pytest.raises(ValueError, match="broker 2 ends at speed 0"):
        _ = world.paces


def test_arrivals_keep_brokers_as_busy_as_asked():
    world = replace(QueueWorld.even(3), speeds={1: 1.0, 2: 1.0, 3: 0.5})

    records = arrivals(world, utilisation=0.8, count=50_000)

    assert records.work.sum() / records.at[-1] == pytest.approx(0.8 * 2.5, rel=0.02)


def test_gaps_and_work_are_the_same_whoever_sends():
    world = QueueWorld.even(4)
    one, many = (
        arrivals(world, utilisation=0.5, count=1000, dispatchers=n, seed=3) for n in (1, 8)
    )

    assert np.array_equal(one.at, many.at)
    assert np.array_equal(one.work, many.work)
    assert set(many.dispatcher.tolist()) == set(range(8))


def test_records_of_constant_work_all_take_one():
    world = replace(QueueWorld.even(2), service=Service.CONSTANT)

    assert set(arrivals(world, utilisation=0.5, count=100).work.tolist()) == {1.0}


@pytest.mark.parametrize(
    ("dispatchers", "of_a", "of_b"), [(1, {0}, {0}), (2, {0}, {1}), (5, {0, 2, 4}, {1, 3})]
)
def test_topics_are_dealt_to_dispatchers(dispatchers, of_a, of_b):
    world = world_of(OVERLAP, rates={"A": 3.0})

    records = arrivals(world, utilisation=0.5, count=20_000, dispatchers=dispatchers)

    assert set(records.dispatcher[records.topic == 0].tolist()) == of_a
    assert set(records.dispatcher[records.topic == 1].tolist()) == of_b
    assert np.mean(records.topic == 0) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("policy", [*POLICIES, *PARTITIONERS])
def test_foreign_records_go_where_they_go_and_are_not_counted(policy):
    world = replace(QueueWorld.even(3), foreign={2: 0.5})
    records = arrivals(world, utilisation=0.6, count=6000, dispatchers=2)
    foreign = records.foreign >= 0

    chosen = choices(policy, world, records)
    found = outcome(world, records, served(world, records, chosen), warm_up=0.0)

    assert set(chosen[foreign].tolist()) == {1}
    assert foreign.mean() == pytest.approx(0.5 / 1.8, abs=0.02)
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert found.mean_wait == served(world, records, chosen).wait[~foreign].mean()


@pytest.mark.parametrize("policy", [*POLICIES, *PARTITIONERS])
def test_records_go_to_whoever_leads_at_that_time(policy):
    before, after = OVERLAP, LeaderSnapshot({"A": {0: 1, 1: 1, 2: -1}, "B": {0: 2, 1: 3}})
    world = replace(world_of(before), leaders=((0.0, before), (500.0, after)))
    records = arrivals(world, utilisation=0.5, count=3000, dispatchers=2)
    late = (records.at >= 500) & (records.topic == 0)

    chosen = choices(policy, world, records)

    assert set(chosen[late].tolist()) == {0}
    assert set(chosen[(records.at < 500) & (records.topic == 0)].tolist()) == {0, 1}
    assert set(chosen[records.topic == 1].tolist()) == {1, 2}


def test_the_first_part_of_a_run_is_left_out():
    world = QueueWorld.even(1)
    records = Records.of(at=[0.0, 0.0, 10.0, 20.0], work=[5.0, 1.0, 1.0, 1.0])
    done = served(world, records, [0, 0, 0, 0])

    assert outcome(world, records, done, warm_up=0.5).mean_wait == 0.0
    assert outcome(world, records, done, warm_up=0.0).mean_wait == 1.25


@pytest.mark.parametrize(
    ("topics", "dispatchers", "rates"),
    [
        ("ab", 1, (4.0,)),
        ("abc", 2, (4.0, 1.0)),
        ("ab", 3, (1.5, 1.0, 1.5)),
        ("ab", 4, (1.5, 0.5, 1.5, 0.5)),
    ],
)
def test_dispatchers_send_what_their_topics_get(topics, dispatchers, rates):
    world = world_of(LeaderSnapshot({topic: {0: 1, 1: 2} for topic in topics}), rates={"a": 3.0})
    records = arrivals(world, utilisation=0.5, count=20_000, dispatchers=dispatchers)

    assert sending_rates(world, dispatchers) == rates
    assert np.bincount(records.dispatcher) / len(records) == pytest.approx(
        np.array(rates) / sum(rates), abs=0.02
    )


def test_the_error_of_what_a_broker_is_given_is_that_of_many_runs():
    world = QueueWorld.even(2)
    runs = [arrivals(world, utilisation=0.5, count=2000, seed=seed) for seed in range(60)]
    found = [outcome(world, r, served(world, r, choices("random", world, r))) for r in runs]

    spread = np.std([run.offered[1] for run in found], ddof=1)
    assert found[0].offered_error[1] == pytest.approx(spread, rel=0.5)


def test_what_a_broker_is_given_is_told_as_a_part_of_what_it_can_do():
    world = replace(QueueWorld.even(2), speeds={1: 1.0, 2: 0.3})
    records = arrivals(world, utilisation=0.8, count=5000)

    found = outcome(world, records, served(world, records, choices("round-robin", world, records)))

    assert found.offered[2] == pytest.approx(0.8 * 1.3 / 2 / 0.3, rel=0.1)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"leaders": ()}, "from time 0 on"),
        ({"leaders": ((1.0, OVERLAP),)}, "from time 0 on"),
        ({"leaders": ((0.0, LeaderSnapshot({"A": {0: -1}})),)}, "has no leader"),
        ({"speeds": {}}, "there must be a broker"),
        ({"speeds": {1: 1.0, 2: 0.0, 3: 1.0}}, "speed above 0"),
        ({"speeds": {1: 1.0, 2: 1.0}}, "broker 3, which leads B, does not exist"),
        ({"foreign": {9: 0.1}}, "broker 9 does not exist"),
        ({"foreign": {1: 1.0}}, "below 1"),
        ({"rates": {"A": 0.0, "B": 0.0}}, "one of them above 0"),
        ({"rates": {"A": -1.0}}, "must be at least 0"),
    ],
)
def test_a_world_that_cannot_be_is_refused(changed, says):
    with pytest.raises(ValueError, match=says):
        replace(world_of(OVERLAP), **changed)


def test_foreign_load_that_leaves_no_room_is_refused():
    world = replace(QueueWorld.even(2), foreign={1: 0.9, 2: 0.9})

    with pytest.raises(ValueError, match=r"foreign load alone uses 0\.9"):
        arrivals(world, utilisation=0.8, count=10)


def test_records_out_of_order_are_refused():
    with pytest.raises(ValueError, match="order of time"):
        at(1.0, 0.5)
