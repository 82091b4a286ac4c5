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

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

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
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION, Json, by_partition, dumps, read_by_partition
from trimtab.model.json_reader import parse
from trimtab.observe.logging import library_log

log = library_log()

_WIRE_VERSION = 0  # of Kafka's own part: ours is in the user data


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
        data = {
            "v": VERSION,
            "client_id": self._client_id,
            "generation": self._joined,
            "planned": self._planned,
            "owned": by_partition(dict.fromkeys(self._owned, True)),
        }
        return ConsumerProtocolSubscription(_WIRE_VERSION, sorted(topics), dumps(data).encode())

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """Assigns as the group's leader: the controller's answer, or the fallback."""
        joining = settled([_member(m) for m in members])
        partitions = tuple(sorted(self._partitions(cluster, joining)))
        version, shares = self._decided(joining, partitions)
        self._led = self._generation()
        content: Json = {"v": VERSION, "version": version, "partitions": len(partitions)}
        if self._instance is not None:
            content["leader"] = self._instance
        data = dumps(content).encode()
        return {
            member: ConsumerProtocolAssignment(_WIRE_VERSION, _by_topic(share), data)
            for member, share in shares.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Stores the assignment that this member has received."""
        self._owned = tuple(sorted(TopicPartition(*p) for p in assignment.partitions()))
        self._joined = generation
        self.version, leader, self._assigned = _leader_data(assignment)
        self._planned = self._planned or self.version != NO_PLAN
        is_ours = self._instance is not None and leader == self._instance
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
        data = parse(bytes(joining.metadata.user_data or b""), origin="user_data")
        data.version()
        planned = data.get("planned")
        return GroupMember(
            member_id=joining.member_id,
            client_id=data.need("client_id").text(),
            generation=data.need("generation").integer(),
            owned=tuple(read_by_partition(data.get("owned"), lambda n: n.flag())),
            topics=topics,
            planned=planned is None or planned.flag(),
        )
    except BadFile:
        return GroupMember(member_id=joining.member_id, client_id=joining.member_id, topics=topics)


def _leader_data(assignment: Any) -> tuple[int, str | None, int]:
    """The leader's data with an assignment: plan version, instance id, number of partitions."""
    try:
        data = parse(bytes(assignment.user_data or b""), origin="user_data")
        version = data.need("version").integer(least=NO_PLAN)
        leader, count = data.get("leader"), data.get("partitions")
        return (
            version,
            None if leader is None else leader.text(),
            0 if count is None else count.integer(least=0),
        )
    except BadFile:
        return NO_PLAN, None, 0


def _by_topic(share: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for topic, number in share:
        topics.setdefault(topic, []).append(number)
    return list(topics.items())
