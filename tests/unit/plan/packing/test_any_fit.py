"""Best fit decreasing on examples small enough to pack by hand."""

import math

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.packing.any_fit import ANY_FIT

bfd = ANY_FIT["bfd"]
C100 = GroupLimits(capacity=100)


def loads(*sizes):
    return {TopicPartition("t", n): size for n, size in enumerate(sizes)}


def owners(*consumers):
    pairs = ((TopicPartition("t", n), c) for n, c in enumerate(consumers))
    return Assignment({p: c for p, c in pairs if c is not None})


def test_the_biggest_come_first_and_go_to_the_fullest_that_has_room():
    # 70 → 0; 60 → 1; 35 fits only with 60; 30 fills 0 to 100; 5 goes to the fuller 1 (95).
    assert bfd(loads(5, 60, 30, 70, 35), Assignment(), C100) == owners(1, 1, 0, 0, 1)


def test_of_equally_full_consumers_the_lowest_index_takes_it():
    # Both are at 60, named 4 and 2 after where their partitions were; 40 goes to 2.
    assert bfd(loads(60, 60, 40), owners(4, 2), C100) == owners(4, 2, 2)


def test_a_new_consumer_takes_the_index_its_first_partition_had():
    assert bfd(loads(60, 70), owners(3, 5), C100) == owners(3, 5)


def test_an_index_that_is_open_already_is_not_taken_twice():
    # 70 reopens 1; 60 was there too and cannot go back, so it gets the lowest free index.
    assert bfd(loads(60, 70), owners(1, 1), C100) == owners(0, 1)


def test_exactly_full_is_not_too_full():
    assert bfd(loads(60, 40), Assignment(), C100) == owners(0, 0)


def test_an_oversize_partition_stands_alone_and_takes_not_even_an_empty_one():
    assert bfd(loads(0, 130, 0), Assignment(), C100) == owners(1, 0, 1)


def test_empty_partitions_are_placed_like_others():
    assert bfd(loads(0, 0, 0), Assignment(), C100) == owners(0, 0, 0)


def test_nothing_to_place_needs_nobody():
    assert bfd({}, owners(0, 1), C100) == Assignment()


def test_departed_partitions_hold_no_index():
    present = {TopicPartition("t", 1): 10}
    assert bfd(present, owners(0, 2), C100) == Assignment({TopicPartition("t", 1): 2})


def test_a_consumer_of_its_own_capacity_is_filled_to_that_capacity():
    limits = GroupLimits(capacity=100, capacities={0: 150})
    assert bfd(loads(90, 60), Assignment(), limits) == owners(0, 0)


def test_the_fullest_is_the_one_with_the_least_room():
    # 0 has 150 - 90 = 60 left, 1 has 100 - 80 = 20 left: 20 goes to 1 though 0 carries more.
    limits = GroupLimits(capacity=100, capacities={0: 150})
    assert bfd(loads(90, 80, 20), owners(0, 1, None), limits) == owners(0, 1, 1)


def test_a_consumer_too_small_is_not_opened_while_a_larger_one_is_free():
    limits = GroupLimits(capacity=100, capacities={0: 10, 3: 200})
    assert bfd(loads(50), Assignment(), limits) == owners(1)
    assert bfd(loads(150), Assignment(), limits) == owners(3)
    assert bfd(loads(5), Assignment(), limits) == owners(0)


def test_a_home_too_small_is_left_for_a_larger_consumer():
    limits = GroupLimits(capacity=100, capacities={3: 200})
    assert bfd(loads(150), owners(0), limits) == owners(3)


def test_when_all_large_consumers_are_taken_the_rest_stand_alone():
    limits = GroupLimits(capacity=100, capacities={3: 200})
    assert bfd(loads(150, 140), Assignment(), limits) == owners(3, 0)


@pytest.mark.parametrize("load", [-1, math.nan, math.inf, -math.inf])
def test_a_load_nobody_can_reckon_with_is_refused_by_name(load):
    with pytest.raises(ValueError, match="t-1 has load"):
        bfd(loads(1, load), Assignment(), C100)
