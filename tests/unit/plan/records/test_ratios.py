"""Fullest over mean, from both sides."""

from __future__ import annotations

import pytest

from trimtab.errors import UnknownTopic
from trimtab.model.cluster import TopicPartition
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.ratios import Ratios, ratios

SEEN = LeaderSnapshot({"a": {0: 1, 1: 2, 2: 2}, "b": {0: 2, 1: 3}, "c": {0: 9}})


def given(topic, *records):
    return {TopicPartition(topic, p): n for p, n in enumerate(records)}


def test_brokers_are_summed_over_topics():
    assert ratios(given("a", 3, 2, 1) | given("b", 3, 3), SEEN) == Ratios(6 / 4, 3 / (12 / 5))


def test_partitions_and_brokers_that_got_nothing_count():
    assert ratios(given("a", 6), SEEN) == Ratios(2, 3)


def test_topics_that_were_not_counted_are_left_out():
    assert ratios(given("c", 5), SEEN) == Ratios(1, 1)


def test_a_partition_without_a_leader_counts_if_it_was_given_something():
    seen = LeaderSnapshot({"a": {0: 1, 1: 2, 2: -1}})

    assert ratios(given("a", 2, 2), seen) == Ratios(1, 1)
    assert ratios(given("a", 2, 2, 5), seen) == Ratios(1, 5 / 3)


@pytest.mark.parametrize("nothing", [{}, given("a", 0, 0, 0)])
def test_nothing_is_even(nothing):
    assert ratios(nothing, SEEN) == Ratios(1, 1)


def test_an_unknown_topic_is_an_error():
    with pytest.raises(UnknownTopic):
        ratios(given("d", 1), SEEN)
