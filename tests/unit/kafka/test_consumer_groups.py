"""What coordinators answer about groups, and what becomes of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import kafka.errors as theirs
import pytest
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import FindCoordinatorResponse

from trimtab.kafka import consumer_groups
from trimtab.kafka.messages import ConsumerGroupDescribeResponse
from trimtab.model.cluster import BrokerId, TopicPartition

BROKER = BrokerId(1)
Described = DescribeGroupsResponse.DescribedGroup
New = ConsumerGroupDescribeResponse.DescribedGroup


class Brokers:
    """One broker that coordinates every group, with prepared answers by name of the request."""

    patience_s = 0.3

    def __init__(self, *, not_ready: int = 0, **answers: Any) -> None:
        self._answers = answers
        self._not_ready = not_ready
        self.asked: list[str] = []

    def ask_any(self, request: Callable[[], Any]) -> Any:
        self._not_ready -= 1
        code = 0 if self._not_ready < 0 else theirs.CoordinatorNotAvailableError.errno
        row = FindCoordinatorResponse.Coordinator
        return FindCoordinatorResponse(
            coordinators=[
                row(key=key, node_id=BROKER, error_code=code) for key in request().coordinator_keys
            ]
        )

    def ask_each(
        self, requests: Mapping[BrokerId, Callable[[], Any]], what: str
    ) -> dict[BrokerId, Any]:
        found = {}
        for broker, request in requests.items():
            name = type(request()).__name__.removesuffix("Request")
            self.asked.append(name)
            answer = self._answers[name]
            if isinstance(answer, Exception):
                raise answer
            found[broker] = answer
        return found


def described(brokers: Any, *names: str) -> dict[str, Any]:
    return {group.name: group for group in consumer_groups.described(brokers, names)}


def classic(*groups: Any) -> Any:
    return DescribeGroupsResponse(groups=list(groups))


def new(code: int, *names: str) -> Any:
    return ConsumerGroupDescribeResponse(
        groups=[New(error_code=code, group_id=name) for name in names]
    )


def member(assignment: bytes) -> Any:
    return Described.DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_assignment=assignment
    )


def a_group(**fields: Any) -> Any:
    values = {"group_id": "g", "group_state": "Stable", "protocol_type": "consumer", "members": []}
    return Described(**{**values, **fields})


TWO_OF_T = ConsumerProtocolAssignment(
    version=0, assigned_partitions=[("t", [0, 3])], user_data=None
).encode()
NOT_FOUND = theirs.GroupIdNotFoundError.errno
PLAIN_STABLE = classic(a_group(members=[member(TWO_OF_T)]))


@pytest.mark.parametrize(
    "answer",
    [
        new(NOT_FOUND, "g"),
        new(theirs.UnsupportedVersionError.errno, "g"),  # Kafka 3.7 with its old coordinator
        theirs.IncompatibleBrokerVersion("before Kafka 3.7"),
    ],
)
def test_groups_of_the_classic_protocol_are_found_on_any_broker(answer: Any) -> None:
    brokers = Brokers(ConsumerGroupDescribe=answer, DescribeGroups=PLAIN_STABLE)

    (only,) = described(brokers, "g")["g"].members

    assert (only.member_id, only.client_id, only.host) == ("m", "c", "/h")
    assert only.partitions == {TopicPartition("t", 0), TopicPartition("t", 3)}
    assert brokers.asked == ["ConsumerGroupDescribe", "DescribeGroups"]


@pytest.mark.parametrize(
    "answer",
    [
        classic(a_group(error_code=NOT_FOUND, group_state="")),
        classic(a_group(group_state="Dead")),  # so say brokers before Kafka 4.0
    ],
)
def test_a_group_that_does_not_exist_is_left_out(answer: Any) -> None:
    brokers = Brokers(ConsumerGroupDescribe=new(NOT_FOUND, "g"), DescribeGroups=answer)

    assert described(brokers, "g") == {}


@pytest.mark.parametrize(
    ("theirs_", "ours"),
    [
        ("PreparingRebalance", "PREPARING_REBALANCING"),
        ("CompletingRebalance", "COMPLETING_REBALANCING"),
        ("Empty", "EMPTY"),
    ],
)
def test_states_have_the_names_they_always_had(theirs_: str, ours: str) -> None:
    answer = classic(a_group(group_state=theirs_))
    brokers = Brokers(ConsumerGroupDescribe=new(NOT_FOUND, "g"), DescribeGroups=answer)

    assert described(brokers, "g")["g"].state == ours


@pytest.mark.parametrize(
    "odd",
    [
        a_group(members=[member(b"\x00")]),
        a_group(members=[member(b"\x00\x01\x7f\xff\xff\xff")]),
        a_group(protocol_type="connect", members=[member(TWO_OF_T)]),
    ],
)
def test_an_assignment_that_is_not_a_consumers_has_no_partitions(odd: Any) -> None:
    brokers = Brokers(ConsumerGroupDescribe=new(NOT_FOUND, "g"), DescribeGroups=classic(odd))

    assert described(brokers, "g")["g"].members[0].partitions == frozenset()


def test_a_coordinator_that_is_not_ready_is_asked_again() -> None:
    absent = classic(a_group(error_code=NOT_FOUND))
    brokers = Brokers(not_ready=1, ConsumerGroupDescribe=new(NOT_FOUND, "g"), DescribeGroups=absent)

    assert described(brokers, "g") == {}
    assert brokers.asked == ["ConsumerGroupDescribe", "DescribeGroups"]


def test_a_coordinator_that_never_answers_is_named_by_its_group() -> None:
    with pytest.raises(theirs.KafkaTimeoutError, match=r"the coordinator of g did not answer"):
        described(Brokers(not_ready=1000), "g")


def test_being_refused_is_an_error() -> None:
    code = theirs.GroupAuthorizationFailedError.errno

    with pytest.raises(theirs.GroupAuthorizationFailedError):
        described(Brokers(ConsumerGroupDescribe=new(code, "g")), "g")


def test_nothing_is_asked_for_no_groups() -> None:
    brokers = Brokers()

    assert described(brokers) == {}
    assert brokers.asked == []
