import pytest

from trimtab.model.assignment import Assignment, moved, present_assignment
from trimtab.model.cluster import Group, Member, TopicPartition

A, B, C, D = (TopicPartition("t", n) for n in range(4))


def member(name, *partitions):
    return Member(member_id=name, client_id="", host="", partitions=frozenset(partitions))


def group(*members):
    return Group(name="g", state="STABLE", members=members)


def test_moved_are_those_on_both_sides_with_different_owners():
    assert moved(Assignment({A: 0, B: 0, C: 1}), Assignment({A: 0, B: 1, D: 2})) == (B,)


def test_a_negative_consumer_is_refused_by_name():
    with pytest.raises(ValueError, match="t-0 is on consumer -1"):
        Assignment({A: -1})


def test_members_are_numbered_by_the_smallest_partition_they_own():
    now = present_assignment(group(member("a", B, C), member("b", A)), frozenset({"t"}))
    assert now == Assignment({A: 0, B: 1, C: 1})


def test_the_names_of_members_play_no_part():
    one = group(member("a", A, D), member("b", B, C))
    other = group(member("z", B, C), member("b", A, D))
    topics = frozenset({"t"})
    assert present_assignment(one, topics) == present_assignment(other, topics)


def test_members_without_partitions_of_these_topics_have_no_number():
    elsewhere = TopicPartition("a", 0)
    now = present_assignment(
        group(member("a"), member("b", elsewhere), member("c", A)), frozenset({"t"})
    )
    assert now == Assignment({A: 0})


def test_a_partition_with_two_owners_is_refused():
    with pytest.raises(ValueError, match="t-0 has two owners in group g"):
        present_assignment(group(member("a", A), member("b", A, B)), frozenset({"t"}))
