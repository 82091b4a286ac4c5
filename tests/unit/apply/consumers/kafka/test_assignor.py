"""The assignor by itself: what members tell one another, and what a leader makes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import pytest

from trimtab.apply.consumers.assignments import NO_PLAN, AssignmentAnswer, AssignmentRequest
from trimtab.apply.consumers.kafka.assignor import PlannedAssignor
from trimtab.errors import ApplyError
from trimtab.model.cluster import TopicPartition

P = [TopicPartition("t", n) for n in range(4)]


class Metadata:
    """What a client knows of topics."""

    def __init__(self, **topics: int) -> None:
        self.topics = topics

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.topics[topic])) if topic in self.topics else None


class Controller:
    """Gives everything to one member; `shares` may say otherwise, `away` is no answer."""

    def __init__(self) -> None:
        self.asked: list[AssignmentRequest] = []
        self.shares: Callable[[AssignmentRequest], Mapping[str, tuple[TopicPartition, ...]]] = (
            lambda request: {request.members[0].member_id: request.partitions}
        )
        self.away = False

    def __call__(self, request: AssignmentRequest) -> AssignmentAnswer:
        self.asked.append(request)
        if self.away:
            raise ApplyError("nobody is there")
        return AssignmentAnswer(8, self.shares(request))


class Group:
    """Members that share one controller and pass through rebalances together."""

    def __init__(self, *client_ids: str, topics: Sequence[str] = ("t",)) -> None:
        self.generation = 0
        self.controller = Controller()
        self.topics = dict.fromkeys(client_ids, topics)
        self.members = {
            c: PlannedAssignor("g", c, self.controller, lambda: self.generation) for c in client_ids
        }

    def rebalance(self, metadata: Metadata, *, leader: str, among: Sequence[str] = ()) -> None:
        self.generation += 1
        there = among or tuple(self.members)
        joining = [
            SimpleNamespace(member_id=f"id-{c}", metadata=self.members[c].metadata(self.topics[c]))
            for c in there
        ]
        given = self.members[leader].assign(metadata, joining)
        for c in there:
            self.members[c].on_assignment(given[f"id-{c}"], self.generation)

    def owned(self, client_id: str) -> tuple[TopicPartition, ...]:
        return self.members[client_id]._owned


def test_the_leader_asks_with_what_everybody_owned_and_all_learn_the_version() -> None:
    group = Group("a", "b")
    group.rebalance(Metadata(t=4), leader="a")

    group.rebalance(Metadata(t=4), leader="b")

    request = group.controller.asked[1]
    assert (request.group, request.generation, request.partitions) == ("g", 2, tuple(P))
    assert {m.client_id: m.owned for m in request.members} == {"a": tuple(P), "b": ()}
    assert {m.version for m in group.members.values()} == {8}
    assert [m.leads for m in group.members.values()] == [False, True]


def test_without_an_answer_everybody_keeps_what_it_had_and_any_plan_is_newer() -> None:
    group = Group("a", "b")
    group.rebalance(Metadata(t=3), leader="a")
    group.controller.away = True

    group.rebalance(Metadata(t=4), leader="a")

    assert (group.owned("a"), group.owned("b")) == (tuple(P[:3]), (P[3],))
    assert {m.version for m in group.members.values()} == {NO_PLAN}
    assert [m.fallbacks for m in group.members.values()] == [1, 0]


def test_before_the_first_plan_members_share_the_work_and_after_it_they_keep_theirs() -> None:
    group = Group("a", "b")
    group.controller.away = True
    group.rebalance(Metadata(t=4), leader="a", among=["a"])
    group.rebalance(Metadata(t=4), leader="a")
    assert [len(group.owned(c)) for c in "ab"] == [2, 2]

    group.controller.away = False
    group.rebalance(Metadata(t=4), leader="a")
    group.controller.away = True
    for _ in range(2):
        group.rebalance(Metadata(t=4), leader="a")
        assert [len(group.owned(c)) for c in "ab"] == [4, 0]  # as the plan had it


def test_after_a_wrong_answer_only_a_newer_plan_is_worth_a_rebalance() -> None:
    group = Group("a", "b")
    group.controller.shares = lambda _: {}

    group.rebalance(Metadata(t=4), leader="a")

    assert sorted(group.owned("a") + group.owned("b")) == P
    assert {m.version for m in group.members.values()} == {8}
    assert group.members["a"].fallbacks_in_a_row == 1


def test_an_answer_ends_a_row_of_fallbacks() -> None:
    group = Group("a")
    group.controller.away = True
    group.rebalance(Metadata(t=4), leader="a")
    group.controller.away = False

    group.rebalance(Metadata(t=4), leader="a")

    assert (group.members["a"].fallbacks, group.members["a"].fallbacks_in_a_row) == (1, 0)


def test_who_missed_a_generation_has_no_claim_on_what_it_once_had() -> None:
    group = Group("a", "b")
    group.rebalance(Metadata(t=4), leader="a")
    group.rebalance(Metadata(t=4), leader="b", among=["b"])

    group.rebalance(Metadata(t=4), leader="b")

    owned = {m.client_id: m.owned for m in group.controller.asked[2].members}
    assert owned == {"a": (), "b": tuple(P)}


def test_a_static_leader_that_comes_back_without_a_rebalance_still_leads() -> None:
    #  pod-a  leads ──▶ ends ──▶ new process: the broker gives it the old assignment
    #  pod-b  follows ─────────▶ new process: likewise, and it does not lead
    pods: dict[str, PlannedAssignor] = {}

    def process(pod: str) -> PlannedAssignor:
        pods[pod] = PlannedAssignor("g", pod, Controller(), lambda: 5, instance=pod)
        return pods[pod]

    joining = [
        SimpleNamespace(member_id=f"id-{pod}", metadata=process(pod).metadata(["t"]))
        for pod in ("pod-a", "pod-b")
    ]
    given = pods["pod-a"].assign(Metadata(t=4), joining)
    for pod, member in pods.items():
        member.on_assignment(given[f"id-{pod}"], 5)
    before = [member.leads for member in pods.values()]

    for pod in ("pod-a", "pod-b"):
        process(pod).on_assignment(given[f"id-{pod}"], 5)

    assert before == [member.leads for member in pods.values()] == [True, False]
    known = {n: [m.is_outgrown(partial(int, n)) for m in pods.values()] for n in (0, 4, 5)}
    assert known == {0: [False, False], 4: [False, False], 5: [True, False]}


def test_a_leader_s_own_client_sees_that_a_topic_has_grown() -> None:
    group = Group("a", "b")
    group.rebalance(Metadata(t=4), leader="a")

    assert not any(m.is_outgrown(lambda: 5) for m in group.members.values())


def test_a_leader_that_has_not_heard_of_the_topic_yet_takes_it_from_nobody() -> None:
    group = Group("a", "b")
    group.rebalance(Metadata(t=4), leader="a")

    group.rebalance(Metadata(), leader="b")

    assert group.controller.asked[1].partitions == tuple(P)
    assert group.owned("a") == tuple(P)


def test_a_deleted_topic_is_taken_from_everybody_without_a_question() -> None:
    group = Group("a")
    group.rebalance(Metadata(t=4), leader="a")

    group.rebalance(Metadata(), leader="a")

    assert group.owned("a") == ()
    assert len(group.controller.asked) == 1


def test_members_of_different_topics_get_only_what_they_have_subscribed_to() -> None:
    group = Group("a", "b")
    group.topics["b"] = ("u",)

    group.rebalance(Metadata(t=2, u=2), leader="a")

    assert group.owned("a") == tuple(P[:2])
    assert group.owned("b") == (TopicPartition("u", 0), TopicPartition("u", 1))
    assert group.members["a"].fallbacks == 1


@pytest.mark.parametrize("said", [b"", b"{", b'{"v":1}', b"\xff"])
def test_a_member_whose_words_cannot_be_read_owned_nothing(said) -> None:
    group = Group("a")
    stranger = SimpleNamespace(
        member_id="id-z", metadata=SimpleNamespace(topics=["t"], user_data=said)
    )

    group.members["a"].assign(Metadata(t=1), [stranger])

    asked = group.controller.asked[0].members
    assert [(m.client_id, m.owned) for m in asked] == [("id-z", ())]
