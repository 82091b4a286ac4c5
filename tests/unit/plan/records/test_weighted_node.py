"""Weights from outside: what they mean, and what happens when they change."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.weighted_node import ONE, WeightedNode, parts

SEEN = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3}})


class Steered:
    """A partitioner and the weights that it is told."""

    def __init__(self):
        self.weights: dict[int, float] = {}
        self.partitioner = WeightedNode(RoutingOptions(start=0, weights=lambda: self.weights))

    def brokers(self, records, weights, snapshot=SEEN):
        self.weights = weights
        leader = snapshot.topic("t").leader
        return [
            leader[self.partitioner.partition("t", None, 100, snapshot)] for _ in range(records)
        ]


def test_the_sequence_is_the_smooth_one():
    assert Steered().brokers(7, {1: 5, 2: 1, 3: 1}) == [1, 1, 2, 1, 3, 1, 1]


@pytest.mark.parametrize("weights", [{}, {1: 0, 2: 0, 3: 0}, {9: 4.0}, {1: 0.0}, {2: -1, 3: 0}])
def test_all_zero_or_none_known_is_equal(weights):
    assert Steered().brokers(6, weights) == [1, 2, 3, 1, 2, 3]


def test_a_broker_of_weight_zero_is_given_nothing():
    steered = Steered()
    steered.brokers(2, {})

    chosen = Counter(steered.brokers(300, {1: 1, 2: 0, 3: 2}))

    assert chosen == pytest.approx({1: 100, 3: 200}, abs=1)


@pytest.mark.parametrize("unknown", [None, math.nan, math.inf, -3.0])
def test_a_broker_whose_weight_is_not_known_has_the_mean_of_the_others(unknown):
    weights = {1: 3.0, 2: 1.0} | ({} if unknown is None else {3: unknown})

    assert Counter(Steered().brokers(600, weights)) == {1: 300, 2: 100, 3: 200}


def test_only_ratios_matter():
    huge, tiny = {1: 3e307, 2: 1e307, 3: 2e307}, {1: 3e-320, 2: 1e-320, 3: 2e-320}

    assert Steered().brokers(60, huge) == Steered().brokers(60, {1: 3, 2: 1, 3: 2})
    assert Counter(Steered().brokers(60, tiny)) == {1: 30, 2: 10, 3: 20}


def test_weights_may_change_in_place_and_at_any_time():
    steered, weights = Steered(), {1: 1.0, 2: 1.0, 3: 0.0}

    assert Counter(steered.brokers(100, weights)) == {1: 50, 2: 50}
    weights[1], weights[3] = 0.0, 1.0
    assert Counter(steered.brokers(100, weights)) == {2: 50, 3: 50}


def test_weights_of_another_scale_make_no_run():
    steered = Steered()
    steered.brokers(101, {1: 1000, 2: 1000, 3: 1000})

    after = steered.brokers(99, {1: 0.001, 2: 0.001, 3: 0.001})

    assert max(len(list(run)) for _, run in groupby(after)) == 1


def test_the_partitions_of_a_broker_take_turns():
    seen = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2}})
    partitioner = WeightedNode(RoutingOptions(start=0, weights=lambda: {1: 1, 2: 2}))

    chosen = Counter(partitioner.partition("t", None, 100, seen) for _ in range(300))

    assert chosen == {0: 100, 1: 100, 2: 100}


def test_a_broker_that_comes_and_goes_keeps_its_turn():
    steered, without = Steered(), LeaderSnapshot({"t": {0: 1, 1: 2, 2: -1}})
    weights = {1: 1, 2: 1, 3: 1}
    steered.brokers(100, weights)
    assert set(steered.brokers(1000, weights, without)) == {1, 2}

    after = steered.brokers(99, weights, LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3}}))

    assert max(len(list(run)) for _, run in groupby(after)) <= 2
    assert max(Counter(after).values()) - min(Counter(after).values()) <= 1


def test_producers_begin_with_different_brokers():
    firsts = {
        WeightedNode(RoutingOptions(seed=seed)).partition("t", None, 100, SEEN)
        for seed in range(30)
    }

    assert firsts == {0, 1, 2}


def test_parts_are_of_one_choice():
    assert parts((1, 2), {1: 3, 2: 1}) == ((1, 3 * ONE // 4), (2, ONE // 4))
    assert parts((1, 2), {1: 1, 2: 1e-30}) == ((1, ONE),)
