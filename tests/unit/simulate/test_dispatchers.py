"""Who chooses, and what they know: each policy on situations small enough to see through."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import UnknownPlanner
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.simulate.brokers import QueueWorld, Records, SpeedChange, arrivals, outcome, served
from trimtab.simulate.dispatchers import choices, ideal_weights, policy_of
from trimtab.simulate.policy import DispatchSettings
from trimtab.simulate.policy_comparison import TOPOLOGIES


def on(topology, **settings):
    leaders = LeaderSnapshot(TOPOLOGIES[topology])
    return QueueWorld(
        leaders=((0.0, leaders),), speeds=dict.fromkeys(leaders.leading, 1.0), **settings
    )


def shares(policy, world, *, dispatchers=1, utilisation=0.6, count=12_000):
    records = arrivals(world, utilisation=utilisation, count=count, dispatchers=dispatchers)
    chosen = choices(policy, world, records)
    return outcome(world, records, served(world, records, chosen), warm_up=0.0).shares


def test_round_robin_goes_round_for_each_dispatcher_alone():
    records = Records.of(at=np.arange(8.0), work=np.ones(8), dispatcher=[0, 1, 0, 0, 1, 0, 1, 1])

    chosen = choices("round-robin", QueueWorld.even(3), records)

    for dispatcher in (0, 1):
        mine = chosen[records.dispatcher == dispatcher]
        assert set(np.diff(mine) % 3) == {1}


# broker X |------- 9 -------…    the second is served when the third comes: its queue is shorter,
# broker Y  |-1-| |---9---…       though nobody knows that the first has much to do
def test_the_shortest_queue_is_joined():
    records = Records.of(at=[0.0, 0.1, 1.5], work=[9, 1, 9])

    chosen = choices("jsq", QueueWorld.even(2), records).tolist()

    assert chosen[0] != chosen[1] == chosen[2]


def test_one_sees_its_own_records_only():
    records = Records.of(at=[0, 0.1, 0.2, 0.3], work=[9] * 4, dispatcher=[0, 0, 1, 1])

    chosen = choices("jsq-own", QueueWorld.even(2), records).tolist()

    assert sorted(chosen[:2]) == [0, 1]
    assert sorted(chosen[2:]) == [0, 1]


def test_one_dispatcher_that_counts_its_own_sees_all():
    world = QueueWorld.even(5)
    records = arrivals(world, utilisation=0.9, count=5000)

    assert np.array_equal(choices("jsq-own", world, records), choices("jsq", world, records))


def test_the_shortest_of_all_is_the_shortest():
    world = QueueWorld.even(4)
    records = arrivals(world, utilisation=0.9, count=5000)

    of_four = choices("jsq-d", world, records, DispatchSettings(d=4))

    assert np.array_equal(of_four, choices("jsq", world, records))


def test_the_shortest_of_one_is_any():
    world = QueueWorld.even(4)
    records = arrivals(world, utilisation=0.5, count=8000)

    counts = np.bincount(choices("jsq-d", world, records, DispatchSettings(d=1)))

    assert counts == pytest.approx([2000] * 4, rel=0.1)


# Both are told at 0 that all queues are empty. Until they are told again, each sees its own only.
def test_what_was_told_grows_old():
    records = Records.of(at=[0.1, 0.2, 0.3, 0.4], work=[9] * 4, dispatcher=[0, 1, 0, 1])
    world = QueueWorld.even(2)

    chosen = choices("jsq", world, records, DispatchSettings(refresh=5.0)).tolist()

    assert sorted(chosen[::2]) == [0, 1]
    assert sorted(chosen[1::2]) == [0, 1]


def test_lengths_told_all_the_time_are_as_good_as_seen():
    world = QueueWorld.even(3)
    records = arrivals(world, utilisation=0.8, count=3000, dispatchers=3)

    told = choices("jsq", world, records, DispatchSettings(refresh=1e-9))

    assert np.array_equal(told, choices("jsq", world, records))


def test_an_idle_broker_is_taken_by_the_one_it_told():
    records = Records.of(at=[0.0, 0.1, 0.2], work=[9, 9, 9])

    chosen = choices("jiq", QueueWorld.even(3), records).tolist()

    assert sorted(chosen) == [0, 1, 2]


def test_least_work_is_not_the_shortest_queue():
    records = Records.of(at=[0.0, 0.1, 0.2, 0.3], work=[9, 1, 1, 1])
    world = QueueWorld.even(2)

    chosen = choices("least-work", world, records).tolist()

    assert chosen[1:] == [1 - chosen[0]] * 3


def test_the_fastest_of_those_that_idle_is_taken():
    world = replace(QueueWorld.even(3), speeds={1: 0.5, 2: 2.0, 3: 1.0})
    records = Records.of(at=[0.0, 0.1, 0.2], work=[9, 9, 9])

    assert choices("least-work", world, records).tolist() == [1, 2, 0]


def test_who_sees_all_work_leaves_a_broker_that_stands_still_alone():
    stops = (SpeedChange(broker=1, at=1.0, speed=0.0), SpeedChange(broker=1, at=90.0, speed=1.0))
    world = replace(QueueWorld.even(2), changes=stops)
    records = Records.of(at=[2.0, 2.1, 2.2], work=[9, 9, 9])

    assert choices("least-work", world, records).tolist() == [1, 1, 1]


def test_on_an_uneven_topic_default_splits_by_partition_and_node_by_broker():
    assert shares("default", on("U2")) == pytest.approx({1: 1 / 3, 2: 2 / 3}, abs=1e-3)
    assert shares("node", on("U2")) == pytest.approx({1: 1 / 2, 2: 1 / 2}, abs=1e-3)


@pytest.mark.parametrize(
    ("dispatchers", "expected"),
    [(1, {1: 1 / 3, 2: 1 / 3, 3: 1 / 3}), (2, {1: 1 / 4, 2: 1 / 2, 3: 1 / 4})],
)
def test_an_instance_for_both_topics_evens_out_what_two_cannot(dispatchers, expected):
    assert shares("sqf", on("6.4"), dispatchers=dispatchers) == pytest.approx(expected, abs=0.02)


def test_ideal_weights_even_out_overlapping_topics_without_sharing():
    found = shares("weighted-node", on("6.4"), dispatchers=2)

    assert found == pytest.approx({1: 1 / 3, 2: 1 / 3, 3: 1 / 3}, abs=0.02)


# Theorem F: A alone needs 3 on each of its brokers, though 8/3 would be even.
def test_where_topics_do_not_allow_it_ideal_weights_come_as_near_as_they_can():
    world = on("6.4", rates={"A": 6.0, "B": 2.0})
    records = arrivals(world, utilisation=0.5, count=40_000)

    found = shares("weighted-node", world, count=40_000)

    assert found == pytest.approx({1: 3 / 8, 2: 3 / 8, 3: 2 / 8}, abs=0.01)
    assert ideal_weights(world, records)[3] == 1.0


def test_ideal_weights_make_unequal_brokers_equally_busy():
    world = replace(QueueWorld.even(3), speeds={1: 1.0, 2: 1.0, 3: 0.3}, foreign={1: 0.4})
    records = arrivals(world, utilisation=0.7, count=40_000)

    chosen = choices("weighted-node", world, records)
    found = outcome(world, records, served(world, records, chosen))

    assert found.offered == pytest.approx({1: 0.7, 2: 0.7, 3: 0.7}, abs=0.04)


def test_a_broker_that_is_full_of_foreign_load_gets_nothing():
    world = replace(QueueWorld.even(3), foreign={1: 0.9})
    records = arrivals(world, utilisation=0.6, count=2000)

    assert set(choices("weighted-node", world, records)[records.foreign < 0].tolist()) == {1, 2}


def test_ideal_weights_follow_a_broker_that_becomes_slow():
    slow = (SpeedChange(broker=1, at=500.0, speed=0.2), SpeedChange(broker=1, at=1500.0, speed=1.0))
    world = replace(QueueWorld.even(2), changes=slow)
    records = arrivals(world, utilisation=0.5, count=2000)

    chosen = choices("weighted-node", world, records)

    meanwhile = (records.at >= 500) & (records.at < 1500)
    assert np.mean(chosen[meanwhile] == 0) == pytest.approx(0.2 / 1.2, abs=0.01)
    assert np.mean(chosen[~meanwhile] == 0) == pytest.approx(0.5, abs=0.01)


def test_ideal_weights_of_brokers_that_all_stand_still_are_none():
    changes = tuple(
        SpeedChange(broker=broker, at=at, speed=speed)
        for broker in (1, 2)
        for at, speed in ((1.0, 0.0), (2.0, 1.0))
    )
    world = replace(QueueWorld.even(2), changes=changes)
    records = arrivals(world, utilisation=0.5, count=100)

    assert ideal_weights(world, records, at=1.5) == {1: 0.0, 2: 0.0}
    assert set(choices("weighted-node", world, records).tolist()) == {0, 1}


def test_a_policy_that_is_not_there_is_named_with_the_nearest():
    with pytest.raises(UnknownPlanner, match=r'no policy "jsk"') as caught:
        policy_of("jsk")

    assert caught.value.hint == 'Did you mean "jsq"?'


def test_one_that_keeps_to_a_batch_has_no_place_here():
    with pytest.raises(UnknownPlanner) as caught:
        policy_of("uniform-sticky")

    assert "batch" in (caught.value.hint or "")


@pytest.mark.parametrize("wrong", [{"d": 0}, {"refresh": 0.0}, {"refresh": -1.0}])
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="not"):
        DispatchSettings(**wrong)
