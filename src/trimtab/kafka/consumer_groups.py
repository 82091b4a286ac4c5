"""Reads the names, members and committed offsets of consumer groups from their coordinators.

Why      librdkafka's admin requests to a coordinator abort the whole process when the connection
         to it fails (decision 0041), so all of them go through kafka-python's connections.
Promise  Groups of both protocols, classic and consumer (KIP-848), give the same values. If a
         coordinator is not ready, has moved or is dead, it is looked up and asked again for at
         most `patience_s`. Missing authorization is an error.
Cost     One lookup for all groups; then per coordinator one request for committed offsets, and
         one or two for members (the second for groups that do not use the consumer protocol).
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Any, TypeVar

import kafka.errors as theirs
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.protocol.metadata import FindCoordinatorRequest

from trimtab.kafka.errors import is_retriable
from trimtab.kafka.messages import ConsumerGroupDescribeRequest
from trimtab.kafka.requests import Connections, error_of
from trimtab.kafka.retry import attempts
from trimtab.model.cluster import BrokerId, Group, Member, TopicPartition
from trimtab.observe.logging import library_log

log = library_log()

T = TypeVar("T")
Coordinated = Mapping[BrokerId, Collection[str]]
"""The groups that each broker coordinates."""

_CONSUMER = "consumer"
_STATES = {
    "PreparingRebalance": "PREPARING_REBALANCING",
    "CompletingRebalance": "COMPLETING_REBALANCING",
}
"""Names of states that differ from Kafka's by more than upper case."""


def names(brokers: Connections, live: Collection[BrokerId]) -> tuple[str, ...]:
    """Names of all consumer groups, sorted, without those of brokers that do not answer."""
    found = set()
    answers = brokers.ask_each(dict.fromkeys(sorted(live), ListGroupsRequest), "list groups")
    for answer in answers.values():
        error = error_of(answer.error_code)
        if error is not None and not is_retriable(error):
            raise error
        # A group that only commits offsets has no protocol type.
        found |= {g.group_id for g in answer.groups if g.protocol_type in {_CONSUMER, ""}}
    return tuple(sorted(found))


def described(brokers: Connections, groups: Collection[str]) -> tuple[Group, ...]:
    """State and members of groups, sorted by name; groups that do not exist are left out.

    Raises:
        kafka.errors.KafkaTimeoutError: A coordinator did not answer.
    """
    found, unanswered = _ask_coordinators(brokers, groups, partial(_describe, brokers))
    if unanswered:
        raise theirs.KafkaTimeoutError(
            f"the coordinator of {', '.join(sorted(unanswered))} did not answer within "
            f"{brokers.patience_s:g} s"
        )
    return tuple(group for _, group in sorted(found.items()) if group is not None)


def committed(
    brokers: Connections, groups: Collection[str]
) -> dict[str, dict[TopicPartition, int]]:
    """Committed offsets of groups; a group whose coordinator did not answer is left out."""
    found, unanswered = _ask_coordinators(brokers, groups, partial(_fetch_offsets, brokers))
    for name in sorted(unanswered):
        log.warning("coordinator_did_not_answer", group=name)
    return found


def _ask_coordinators(
    brokers: Connections, groups: Collection[str], ask: Callable[[Coordinated], dict[str, T]]
) -> tuple[dict[str, T], set[str]]:
    """Asks until all groups are answered or time is up; returns answers and unanswered groups."""
    found: dict[str, T] = {}
    pending = set(groups)
    # Repeated: a new cluster has no coordinators yet, and they move when a broker fails.
    for _ in attempts(within_s=brokers.patience_s):
        found |= ask(_coordinators(brokers, pending)) if pending else {}
        pending -= found.keys()
        if not pending:
            break
    return found, pending


def _coordinators(brokers: Connections, groups: Collection[str]) -> Coordinated:
    led: defaultdict[BrokerId, list[str]] = defaultdict(list)
    keys = sorted(groups)
    answer = brokers.ask_any(
        lambda: FindCoordinatorRequest(key_type=0, coordinator_keys=keys, min_version=4)
    )
    for coordinator in answer.coordinators:
        if _is_answered(coordinator.error_code):
            led[BrokerId(coordinator.node_id)].append(coordinator.key)
    return led


