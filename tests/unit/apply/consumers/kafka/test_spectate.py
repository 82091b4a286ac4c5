"""Which consumers a dry run takes as the readers of a group."""

from __future__ import annotations

import pytest

from trimtab.apply.consumers.kafka import directed_controller as controller
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.kafka.cluster import Cluster
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.model.control import GroupState
from trimtab.testing.fakes import FakeAdmin

ONE = (BrokerId(1),)
P = [TopicPartition("orders", n) for n in range(2)]
POST = GroupConfig(group="pay", topics=("orders",), cluster=Cluster("127.0.0.1:1"))
LEFT = GroupState(epoch=7, clean=True, assignment=Assignment({P[0]: 4, P[1]: 5}))


def cluster(*members: Member) -> FakeAdmin:
    state = "STABLE" if members else "EMPTY"
    return FakeAdmin(
        partitions=[
            Replicas(topic="orders", partition=n, leader=ONE[0], replicas=ONE, isr=ONE)
            for n in range(2)
        ],
        groups=[Group(name="pay", state=state, members=members)],
    )


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller has directed the group once."""
    monkeypatch.setattr(controller, "persisted_state", lambda *_, **__: LEFT)


def test_of_a_group_without_members_it_is_what_a_controller_left(left: None) -> None:
    assert controller._current(POST, cluster()) == (frozenset(P), LEFT.assignment)


def test_members_that_subscribe_now_count_and_not_what_was_once_directed(left: None) -> None:
    member = Member(member_id="m", client_id="c", host="h", partitions=frozenset(P))

    found = controller._current(POST, cluster(member))

    assert found == (frozenset(P), Assignment(dict.fromkeys(P, 0)))
