"""The assignor of group mode: the group's leader asks the controller for the assignment.

Promise  Without a usable answer after two attempts the group goes on: members keep what they owned,
         the rest goes to the members with fewest partitions; this is logged and counted. Before the
         first plan partitions are assigned by count. Members learn the version of the plan that
         their assignment follows: `NO_PLAN` if the controller did not answer, the plan's version if
         its answer was wrong, since asking again would give the same answer and another rebalance.
         A static member that led still leads after a restart: the assignment names its instance.
Cost     Eager protocol: a rebalance stops the whole group, for twice the client's timeout at worst.
Paper    Ezzeddine et al., section 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from kafka.protocol.consumer.metadata import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

from trimtab.apply.consumers.assignments import (
    NO_PLAN,
    AssignmentAnswer,
    AssignmentRequest,
    GroupMember,
    Shares,
    checked,
    fallback,
    settled,
)
from trimtab.errors import ApplyError, BadFile, ProtocolViolation
from trimtab.model import wire
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION, dumps
from trimtab.model.json_reader import parse
from trimtab.observe.logging import library_log

log = library_log()

_WIRE_VERSION = 0  # of Kafka's own part: ours is in the user data


@dataclass(frozen=True, slots=True, kw_only=True)
class _MemberData:
    """The user data of a joining member, for the leader."""

    client_id: str
    generation: int
    planned: bool = True
    owned: Mapping[TopicPartition, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LeaderData:
    """The leader's user data: the plan's version, the number of partitions, its instance id."""

    version: Annotated[int, wire.Wire(least=NO_PLAN)]
    partitions: wire.Count = 0
    leader: Annotated[str | None, wire.OMIT_EMPTY] = None


class PlannedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One member's side of the assignment; remembers its partitions and the plan's version.

    `ask` raises `ApplyError` when there is no answer. `generation` is that of the current
    rebalance. All methods are called by the client's own thread.
    """

    name = "trimtab"

    def __init__(
        self,
        group: str,
        client_id: str,
        ask: Callable[[AssignmentRequest], AssignmentAnswer],
        generation: Callable[[], int],
        *,
        instance: str | None = None,
    ) -> None:
        self._group = group
        self._client_id = client_id
        self._instance = instance
        self._ask = ask
        self._generation = generation
        self._led = -1
        self._led_before = False
        self._assigned = 0
        self._joined = -1
        self._owned: tuple[TopicPartition, ...] = ()
        self._known_topics: set[str] = set()
        self._planned = False
        self.version = NO_PLAN
        self.fallbacks = 0
        self.fallbacks_in_a_row = 0

    @property
    def leads(self) -> bool:
        """Whether this member, or an earlier process with its instance id, made the assignment."""
        return self._joined != -1 and (self._led == self._joined or self._led_before)

    def is_outgrown(self, known: Callable[[], int]) -> bool:
        """Whether the number of partitions has changed since the assignment; 0 means unknown.

        The leader's client checks this itself, but not after a restart with the leader's instance.
        """
        if not (self._led_before and self._assigned):
            return False
        return known() not in (0, self._assigned)

    def metadata(self, topics: Iterable[str]) -> Any:
        """The data for the leader: this member's client id, its partitions and their generation."""
        data = _MemberData(
            client_id=self._client_id,
            generation=self._joined,
            planned=self._planned,
            owned=dict.fromkeys(self._owned, True),
        )
        return ConsumerProtocolSubscription(_WIRE_VERSION, sorted(topics), _user_data(data))

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Assigns as the group's leader: the controller's answer, or the fallback."""
        joining = settled([_member(m) for m in members])
        partitions = tuple(sorted(self._partitions(cluster, joining)))
        version, shares = self._decided(joining, partitions)
        self._led = self._generation()
        data = _user_data(
            _LeaderData(version=version, partitions=len(partitions), leader=self._instance)
        )
        return {
            member: ConsumerProtocolAssignment(_WIRE_VERSION, _by_topic(share), data)
            for member, share in shares.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Stores the assignment that this member has received."""
        self._owned = tuple(sorted(TopicPartition(*p) for p in assignment.partitions()))
        self._joined = generation
        data = _leader_data(assignment)
        self.version, self._assigned = data.version, data.partitions
        self._planned = self._planned or self.version != NO_PLAN
        is_ours = self._instance is not None and data.leader == self._instance
        self._led_before = is_ours and self._led != generation

    def _decided(
        self, members: Sequence[GroupMember], partitions: tuple[TopicPartition, ...]
    ) -> tuple[int, Shares]:
        request = AssignmentRequest(
            group=self._group,
            generation=self._generation(),
            members=tuple(members),
            partitions=partitions,
        )
        version = NO_PLAN
        if not partitions:  # the client rejoins as soon as it knows of some
            return version, dict.fromkeys((m.member_id for m in members), ())
        try:
            answer = self._ask(request)
            version = answer.version
            shares: Shares = checked(answer.assignment, members, partitions)
        except ApplyError as error:
            self.fallbacks += 1
            self.fallbacks_in_a_row += 1
            log.warning(
                "assignment_fell_back",
                group=self._group,
                generation=request.generation,
                members=len(members),
                version=version,
                wrong_answer=isinstance(error, ProtocolViolation),
                reason=error.message,
                hint=error.hint,
            )
            return version, fallback(members, partitions)
        self.fallbacks_in_a_row = 0
        log.info(
            "assignment_followed_plan",
            group=self._group,
            generation=request.generation,
            members=len(members),
            version=version,
        )
        return version, shares

    def _partitions(self, cluster: Any, members: Sequence[GroupMember]) -> Iterator[TopicPartition]:
        """All partitions of all topics subscribed to.

        A leader that has just started may not have metadata of a topic yet: until then, the
        partitions that members own of it count. A topic that it no longer knows was deleted.
        """
        for topic in {topic for m in members for topic in m.topics or ()}:
            numbers = cluster.partitions_for_topic(topic)
            if numbers:
                self._known_topics.add(topic)
                yield from (TopicPartition(topic, n) for n in numbers)
            elif topic not in self._known_topics:
                yield from (p for m in members for p in m.owned if p.topic == topic)


def request_rejoin(consumer: Any) -> None:
    """Makes the leader rejoin at its next poll, and the whole group with it.

    kafka-python has no public method for it; only this function uses the private one.
    """
    consumer._coordinator.request_rejoin()


def _member(joining: Any) -> GroupMember:
    """A member as its data describe it; if they cannot be read, it owned nothing."""
    topics = frozenset(joining.metadata.topics)
    try:
        node = parse(bytes(joining.metadata.user_data or b""), origin="user_data")
        node.version()
        data = wire.read(_MemberData, node)
        return GroupMember(
            member_id=joining.member_id,
            client_id=data.client_id,
            generation=data.generation,
            owned=tuple(data.owned),
            topics=topics,
            planned=data.planned,
        )
    except BadFile:
        return GroupMember(member_id=joining.member_id, client_id=joining.member_id, topics=topics)


def _leader_data(assignment: Any) -> _LeaderData:
    """The leader's data with an assignment; if they cannot be read, it followed no plan."""
    try:
        node = parse(bytes(assignment.user_data or b""), origin="user_data")
        return wire.read(_LeaderData, node)
    except BadFile:
        return _LeaderData(version=NO_PLAN)


def _user_data(value: _MemberData | _LeaderData) -> bytes:
    return dumps({"v": VERSION, **wire.write(value)}).encode()


def _by_topic(share: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in share:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())
