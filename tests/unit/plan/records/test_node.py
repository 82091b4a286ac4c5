"""Node, Default and Improved through changes of leaders."""

from __future__ import annotations

from collections import Counter

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.node import NodePartitioner
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import partitioner_of


def choices(partitioner, records, snapshot, topic="t"):
    return [partitioner.partition(topic, None, 100, snapshot) for _ in range(records)]


def test_turns_inside_a_broker_outlive_a_change_of_leaders():
    # Broker 2 leads 1, 2, 3; for a while it leads 1 and 2 only, and goes on where it was.
    node = NodePartitioner(RoutingOptions(start=0))
    before = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2, 3: 2}})
    during = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2, 3: 1}})

    assert choices(node, 4, before) == [0, 1, 0, 2]
    assert choices(node, 4, during) == [0, 1, 3, 2]
    assert choices(node, 2, before) == [0, 2]


def test_no_partition_is_starved_when_two_snapshots_take_turns():
    node = NodePartitioner(RoutingOptions(start=0))
    one = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2}})
    same = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 2}})

    chosen = [p for _ in range(200) for s in (one, same) for p in choices(node, 1, s)]

    assert Counter(chosen) == {0: 200, 1: 100, 2: 100}


@pytest.mark.parametrize("name", ["default", "improved", "node"])
def test_topics_do_not_disturb_each_other(name):
    seen = LeaderSnapshot({t: {0: 1, 1: 2, 2: 3} for t in "tu"})
    alone, mixed = (partitioner_of(name, RoutingOptions(seed=4)) for _ in range(2))

    found = []
    for _ in range(9):
        found += choices(mixed, 1, seen)
        choices(mixed, 2, seen, "u")

    assert found == choices(alone, 9, seen)


@pytest.mark.parametrize("name", ["default", "improved", "node"])
def test_a_counter_is_kept_when_leaders_change(name):
    partitioner = partitioner_of(name, RoutingOptions(start=0))
    three = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3}})
    two = LeaderSnapshot({"t": {0: 1, 1: 2, 2: -1}})

    assert choices(partitioner, 4, three) == [0, 1, 2, 0]
    assert choices(partitioner, 3, two) == [0, 1, 0]  # numbers 4, 5, 6
    assert choices(partitioner, 2, three) == [1, 2]  # numbers 7, 8


def test_brokers_may_have_any_ids():
    seen = LeaderSnapshot({"t": {5: 1001, 6: 7, 9: 42, 11: 1001}})

    assert choices(NodePartitioner(RoutingOptions(start=0)), 6, seen) == [6, 9, 5, 6, 9, 11]
