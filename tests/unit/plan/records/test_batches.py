"""A choice that holds for a batch."""

from __future__ import annotations

from itertools import groupby

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import CountUnit, Granularity, RoutingOptions
from trimtab.plan.records.registry import OURS, partitioner_of

BOTH = LeaderSnapshot({"t": {0: 1, 1: 2}})


def batched(name, **options):
    given = RoutingOptions(granularity=Granularity.PER_BATCH, start=0, **options)
    return partitioner_of(name, given)


def choices(partitioner, sizes, snapshot=BOTH, topic="t"):
    return [partitioner.partition(topic, None, size, snapshot) for size in sizes]


@pytest.mark.parametrize("name", OURS)
def test_a_partition_is_kept_until_enough_bytes_were_given_to_it(name):
    chosen = choices(batched(name, sticky_bytes=300), [100, 100, 99, 1, 400, 300, 299, 1, 1])

    assert chosen == [0, 0, 0, 0, 1, 0, 1, 1, 0]


@pytest.mark.parametrize("name", OURS)
def test_records_without_a_byte_count_as_one(name):
    chosen = choices(batched(name, sticky_bytes=3), [0] * 9)

    assert [(p, len(list(run))) for p, run in groupby(chosen)] == [(0, 3), (1, 3), (0, 3)]


@pytest.mark.parametrize("name", OURS)
def test_a_partition_that_loses_its_leader_is_left_at_once(name):
    partitioner = batched(name)

    assert choices(partitioner, [10]) == [0]
    assert choices(partitioner, [10], LeaderSnapshot({"t": {0: -1, 1: 2}})) == [1]


@pytest.mark.parametrize("name", OURS)
def test_a_partition_that_is_gone_is_left_at_once(name):
    partitioner = batched(name)

    assert choices(partitioner, [10]) == [0]
    assert choices(partitioner, [10], LeaderSnapshot({"t": {1: 2}})) == [1]


@pytest.mark.parametrize("name", OURS)
def test_a_batch_goes_on_under_another_leader_and_when_all_are_lost(name):
    partitioner = batched(name, sticky_bytes=50)
    moved = LeaderSnapshot({"t": {0: 2, 1: 1}})
    lost = LeaderSnapshot({"t": {0: -1, 1: -1}})

    assert [choices(partitioner, [10], s) for s in (BOTH, moved, lost, BOTH)] == [[0]] * 4


@pytest.mark.parametrize("name", OURS)
def test_after_a_total_outage_the_first_leader_gets_the_next_record(name):
    partitioner = batched(name)

    assert choices(partitioner, [10], LeaderSnapshot({"t": {0: -1, 1: -1}})) == [0]
    assert choices(partitioner, [10], LeaderSnapshot({"t": {0: -1, 1: 2}})) == [1]


@pytest.mark.parametrize("name", OURS)
def test_each_topic_has_a_batch_of_its_own(name):
    seen = LeaderSnapshot({"t": {0: 1, 1: 2}, "u": {0: 1, 1: 2}})
    partitioner = batched(name, sticky_bytes=20)

    chosen = [partitioner.partition(t, None, 10, seen) for t in "tuuutu"]

    assert chosen[0] == chosen[4]
    assert chosen[1] == chosen[2]
    assert chosen[3] == chosen[5]
    assert {chosen[1], chosen[3]} == {0, 1}


def test_the_bytes_of_a_whole_batch_are_counted_on_its_broker():
    # t is on 1 and 2, u on 2 and 3; a batch of t has loaded 1 when u and t choose again.
    seen = LeaderSnapshot({"t": {0: 1, 1: 2}, "u": {0: 2, 1: 3}})
    sqf = batched("sqf", sticky_bytes=100)

    choices(sqf, [40, 40, 40], seen)  # 120 on 1
    assert choices(sqf, [100], seen, "u") == [0]  # 100 on 2
    assert choices(sqf, [100], seen) == [1]  # 2 has less than 1


def test_records_are_counted_in_a_batch_when_records_are_wanted():
    seen = LeaderSnapshot({"t": {0: 1, 1: 2}, "u": {0: 2, 1: 3}, "v": {0: 1, 1: 2}})
    sqf = batched("sqf", sticky_bytes=100, counted=CountUnit.RECORDS)

    choices(sqf, [30, 30, 30, 30], seen)  # 4 records on 1
    choices(sqf, [1] * 3, seen, "u")  # 3 records on 2
    assert choices(sqf, [1], seen, "v") == [1]


def test_a_batch_takes_at_least_a_byte():
    with pytest.raises(ValueError, match="sticky_bytes must be at least 1"):
        RoutingOptions(sticky_bytes=0)
