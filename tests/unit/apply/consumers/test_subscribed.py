"""Numbers that members keep, who reads what meanwhile, and when the group must be told."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trimtab.apply.consumers.assignments import AssignmentRequest, GroupMember, GroupPlan, answer
from trimtab.apply.consumers.subscribed import ServedAssignment, numbered, read_by
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

P = [TopicPartition("orders", n) for n in range(6)]


def plan_of(*bins: tuple[int, ...], version: int = 1) -> GroupPlan:
    owners = {P[n]: c for c, bin_ in enumerate(bins) for n in bin_}
    return GroupPlan(version=version, assignment=Assignment(owners))


def told(plan: GroupPlan, *members: str) -> ServedAssignment:
    joined = tuple(GroupMember(member_id=m, client_id=m) for m in members)
    request = AssignmentRequest(group="g", generation=1, members=joined, partitions=tuple(P))
    return ServedAssignment(request, answer(plan, joined, P), plan)


def test_a_pod_that_goes_does_not_renumber_the_others():
    first = numbered(["a", "b", "c"], {}, planned=[])
    assert first == {"a": 0, "b": 1, "c": 2}
    assert numbered(["a", "c"], first, planned=[0, 2]) == {"a": 0, "c": 2}


def test_a_pod_in_another_s_place_gets_the_number_that_the_plan_counts_on():
    known = {"a": 0, "b": 1, "c": 2}
    assert numbered(["a", "c", "new"], known, planned=[0, 1, 2]) == {"a": 0, "c": 2, "new": 1}


def test_when_a_busy_pod_was_stopped_an_idle_one_takes_its_number():
    known = {"a": 0, "b": 1, "idle": 2}
    assert numbered(["b", "idle"], known, planned=[0, 1]) == {"b": 1, "idle": 0}


@given(
    names=st.sets(st.sampled_from("abcdefgh")),
    known=st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 9)).map(
        lambda d: {name: i for i, name in enumerate(d)}
    ),
    planned=st.sets(st.integers(0, 6)),
)
def test_numbers_are_distinct_and_cover_the_plan_as_far_as_there_are_members(names, known, planned):
    found = numbered(names, known, planned)
    again = numbered(names, found, planned)

    assert found.keys() == names
    assert len(set(found.values())) == len(names)
    assert len(planned & set(found.values())) == min(len(planned), len(names))
    assert all(found[n] == known[n] for n in names & known.keys() if known[n] in planned)
    assert again == found


def test_everything_is_read_whoever_of_the_plan_is_there():
    plan = plan_of((0, 1, 2), (3, 4), (5,))
    assert read_by(plan, {0, 1, 2}, P) == plan.assignment
    without = read_by(plan, {0, 2}, P)
    assert without.keys() == set(P)
    assert {p: c for p, c in without.items() if p not in (P[3], P[4])} == {
        p: c for p, c in plan.assignment.items() if c != 1
    }
    assert not read_by(plan, set(), P)
    assert not read_by(None, {0}, P)


def test_a_plan_for_consumers_on_their_way_says_nothing_new_to_the_one_that_is_there():
    one = told(plan_of((0, 1, 2, 3, 4, 5)), "a")
    assert not one.differs_under(plan_of((0, 1, 2), (3, 4, 5)))
    assert not one.differs_under(plan_of((0, 1), (2, 3), (4, 5)))


@given(
    owners=st.lists(st.integers(0, 4), min_size=1, max_size=len(P)),
    loads=st.lists(st.sampled_from([0.0, 1.0, 5.0, 100.0]), min_size=len(P), max_size=len(P)),
    members=st.integers(1, 5),
)
def test_the_plan_that_was_told_is_never_news(owners, loads, members):
    plan = GroupPlan(
        version=1,
        assignment=Assignment(dict(zip(P, owners, strict=False))),
        loads=dict(zip(P, loads, strict=True)),
    )

    assert not told(plan, *"abcde"[:members]).differs_under(plan)


def test_a_plan_that_moves_something_among_those_there_is_news():
    two = told(plan_of((0, 1, 2), (3, 4, 5)), "a", "b")
    assert two.differs_under(plan_of((0, 1), (2, 3, 4, 5)))
    assert not two.differs_under(plan_of((3, 4, 5), (0, 1, 2)))  # other numbers only


def test_members_learn_of_a_plan_by_its_version():
    two = told(plan_of((0, 1, 2), (3, 4, 5)), "a", "b")
    assert two.misses(plan_of((0, 1), (2, 3, 4, 5)))
    assert not two.misses(plan_of((0, 1), (2, 3, 4, 5), version=2))
    assert not two.misses(plan_of((3, 4, 5), (0, 1, 2)))
