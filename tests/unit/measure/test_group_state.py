import pytest

from trimtab.errors import MeasurementError
from trimtab.measure.group_state import GroupSnapshot, group_state
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.model.plan import MemberName
from trimtab.testing.fakes import FakeAdmin

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def place(name):
    one = (BrokerId(1),)
    return Replicas(
        topic=name.topic, partition=name.partition, leader=one[0], replicas=one, isr=one
    )


def cluster(*groups):
    return FakeAdmin(
        brokers=[Broker(id=BrokerId(1))], partitions=map(place, (A0, A1, B0)), groups=groups
    )


def member(name, *partitions):
    return Member(member_id=name, client_id="", host="", partitions=frozenset(partitions))


def test_a_group_is_asked_for_the_topics_it_reads():
    admin = cluster(Group(name="g", state="STABLE", members=(member("m", A0),)))
    name = MemberName(client_id="", host="", member_id="m")
    expected = GroupSnapshot(frozenset({A0, A1}), Assignment({A0: 0}), {0: name})
    assert group_state(admin, "g") == expected


def test_members_are_numbered_by_what_they_read_and_named_beside_it():
    groups = [
        Group(name="g", state="STABLE", members=(member("z", A0), member("a", A1), member("idle"))),
        Group(name="h", state="STABLE", members=(member("b", A0), member("y", A1))),
    ]
    first, second = (group_state(cluster(*groups), g.name) for g in groups)
    assert first.assignment == second.assignment
    assert [m.member_id for m in first.members.values()] == ["z", "a"]
    assert [m.member_id for m in second.members.values()] == ["b", "y"]


def test_a_group_without_members_is_asked_for_the_topics_it_has_offsets_for():
    admin = cluster(Group(name="g", state="EMPTY", committed={B0: 7}))
    assert group_state(admin, "g") == GroupSnapshot(frozenset({B0}), Assignment())


def test_only_the_topics_asked_for_count():
    admin = cluster(Group(name="g", state="STABLE", members=(member("m", A0), member("n", B0))))
    state = group_state(admin, "g", frozenset({"b", "absent"}))
    assert (state.partitions, state.assignment) == (frozenset({B0}), Assignment({B0: 0}))
    assert [m.member_id for m in state.members.values()] == ["n"]


def test_a_group_that_does_not_exist_reads_nothing():
    assert group_state(cluster(), "g") == GroupSnapshot(frozenset(), Assignment())
    asked = group_state(cluster(), "g", frozenset({"a"}))
    assert asked == GroupSnapshot(frozenset({A0, A1}), Assignment())


@pytest.mark.parametrize("state", ["PREPARING_REBALANCING", "COMPLETING_REBALANCING", "ASSIGNING"])
def test_a_group_in_the_middle_of_a_rebalance_is_refused(state):
    with pytest.raises(MeasurementError, match="is being rebalanced"):
        group_state(cluster(Group(name="g", state=state)), "g")
