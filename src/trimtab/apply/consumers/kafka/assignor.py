"""The assignor of group mode: the group's leader asks the controller who reads what.

Why      Kafka's own assignors deal partitions out by count. Here the plan decides, and the group
         protocol still fences whoever has lost its partitions.
Promise  An answer that cannot be used, or none within two tries, never stops the group: everybody
         keeps what it owned, the rest goes to whoever has fewest, and that is logged and counted.
         Before the first plan partitions are dealt out by count.
         Every member learns the version of the plan that its assignment follows: `NO_PLAN` when
         the controller was away, and that of the plan when its answer was wrong, since asking
         again would only bring the same answer and another stop of the whole group.
         A static member that led, ended and came back without a rebalance still leads: brokers do
         not tell it so, but the assignment names the instance that made it.
Cost     Eager protocol: the whole group stops during a rebalance, for twice the line's timeout at
         worst.
Paper    Ezzeddine et al., section 3.3.

What members tell one another goes in Kafka's `user_data`, as JSON.
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
from trimtab.model.reading import parse
from trimtab.observe.logging import library_log

log = library_log()

_WIRE_VERSION = 0  # of Kafka's own part: ours is in the user data


class PlannedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]
    """One member's part in the assignment; it remembers what it owns and by which plan.

    `ask` raises `ApplyError` when there is no answer. `generation` is that of the rebalance under
    way. All methods are called by the client's own thread.
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
        self._heard_of: set[str] = set()
        self._planned = False
        self.version = NO_PLAN
        self.fallbacks = 0
        self.fallbacks_in_a_row = 0

    @property
    def leads(self) -> bool:
        """Whether this member, or the process in its place before, made the assignment."""
        return self._joined != -1 and (self._led == self._joined or self._led_before)

    def is_outgrown(self, known: Callable[[], int]) -> bool:
        """Whether there are more partitions now, or fewer, than were assigned; 0 is not known.

        A leader's client sees to that by itself; one that came back in a leader's place does not.
        """
        if not (self._led_before and self._assigned):
            return False
        return known() not in (0, self._assigned)

    def metadata(self, topics: Iterable[str]) -> Any:
        """What this member tells the leader: who it is and what it owned, since when."""
        told = {
            "v": VERSION,
            "client_id": self._client_id,
            "generation": self._joined,
            "planned": self._planned,
            "owned": by_partition(dict.fromkeys(self._owned, True)),
        }
        return ConsumerProtocolSubscription(_WIRE_VERSION, sorted(topics), dumps(told).encode())

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, Any]:
        """The leader's work: the controller's answer, or the fallback."""
        joining = settled([_member(m) for m in members])
        partitions = tuple(sorted(self._partitions(cluster, joining)))
        version, shares = self._decided(joining, partitions)
        self._led = self._generation()
        told: Json = {"v": VERSION, "version": version, "partitions": len(partitions)}
        if self._instance is not None:
            told["leader"] = self._instance
        data = dumps(told).encode()
        return {
            member: ConsumerProtocolAssignment(_WIRE_VERSION, _by_topic(share), data)
            for member, share in shares.items()
        }

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """What this member is to read from now on."""
        self._owned = tuple(sorted(TopicPartition(*p) for p in assignment.partitions()))
        self._joined = generation
        self.version, leader, self._assigned = _told(assignment)
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
        if not partitions:  # the client joins anew as soon as it knows of some
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

        A leader that has just started may not have heard of a topic yet: until it has, there is
        what members own of it. A topic that it knew and knows no more was deleted.
        """
        for topic in {topic for m in members for topic in m.topics or ()}:
            numbers = cluster.partitions_for_topic(topic)
            if numbers:
                self._heard_of.add(topic)
                yield from (TopicPartition(topic, n) for n in numbers)
            elif topic not in self._heard_of:
                yield from (p for m in members for p in m.owned if p.topic == topic)


def request_rejoin(consumer: Any) -> None:
    """Makes the leader join anew at its next poll, and the whole group with it.

    kafka-python has no public word for it; this is the only place that knows the private one.
    """
    consumer._coordinator.request_rejoin()


def _member(joining: Any) -> GroupMember:
    """A member as it describes itself; one whose words cannot be read owned nothing."""
    topics = frozenset(joining.metadata.topics)
    try:
        told = parse(bytes(joining.metadata.user_data or b""), origin="user_data")
        told.version()
        planned = told.get("planned")
        return GroupMember(
            member_id=joining.member_id,
            client_id=told.need("client_id").text(),
            generation=told.need("generation").integer(),
            owned=tuple(read_by_partition(told.get("owned"), lambda n: n.flag())),
            topics=topics,
            planned=planned is None or planned.flag(),
        )
    except BadFile:
        return GroupMember(member_id=joining.member_id, client_id=joining.member_id, topics=topics)


def _told(assignment: Any) -> tuple[int, str | None, int]:
    """What the leader wrote beside an assignment: plan, its instance, how many partitions."""
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
