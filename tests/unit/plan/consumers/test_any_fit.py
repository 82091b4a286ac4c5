"""The classic fits on examples small enough to pack by hand."""

import math

import pytest

from trimtab.errors import ConfigError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import ANY_FIT, FirstBin, SortOrder
from trimtab.plan.consumers.planner import PackingContext

FITS = {planner.name: planner for planner in ANY_FIT}
nf, nfd, ff, ffd, bf, bfd, wf, wfd = (
    FITS[name] for name in ("nf", "nfd", "ff", "ffd", "bf", "bfd", "wf", "wfd")
)
every_fit = pytest.mark.parametrize("fit", ANY_FIT, ids=lambda fit: fit.name)
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


@pytest.mark.parametrize(
    ("fit", "expected"),
    [
        (nf, (0, 1, 2, 2, 3, 3)),  # 30 | 80 | 40 20 | 90 5
        (ff, (0, 1, 0, 0, 2, 0)),  # 30 40 20 5 | 80 | 90
        (bf, (0, 1, 0, 1, 2, 2)),  # 30 40 | 80 20 | 90 5
        (wf, (0, 1, 0, 0, 2, 1)),  # 30 40 20 | 80 5 | 90
        (nfd, (2, 1, 2, 2, 0, 2)),  # 90 | 80 | 40 30 20 5
        (ffd, (2, 1, 2, 1, 0, 0)),  # 90 5 | 80 20 | 40 30
        (bfd, (2, 1, 2, 1, 0, 0)),  # 90 5 | 80 20 | 40 30
        (wfd, (2, 1, 2, 2, 0, 1)),  # 90 | 80 5 | 40 30 20
    ],
    ids=lambda value: getattr(value, "name", "expected"),
)
def test_each_fit_on_the_same_six_partitions(fit, expected):
    assert fit(loads(30, 80, 40, 20, 90, 5), Assignment(), C100) == owners(*expected)


def test_first_best_and_worst_fit_choose_differently_among_consumers_with_room():
    # In order: 50 on 0, 70 on 1, 60 on 2 (their own); then 20 fits everywhere.
    before = owners(0, 1, 2, None)
    sizes = loads(50, 70, 60, 20)
    assert ff(sizes, before, C100)[TopicPartition("t", 3)] == 0
    assert bf(sizes, before, C100)[TopicPartition("t", 3)] == 1
    assert wf(loads(60, 70, 50, 20), before, C100)[TopicPartition("t", 3)] == 2


def test_the_first_is_the_lowest_index_not_the_one_opened_first():
    # 60 reopens 4, then 70 reopens 2: 20 would fit on both.
    assert ff(loads(60, 70, 20), owners(4, 2, None), C100) == owners(4, 2, 2)


def test_first_fit_reaches_indexes_far_apart():
    assert ff(loads(60, 70, 30, 40), owners(10**12, 7, None, None), C100) == owners(
        10**12, 7, 7, 10**12
    )


def test_next_fit_never_looks_back():
    # 30 would fit on 0, which is closed since 90 opened 1.
    assert nf(loads(20, 90, 30), Assignment(), C100) == owners(0, 1, 2)


def test_an_index_that_next_fit_has_closed_is_taken():
    # 60 opens 1, 70 opens 0; 50 was on 1, which is closed but in use.
    assert nf(loads(60, 70, 50), owners(1, 0, 1), C100) == owners(1, 0, 2)


@pytest.mark.parametrize("fit", [nf, nfd], ids=["nf", "nfd"])
def test_next_fit_begins_where_its_first_partition_was_or_with_consumer_0(fit):
    asked = (loads(60, 50), owners(3, 4), C100)
    assert fit(*asked) == owners(3, 4)
    assert fit.with_options(nf_first_bin=FirstBin.ZERO)(*asked) == owners(0, 4)


def test_next_fit_does_not_begin_with_a_consumer_0_that_is_too_small():
    limits = GroupLimits(capacity=100, capacities={0: 10})
    zero = nf.with_options(nf_first_bin=FirstBin.ZERO)
    assert zero(loads(60, 5), owners(3), limits) == owners(3, 3)


@every_fit
def test_nothing_to_begin_with_is_no_trouble(fit):
    assert fit({}, Assignment(), C100) == Assignment()
    if "nf_first_bin" in fit.option_names:
        zero = fit.with_options(nf_first_bin=FirstBin.ZERO)
        assert zero({}, Assignment(), C100) == Assignment()


@pytest.mark.parametrize("fit", [nf, ff, bf, wf], ids=lambda fit: fit.name)
def test_a_shuffled_order_follows_from_seed_and_iteration(fit):
    sizes = loads(*(7 * n % 100 for n in range(1, 40)))

    def packed(seed, iteration):
        context = PackingContext(seed=seed, iteration=iteration)
        return fit.with_options(order=SortOrder.SHUFFLE)(sizes, Assignment(), C100, context)

    assert packed(1, 2) == packed(1, 2)
    assert packed(1, 2) != packed(1, 3)
    assert packed(1, 2) != packed(2, 2)


@pytest.mark.parametrize("fit", [nfd, ffd, bfd, wfd], ids=lambda fit: fit.name)
def test_decreasing_fits_know_no_other_order(fit):
    sizes = loads(*(7 * n % 100 for n in range(1, 40)))
    assert fit(sizes, Assignment(), C100, PackingContext(seed=3)) == fit(sizes, Assignment(), C100)
    with pytest.raises(ConfigError, match=f"Planner {fit.name} has no option order"):
        fit.with_options(order=SortOrder.SHUFFLE)


def test_the_fits_say_what_they_read():
    chance = {"order", "seed", "iteration"}
    assert {name: set(fit.reads) for name, fit in FITS.items()} == {
        "nf": chance | {"nf_first_bin"},
        "nfd": {"nf_first_bin"},
        "ff": chance,
        "ffd": set(),
        "bf": chance,
        "bfd": set(),
        "wf": chance,
        "wfd": set(),
    }


@every_fit
@pytest.mark.parametrize("load", [-1, math.nan, math.inf, -math.inf])
def test_a_load_nobody_can_reckon_with_is_refused_by_name(fit, load):
    with pytest.raises(ValueError, match="t-1 has load"):
        fit(loads(1, load), Assignment(), C100)
