"""What a partitioner sees of a cluster."""

from __future__ import annotations

import pickle

import pytest

from trimtab.errors import UnknownTopic
from trimtab.model.cluster import Broker, BrokerId, ClusterSnapshot, Replicas
from trimtab.plan.records.leaders import LeaderSnapshot


def test_any_negative_number_is_nobody():
    seen = LeaderSnapshot({"t": {0: -1, 1: -2, 2: 0, 3: 1001}})

    assert seen.leading == {0, 1001}
    assert seen.topic("t").available == (2, 3)
    assert seen.topic("t").brokers == (0, 1001)


def test_a_snapshot_of_the_cluster_gives_leaders_and_racks():
    ids = [BrokerId(7), BrokerId(42)]
    cluster = ClusterSnapshot(
        ts=1,
        cluster="c",
        brokers=(Broker(id=ids[0], rack="a"), Broker(id=ids[1])),
        partitions=tuple(
            Replicas(topic="t", partition=n, leader=leader, replicas=(leader,), isr=(leader,))
            for n, leader in enumerate(ids)
        ),
    )

    seen = LeaderSnapshot.of(cluster)

    assert dict(seen.topic("t").leader) == {0: 7, 1: 42}
    assert dict(seen.racks) == {7: "a", 42: None}


@pytest.mark.parametrize("leaders", [{}, {"t": {}}, {"other": {0: 1}}])
def test_a_topic_that_is_unknown_or_empty_is_an_error(leaders):
    with pytest.raises(UnknownTopic, match="Topic t") as raised:
        LeaderSnapshot(leaders).topic("t")
    assert raised.value.hint


def test_what_was_given_may_change_without_the_snapshot():
    leaders = {"t": {0: 1}}
    seen = LeaderSnapshot(leaders)

    leaders["t"][0] = 2

    assert seen.topic("t").leader[0] == 1


def test_a_record_may_stay_where_there_is_a_leader_or_where_none_has_one():
    some = LeaderSnapshot({"t": {0: 1, 1: -1}}).topic("t")
    none = LeaderSnapshot({"t": {0: -1, 1: -1}}).topic("t")

    assert [some.takes(p) for p in (0, 1, 2)] == [True, False, False]
    assert [none.takes(p) for p in (0, 1, 2)] == [True, True, False]


def test_the_later_one_has_the_higher_number_also_after_a_journey():
    first = LeaderSnapshot({"t": {0: 1}}, {1: "a"})
    second = LeaderSnapshot({})

    again = pickle.loads(pickle.dumps(first))

    assert first.made < second.made < again.made
    assert (again.topic("t"), dict(again.racks)) == (first.topic("t"), {1: "a"})
