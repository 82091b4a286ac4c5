"""Whether a move is worth its cost."""

import math

import pytest

from trimtab.errors import ConfigError
from trimtab.model.key_counts import KeyCount
from trimtab.plan.keys.greedy import GreedyStep
from trimtab.plan.keys.planner import KeyOptions, WorthTest
from trimtab.plan.keys.worth import chosen_test, rounded, waiting_per_second, worth_test


def step(count, load_from, load_to):
    key = KeyCount(key=b"k", count=count, partition=0)
    return GreedyStep(key, 0, 1, load_from, load_to)


def test_every_move_is_made_unless_a_state_cost_is_given():
    assert chosen_test(KeyOptions()) is WorthTest.NONE
    assert chosen_test(KeyOptions(state_s=0.1)) is WorthTest.DELAY
    assert chosen_test(KeyOptions(worth=WorthTest.EQ4)) is WorthTest.EQ4
    assert worth_test(KeyOptions(), [1, 2], 10) is None


def test_a_test_needs_the_processing_time():
    with pytest.raises(ConfigError, match="by delay needs the processing time"):
        worth_test(KeyOptions(state_s=0.1), [1, 2], 10)


def test_inequality_4_holds_for_an_empty_target_and_hardly_ever_for_a_hot_key():
    accepts = worth_test(KeyOptions(worth=WorthTest.EQ4, service_s=0.01), [0, 0], 10)

    assert accepts is not None
    assert accepts(step(5, 100, 0))
    assert not accepts(step(50, 100, 90))
    assert accepts(step(1, 1000, 5))  # 10/5 > 1/1000


def test_a_move_off_a_nearly_full_partition_pays_and_one_between_idle_ones_does_not():
    #        partition 0 is 95 % busy, 1 is 40 % busy, 2 and 3 are hardly busy
    totals = [9500, 4000, 100, 20]
    accepts = worth_test(KeyOptions(service_s=0.001, state_s=0.02), totals, 10)

    assert accepts is not None
    assert accepts(step(2000, 9500, 4000))
    idle = GreedyStep(KeyCount(key=b"k", count=60, partition=2), 2, 3, 100, 20)
    assert not accepts(idle)


def test_a_costly_state_is_not_moved_for_the_same_gain():
    totals = [8000, 4000]
    cheap = worth_test(KeyOptions(service_s=0.001, state_s=0.001), totals, 10)
    costly = worth_test(KeyOptions(service_s=0.001, state_s=60.0), totals, 10)

    assert cheap is not None
    assert costly is not None
    assert cheap(step(1000, 8000, 4000))
    assert not costly(step(1000, 8000, 4000))


def test_waiting_is_finite_and_rises_beyond_full_use():
    waits = [waiting_per_second(r, service_s=0.01, horizon_s=10) for r in (0, 50, 99, 100, 120)]

    assert waits[0] == 0
    assert waits == sorted(waits)
    assert all(map(math.isfinite, waits))


def test_values_are_compared_with_9_digits():
    assert rounded(1.0000000001) == 1.0
    assert rounded(1.00000001) != 1.0
    assert rounded(0.0) == 0.0