def _describe(brokers: Connections, coordinated: Coordinated) -> dict[str, Group | None]:
    """Groups as their coordinators describe them; None for groups that do not exist."""
    found: dict[str, Group | None] = {}
    others: defaultdict[BrokerId, list[str]] = defaultdict(list)
    try:
        for broker, group in _described_as(brokers, coordinated, _consumer_request):
            if isinstance(error_of(group.error_code), _NOT_CONSUMER_PROTOCOL):
                others[broker].append(group.group_id)
            elif _is_answered(group.error_code):
                found[group.group_id] = _group(group, _consumer_partitions)
    except theirs.IncompatibleBrokerVersion:  # before Kafka 3.7 all groups are classic
        others.update((broker, list(groups)) for broker, groups in coordinated.items())
    for _, group in _described_as(brokers, others, _classic_request):
        if isinstance(error_of(group.error_code), theirs.GroupIdNotFoundError):
            found[group.group_id] = None
        elif _is_answered(group.error_code):
            partitions = partial(_classic_partitions, protocol=group.protocol_type)
            found[group.group_id] = _group(group, partitions)
    return found


_NOT_CONSUMER_PROTOCOL = (theirs.GroupIdNotFoundError, theirs.UnsupportedVersionError)
"""Errors of a coordinator for groups that do not use the consumer protocol."""


def _described_as(
    brokers: Connections, coordinated: Coordinated, request: Callable[[Collection[str]], Any]
) -> Iterator[tuple[BrokerId, Any]]:
    requests = {broker: partial(request, groups) for broker, groups in coordinated.items()}
    for broker, answer in brokers.ask_each(requests, "describe groups").items():
        for group in answer.groups:
            yield broker, group


def _consumer_request(groups: Collection[str]) -> Any:
    return ConsumerGroupDescribeRequest(
        group_ids=sorted(groups), include_authorized_operations=False
    )


def _classic_request(groups: Collection[str]) -> Any:
    return DescribeGroupsRequest(groups=sorted(groups), include_authorized_operations=False)


def _group(found: Any, partitions: Callable[[Any], frozenset[TopicPartition]]) -> Group | None:
    """A group as its coordinator describes it; None if it does not exist."""
    state = _STATES.get(found.group_state, found.group_state.upper())
    if state == "DEAD":  # older brokers report a group that does not exist so
        return None
    members = (
        Member(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=partitions(member),
            instance=_instance(member),
        )
        for member in found.members
    )
    return Group(
        name=found.group_id,
        state=state,
        members=tuple(sorted(members, key=lambda member: member.member_id)),
    )


def _instance(member: Any) -> str | None:
    """The instance id of a static member; the two protocols name it differently."""
    named = getattr(member, "group_instance_id", None) or getattr(member, "instance_id", None)
    return str(named) if named else None


def _consumer_partitions(member: Any) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(topic.topic_name, number)
        for topic in member.assignment.topic_partitions
        for number in topic.partitions
    )


def _classic_partitions(member: Any, *, protocol: str) -> frozenset[TopicPartition]:
    """The partitions the group leader assigned to a member; none for other protocol types."""
    if not member.member_assignment or protocol != _CONSUMER:
        return frozenset()
    try:
        given = ConsumerProtocolAssignment.decode(member.member_assignment)
    except (struct.error, ValueError):
        log.warning("assignment_not_readable", member=member.member_id)
        return frozenset()
    return frozenset(
        TopicPartition(topic.topic, number)
        for topic in given.assigned_partitions
        for number in topic.partitions
    )


def _fetch_offsets(
    brokers: Connections, coordinated: Coordinated
) -> dict[str, dict[TopicPartition, int]]:
    found: dict[str, dict[TopicPartition, int]] = {}
    requests = {broker: partial(_offsets_request, g) for broker, g in coordinated.items()}
    for answer in brokers.ask_each(requests, "read committed offsets").values():
        for group in answer.groups:
            if isinstance(error_of(group.error_code), theirs.GroupIdNotFoundError):
                found[group.group_id] = {}
            elif _is_answered(group.error_code):
                found[group.group_id] = {
                    TopicPartition(topic.name, p.partition_index): p.committed_offset
                    for topic in group.topics
                    for p in topic.partitions
                    if p.error_code == 0 and p.committed_offset >= 0
                }
    return found


def _offsets_request(groups: Collection[str]) -> Any:
    group = OffsetFetchRequest.OffsetFetchRequestGroup
    return OffsetFetchRequest(
        groups=[group(group_id=name, topics=None) for name in sorted(groups)],
        min_version=8,
        max_version=8,  # later versions use topic ids
    )


def _is_answered(code: int) -> bool:
    """Whether a coordinator answered; False for a retriable error, other errors are raised."""
    error = error_of(code)
    if error is not None and not is_retriable(error):
        raise error
    return error is None
