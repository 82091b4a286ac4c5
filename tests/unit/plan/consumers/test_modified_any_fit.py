"""The modified fits on examples small enough to pack by hand."""

import math

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT

FITS = {planner.name: planner for planner in MODIFIED_ANY_FIT}
mwf, mbf, mwfp, mbfp = (FITS[name] for name in ("mwf", "mbf", "mwfp", "mbfp"))
every_fit = pytest.mark.parametrize("fit", MODIFIED_ANY_FIT, ids=lambda fit: fit.name)
C100 = GroupLimits(capacity=100)


def loads(*sizes):
    return {TopicPartition("t", n): size for n, size in enumerate(sizes)}


def owners(*consumers):
    pairs = ((TopicPartition("t", n), c) for n, c in enumerate(consumers))
    return Assignment({p: c for p, c in pairs if c is not None})


def test_a_group_in_which_nobody_can_be_dissolved_stays_as_it_is():
    assert mwf(loads(60, 30, 60, 30), owners(0, 0, 1, 1), C100) == owners(0, 0, 1, 1)


def test_an_overloaded_consumer_keeps_its_biggest():
    # 0 has 60 + 50 = 110: 60 stays, 50 is homeless and opens the lowest free index.
    assert mwf(loads(60, 50), owners(0, 0), C100) == owners(0, 1)


def test_after_the_first_that_does_not_fit_at_home_nobody_else_is_tried_there():
    # 60 stays, 50 does not fit, so 30 is homeless too, although it would fit. Then 50 opens
    # consumer 1, and 30 goes to the emptier of the two.
    assert mwf(loads(60, 50, 30), owners(0, 0, 0), C100) == owners(0, 1, 1)


def test_a_light_consumer_is_dissolved_into_open_ones():
    # 1 is heaviest and stays; 0 with 20 fits on it and is closed.
    assert mwf(loads(20, 70), owners(0, 1), C100) == owners(1, 1)


def test_dissolving_begins_with_the_smallest_and_ends_at_the_first_that_fits_nowhere():
    # 0 (80) stays. Of 1 (30 + 15 + 5): 5 moves (85), 15 moves (100), 30 fits nowhere and stays.
    after = mwf(loads(80, 30, 15, 5), owners(0, 1, 1, 1), C100)
    assert after == owners(0, 1, 0, 0)


def test_the_emptiest_open_consumer_takes_what_is_moved():
    # 0 (90) and 1 (85) stay; 5 of consumer 2 goes to 1, the emptier one.
    assert mwf(loads(90, 85, 5), owners(0, 1, 2), C100) == owners(0, 1, 1)


def test_consumers_of_equal_load_are_taken_by_index():
    # 1 stays because it comes first, and 4 is dissolved into it.
    assert mwf(loads(50, 50), owners(4, 1), C100) == owners(1, 1)


def test_arrivals_go_to_the_emptiest_consumer_that_has_room():
    assert mwf(loads(60, 50, 40), owners(0, 1, None), C100) == owners(0, 1, 1)


def test_an_oversize_partition_keeps_its_home_to_itself():
    assert mwf(loads(130, 10, 0), owners(2, 2, 2), C100) == owners(2, 0, 0)


def test_of_two_oversize_partitions_at_one_home_the_bigger_stays():
    assert mwf(loads(130, 150), owners(2, 2), C100) == owners(0, 2)


def test_a_home_too_small_is_left_for_a_larger_consumer():
    # 0 carries 100 at most, so 150 leaves it for 3, which carries 200; 40 stays at home.
    limits = GroupLimits(capacity=100, capacities={3: 200})
    assert mwf(loads(150, 40), owners(0, 0), limits) == owners(3, 0)


def test_a_consumer_of_its_own_capacity_keeps_what_it_can_carry():
    limits = GroupLimits(capacity=100, capacities={0: 200})
    assert mwf(loads(90, 80, 60), owners(0, 0, 1), limits) == owners(0, 0, 1)


def test_worst_fit_and_best_fit_differ_in_who_takes_what_is_moved():
    # 0 (90) and 1 (85) stay; 5 of consumer 2 fits on both.
    asked = (loads(90, 85, 5), owners(0, 1, 2), C100)
    assert mwf(*asked) == mwfp(*asked) == owners(0, 1, 1)
    assert mbf(*asked) == mbfp(*asked) == owners(0, 1, 0)


@pytest.mark.parametrize("fit", [mwf, mbf], ids=["mwf", "mbf"])
def test_the_heaviest_consumer_is_taken_first(fit):
    # 0 has 40 + 40 = 80 and stays; 20 of 1 moves to it, 50 fits nowhere and stays.
    assert fit(loads(40, 40, 50, 20), owners(0, 0, 1, 1), C100) == owners(0, 0, 1, 0)


@pytest.mark.parametrize("fit", [mwfp, mbfp], ids=["mwfp", "mbfp"])
def test_the_consumer_with_the_largest_partition_is_taken_first(fit):
    # 1 has 50 and stays with 20; of 0 neither 40 fits: both stay.
    assert fit(loads(40, 40, 50, 20), owners(0, 0, 1, 1), C100) == owners(0, 0, 1, 1)


@every_fit
def test_nothing_to_place_needs_nobody(fit):
    assert fit({}, owners(0, 1), C100) == Assignment()


@every_fit
def test_no_option_concerns_them(fit):
    assert fit.reads == frozenset()


@every_fit
@pytest.mark.parametrize("load", [-1, math.nan, math.inf])
def test_a_load_nobody_can_reckon_with_is_refused_by_name(fit, load):
    with pytest.raises(ValueError, match="t-0 has load"):
        fit(loads(load), Assignment(), C100)
