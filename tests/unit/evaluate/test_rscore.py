"""What planners are scored by, on cases small enough to check by hand."""

from __future__ import annotations

import math

import pytest

from trimtab.evaluate.rscore import (
    TWELVE,
    Cbs,
    cbs,
    e_rscore,
    judged,
    moved_fraction,
    moved_load,
    orphan_load,
    over_all,
    overload,
    pareto_front,
    rscore,
    utilisation,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS

A, B, C, D = (TopicPartition("t", n) for n in range(4))
C100 = GroupLimits(capacity=100)


def test_three_moved_partitions_of_full_capacity_have_an_rscore_of_3():
    before, after = Assignment({A: 0, B: 1, C: 2}), Assignment({A: 1, B: 2, C: 0})
    assert rscore(before, after, dict.fromkeys((A, B, C), 100), capacity=100) == 3


def test_only_partitions_that_changed_their_consumer_count():
    before, after = Assignment({A: 0, B: 0, C: 1}), Assignment({A: 0, B: 1, C: 0})
    assert moved_load(before, after, {A: 1, B: 20, C: 300}) == 320


def test_arrivals_and_departures_cost_nothing():
    before, after = Assignment({A: 0, B: 0}), Assignment({A: 0, C: 1})
    assert moved_load(before, after, {A: 10, C: 20}) == 0


def test_the_first_assignment_of_a_group_costs_nothing():
    assert rscore(Assignment(), Assignment({A: 0, B: 1}), {A: 10, B: 20}, capacity=100) == 0


def test_an_empty_partition_moves_for_nothing_but_is_counted():
    found = judged(Assignment({D: 0}), Assignment({D: 1}), {D: 0}, C100)
    assert (found.rscore, found.moves) == (0, 1)


def test_the_moved_fraction_is_that_of_the_whole_load():
    assert moved_fraction(30, 120) == 0.25


def test_nothing_can_move_where_there_is_no_load():
    assert moved_fraction(0, 0) == 0


def test_utilisation_counts_what_the_consumers_in_use_can_carry():
    limits = GroupLimits(capacity=100, capacities={1: 50, 7: 1000})
    assert utilisation(Assignment({A: 0, B: 1}), {A: 60, B: 15}, limits) == 0.5


def test_without_consumers_there_is_no_utilisation():
    assert utilisation(Assignment(), {}, C100) is None


def test_overload_is_what_each_consumer_has_beyond_its_own_capacity():
    limits = GroupLimits(capacity=100, capacities={1: 50})
    assert overload(Assignment({A: 0, B: 0, C: 1}), {A: 60, B: 70, C: 90}, limits) == 30 + 40


def test_the_load_of_orphans_leaves_out_departed_partitions_and_the_living():
    before = Assignment({A: 0, B: 1, C: 1, D: 2})
    assert orphan_load(before, {1, 2}, {A: 1, B: 20, C: 300}) == 320


def test_the_expected_rscore_includes_the_first_iteration():
    assert e_rscore([0, 1, 2]) == 1


def test_a_run_is_judged_by_means_and_by_the_sum_of_its_moves():
    loads = {A: 60, B: 40}
    apart, together = Assignment({A: 0, B: 1}), Assignment({A: 0, B: 0})
    found = over_all(
        [
            judged(Assignment(), apart, loads, C100),
            judged(apart, together, loads, C100),
            judged(together, Assignment(), {}, C100),
        ]
    )
    assert found.mean_consumers == 1
    assert found.moves == 1
    assert found.e_rscore == pytest.approx(0.4 / 3)
    assert found.moved_fraction == pytest.approx(0.4 / 3)
    assert found.utilisation == pytest.approx((0.5 + 1) / 2)
    assert found.overload == 0


def test_the_reference_set_are_the_twelve_heuristics_of_the_registry():
    assert len(set(TWELVE)) == 12
    assert set(TWELVE) <= PLANNERS[Layer.CONSUMERS].keys()


def test_the_cardinal_bin_score_is_the_mean_excess_over_the_best_of_each_iteration():
    counts = {"a": [4, 3], "b": [5, 2]}
    assert cbs(counts, reference=["a", "b"]) == {"a": Cbs(0.25, 0), "b": Cbs(0.125, 0)}


def test_one_more_planner_changes_nobodys_score_and_may_be_below_0():
    counts = {"a": [4, 4], "b": [5, 5]}
    alone = cbs(counts, reference=["a", "b"])
    joined = cbs({**counts, "better": [3, 3]}, reference=["a", "b"])
    assert {name: joined[name] for name in counts} == alone
    assert joined["better"].value == -0.25


def test_an_iteration_without_partitions_is_skipped_and_counted():
    assert cbs({"a": [0, 2], "b": [0, 3]}, reference=["a"])["b"] == Cbs(0.5, 1)


def test_a_stream_without_partitions_has_no_score():
    score = cbs({"a": [0, 0]}, reference=["a"])["a"]
    assert math.isnan(score.value)
    assert score.skipped == 2


@pytest.mark.parametrize("reference", [[], ["bfd", "mwf"]])
def test_a_reference_set_must_be_there(reference):
    with pytest.raises(ValueError, match="reference set"):
        cbs({"bfd": [1]}, reference=reference)


def test_counts_of_different_length_are_refused():
    with pytest.raises(ValueError, match="zip"):
        cbs({"a": [1, 2], "b": [1]}, reference=["a"])


@pytest.mark.parametrize(
    ("points", "front"),
    [
        ({"a": (0, 2), "b": (2, 0), "c": (1, 1)}, {"a", "b", "c"}),
        ({"a": (0, 2), "b": (0, 3)}, {"a"}),
        ({"a": (1, 1), "b": (1, 1), "c": (1, 2)}, {"a", "b"}),
        ({"a": (0, 0), "b": (1, 1)}, {"a"}),
        ({}, set()),
    ],
    ids=["trade-offs", "better in one", "equal points are both kept", "better in both", "none"],
)
def test_the_pareto_front_holds_whom_nobody_dominates(points, front):
    assert pareto_front(points) == front
