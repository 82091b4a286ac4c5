"""A reader that is a member of a subscribed group, whose leader asks the controller.

Promise  Only the caller commits, for partitions it owns in the current generation. Before a
         rebalance revokes partitions, `on_revoked` is called, and none of their records is returned
         any more. The protocol is eager: every rebalance revokes all partitions; assigned ones are
         read from their committed offset. A read during a rebalance waits up to 2 s for its end.
         The leader asks for a newer plan about once a second, less often after failures.
         `on_revoked` is called within `read`, `stay_active`, `commit` or `close`; it must be quick,
         drop the records of these partitions, and not commit.
Cost     About 35 000 records per second (kafka-python); the group stops during a rebalance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing
from typing import Any

import kafka.errors as theirs
from kafka import ConsumerRebalanceListener, KafkaAdminClient, KafkaConsumer
from kafka.admin import MemberToRemove
from kafka.structs import MemberState, OffsetAndMetadata
from kafka.structs import TopicPartition as TheirPartition

from trimtab.apply.consumers.assignments import AssignmentAnswer, AssignmentRequest
from trimtab.apply.consumers.kafka.assignor import PlannedAssignor, request_rejoin
from trimtab.apply.consumers.kafka.fetching import patch_fetcher
from trimtab.apply.consumers.kafka.membership import records_deleted
from trimtab.apply.consumers.sockets.assignment_service import ControllerClient
from trimtab.errors import ApplyError, ConfigError, TokenRefused
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.model.timeouts import Timeouts, milliseconds
from trimtab.observe.logging import library_log

log = library_log()

OnRevoked = Callable[[frozenset[TopicPartition]], None]
OnAssigned = Callable[[frozenset[TopicPartition]], None]

_ASK_EVERY_S = 1.0
_ASK_AT_LEAST_EVERY_S = 30.0
_STAY_ACTIVE_S = 0.02
_REBALANCE_S = 2.0
_JOIN_S = 0.5  # a join that completes between two polls is lost and repeated: so polls are long
_NO_LONGER_OURS = (
    theirs.CommitFailedError,
    theirs.IllegalGenerationError,
    theirs.RebalanceInProgressError,
    theirs.UnknownMemberIdError,
)


def open_group_reader(  # noqa: PLR0913 - a member is all of this
    group: str,
    topics: Collection[str],
    cluster: Cluster,
    *,
    line: ControllerClient,
    client_id: str,
    on_revoked: OnRevoked,
    on_assigned: OnAssigned = lambda _partitions: None,
    instance: str | None = None,
    session_s: float = 10.0,
    skip_lost: bool = True,
) -> GroupReader:
    """A reader that joins the group at its first read.

    Brokers remove a member that is silent for `session_s`. The leader may wait for the controller
    during that time, so `session_s` must be longer. With `instance` it is a static member: one that
    restarts within `session_s` keeps its partitions, without a rebalance. `on_assigned` is called
    with new partitions before their committed offsets are fetched. Unless `skip_lost`, a committed
    offset whose record was deleted is an error.
    """
    if session_s <= line.longest_s:
        raise ConfigError(
            f"A session of {session_s:g} s is too short: the group's leader may wait "
            f"{line.longest_s:g} s for the controller.",
            hint=f"Use at least {line.longest_s + 1:g} s.",
        )
    return GroupReader(
        group,
        topics,
        line,
        on_revoked,
        on_assigned,
        client_id=client_id,
        timeouts=cluster.timeouts,
        config={
            **cluster.for_kafka_python(),
            "session_timeout_ms": round(session_s * 1000),
            **({} if instance is None else {"group_instance_id": instance}),
            **({} if skip_lost else {"auto_offset_reset": "none"}),
        },
    )


class GroupReader:
    """A member of a group that implements `trimtab.apply.consumers.interfaces.Reader`.

    `blocked_s` is how long the last rebalance kept it from reading. `member_id` is empty before the
    first assignment; it may be read from any thread.
    """

    def __init__(
        self,
        group: str,
        topics: Collection[str],
        line: ControllerClient,
        on_revoked: OnRevoked,
        on_assigned: OnAssigned = lambda _partitions: None,
        *,
        client_id: str,
        timeouts: Timeouts,
        config: Mapping[str, Any],
    ) -> None:
        self._group = group
        self._attempt_ms = milliseconds(timeouts.attempt_s)
        self._close_ms = milliseconds(timeouts.close_s)
        self._topics = tuple(sorted(topics))
        self._config = dict(config)
        self._line = line
        self._on_revoked = on_revoked
        self._on_assigned = on_assigned
        self._held: frozenset[TopicPartition] = frozenset()
        self._owned: frozenset[TopicPartition] = frozenset()
        self._without_position: frozenset[TopicPartition] = frozenset()
        self._handed_out: frozenset[TopicPartition] = frozenset()
        self._paused = False
        self._stopped_at: float | None = None
        self._failures = 0
        self._ask_at = 0.0
        self._instance: str | None = config.get("group_instance_id")
        self._fenced = False
        self.blocked_s = 0.0
        self.member_id = ""
        self._assignor = PlannedAssignor(
            group,
            client_id,
            self._ask,
            lambda: int(self._consumer.group_metadata().generation_id),
            instance=self._instance,
        )
        with kafka_errors(f"joining group {group}"):
            self._consumer = KafkaConsumer(
                **{
                    "allow_auto_create_topics": False,
                    "auto_offset_reset": "earliest",
                    "client_id": client_id,
                    "enable_auto_commit": False,
                    # A fetch waiting at a broker delays fetches for newly assigned partitions.
                    "fetch_max_wait_ms": 100,
                    "group_id": group,
                    # Members learn of a rebalance by a heartbeat, and all wait for the last one.
                    "heartbeat_interval_ms": 300,
                    "isolation_level": "read_committed",
                    "metadata_max_age_ms": 10_000,  # new partitions are noticed within this time
                    "metrics_enabled": False,
                    "partition_assignment_strategy": [self._assignor],
                    **config,
                }
            )
            patch_fetcher(self._consumer)
            self._consumer.subscribe(self._topics, listener=_Listener(self))

    # ------------------------------------------------------------ as a member

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that this member reads now."""
        return self._owned

    @property
    def version(self) -> int:
        """The version of the plan that the current assignment follows; -1 for none."""
        return self._assignor.version

    @property
    def leads(self) -> bool:
        """Whether this member, or an earlier process with its instance id, made the assignment."""
        return self._assignor.leads

    @property
    def fallbacks(self) -> int:
        """How often this member, as leader, assigned without the controller."""
        return self._assignor.fallbacks

    # ------------------------------------------------------------ as a reader

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; an empty result after `timeout_s`."""
        if self._paused:
            self._paused = False
            held = {TheirPartition(*p) for p in self._held}
            self._consumer.resume(*(self._consumer.paused() - held))
        return self._poll(timeout_s)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all returned records, transaction markers skipped."""
        if partition not in self._owned - self._without_position:
            return None
        try:
            found = self._consumer.position(TheirPartition(*partition), timeout_ms=0)
        except theirs.KafkaError:
            return None  # the client would have to ask the broker first
        return None if found is None else int(found)

    def behind(self) -> int:
        """The number of records at the brokers that were not returned yet, as of the last fetch.

        Records after an open transaction do not count, since they cannot be read yet; nor do
        partitions that have returned nothing since the last call, as when they have no leader.
        """
        behind = 0
        moving, self._handed_out = self._handed_out & self._owned, frozenset()
        for partition in moving - self._without_position:
            end = self._consumer.highwater(TheirPartition(*partition))
            position = None if end is None else self.position(partition)
            behind += 0 if position is None else max(0, int(end) - position)
        return behind

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits these offsets; partitions no longer owned are left out and reported."""
        gone = offsets.keys() - self._owned
        if gone:
            self._on_revoked(frozenset(gone))
        kept = {
            TheirPartition(*p): OffsetAndMetadata(offset, "", -1)
            for p, offset in offsets.items()
            if p in self._owned
        }
        if not kept:
            return
        with kafka_errors(f"committing offsets of group {self._group}"):
            try:
                self._consumer.commit(kept, timeout_ms=self._attempt_ms)
            except _NO_LONGER_OURS as error:
                log.warning("commit_was_refused", group=self._group, reason=type(error).__name__)
                self.revoke(self._owned)
            except theirs.FencedInstanceIdError as error:
                raise self._taken_over() from error

    def stay_active(self) -> None:
        """Stays an active member while no records are needed."""
        if not self._paused:
            self._paused = True
            self._consumer.pause(*self._consumer.assignment())
        self._poll(_STAY_ACTIVE_S)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Reads none of these until `resume`, or until they are revoked."""
        held = self._owned & frozenset(partitions)
        self._held |= held
        self._consumer.pause(*(TheirPartition(*p) for p in held))

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again."""
        free = self._held & frozenset(partitions)
        self._held -= free
        if not self._paused:
            self._consumer.resume(*(TheirPartition(*p) for p in free))

    def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again from their committed offsets."""
        self.resume(partitions)
        self._without_position |= self._owned & frozenset(partitions)

    def rejoin(self) -> None:
        """Asks for a rebalance, which revokes and assigns all partitions again."""
        request_rejoin(self._consumer)

    def close(self) -> None:
        """Leaves the group, so that others take over at once; commits nothing."""
        with kafka_errors(f"leaving group {self._group}"):
            self._consumer.close(autocommit=False, timeout_ms=self._close_ms)
            if self.member_id and self._instance is not None and not self._fenced:
                self._remove_static_member(self._instance)

    def _remove_static_member(self, instance: str) -> None:
        """Removes this static member from the group: its client does not send a leave request.

        Otherwise its partitions would have no reader until its session ends. The member id makes
        sure that only this process is removed, not a newer one with the same instance id.
        """
        known = KafkaAdminClient.DEFAULT_CONFIG.keys()
        config = {name: value for name, value in self._config.items() if name in known}
        try:
            with closing(KafkaAdminClient(**config)) as admin:
                ours = MemberToRemove(self.member_id, instance, reason="stopped")
                admin.remove_group_members(self._group, [ours])
        except theirs.KafkaError as error:
            log.warning("member_was_not_removed", group=self._group, reason=str(error))

    # ------------------------------------------------------------ called by the listener

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Reports partitions that are no longer owned to the caller, once."""
        gone = self._owned & frozenset(partitions)
        self._owned -= gone
        self._without_position -= gone
        self._held -= gone
        if gone:
            self._stopped_at = time.monotonic()
            self._on_revoked(gone)

    def take(self, partitions: Collection[TopicPartition]) -> None:
        """Stores the new partitions, to be read from their committed offset.

        The client would continue at its old position with partitions that it had before, but the
        caller has dropped their records when they were revoked.
        """
        self._owned = self._without_position = frozenset(partitions)
        self.member_id = str(self._consumer.group_metadata().member_id)
        if self._paused:
            self._consumer.pause(*(TheirPartition(*p) for p in partitions))
        now = time.monotonic()
        self.blocked_s = 0.0 if self._stopped_at is None else now - self._stopped_at
        self._stopped_at = None
        self._ask_at = now + self._interval_s()
        log.info(
            "partitions_assigned",
            group=self._group,
            partitions=len(self._owned),
            blocked_s=round(self.blocked_s, 3),
            version=self.version,
            leads=self.leads,
        )

    # ------------------------------------------------------------ internal

    def _poll(self, timeout_s: float) -> list[Record]:
        self._rejoin_if_newer()
        self._rebalancing()
        with kafka_errors(f"reading as a member of group {self._group}"):
            try:
                self._seek_to_committed()
                found = self._consumer.poll(timeout_ms=max(0, round(timeout_s * 1000)))
                deadline = time.monotonic() + _REBALANCE_S
                while not found and self._rebalancing() and time.monotonic() < deadline:
                    found = self._consumer.poll(timeout_ms=round(_JOIN_S * 1000))
            except theirs.FencedInstanceIdError as error:
                raise self._taken_over() from error
            except theirs.NoOffsetForPartitionError as error:
                if not self._without_position:
                    raise records_deleted(self._group, str(error)) from error
                found = {}  # assigned in this poll, to a new group: the next one seeks
            except theirs.OffsetOutOfRangeError as error:
                raise records_deleted(self._group, str(error)) from error
        readable = self._owned - self._without_position
        ours = {TopicPartition(*p): records for p, records in found.items() if p in readable}
        self._handed_out |= frozenset(ours)
        return [
            Record(
                r.topic, r.partition, r.offset, r.key, r.value, tuple(r.headers or ()), r.timestamp
            )
            for records in ours.values()
            for r in records
        ]

    def _taken_over(self) -> ApplyError:
        self._fenced = True
        return ApplyError(
            f"Another member of group {self._group} has taken over the instance id "
            f"{self._instance}.",
            hint="Give each consumer a different --instance-id.",
        )

    def _seek_to_committed(self) -> None:
        """Seeks to the committed offset of newly assigned partitions."""
        if self._without_position:
            self._on_assigned(self._without_position)
        for partition in sorted(self._without_position):
            place = TheirPartition(*partition)
            committed = self._consumer.committed(place, timeout_ms=self._attempt_ms)
            if partition not in self._owned:  # revoked meanwhile
                continue
            if committed is None:
                self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek(place, int(committed))
            self._without_position -= {partition}

    def _rebalancing(self) -> bool:
        """Whether this member is joining and has not received its assignment yet.

        If the leader rejoined because a topic has new partitions, the client forgets after the
        assignment that it is waiting, and would neither read nor send heartbeats any more. So it is
        asked to rejoin here, which has no effect otherwise.
        """
        if self._consumer.group_metadata().state is not MemberState.REBALANCING:
            return False
        request_rejoin(self._consumer)
        return True

    def _ask(self, request: AssignmentRequest) -> AssignmentAnswer:
        return self._line.ask(request)

    def _rejoin_if_newer(self) -> None:
        if not self.leads or time.monotonic() < self._ask_at:
            return
        try:
            newer = self._line.newer(self._group, self.version)
        except ApplyError as error:
            if not self._failures:
                event = (
                    "controller_refused_the_token"
                    if isinstance(error, TokenRefused)
                    else "controller_did_not_answer"
                )
                log.warning(event, group=self._group, reason=error.message, hint=error.hint)
            self._failures += 1
            newer = False
        else:
            self._failures = 0
        if newer or self._assignor.is_outgrown(self._partitions_known):
            log.info("rejoin_requested", group=self._group, version=self.version)
            request_rejoin(self._consumer)
        self._ask_at = time.monotonic() + self._interval_s()

    def _partitions_known(self) -> int:
        """How many partitions the topics have, by the client's metadata; 0 if one is unknown."""
        try:
            found = [self._consumer.partitions_for_topic(topic) for topic in self._topics]
        except theirs.KafkaError:
            return 0
        return sum(map(len, found)) if all(found) else 0

    def _interval_s(self) -> float:
        """The time until the next question; doubles with every failure in a row."""
        failures = max(self._failures, self._assignor.fallbacks_in_a_row)
        return float(min(_ASK_AT_LEAST_EVERY_S, _ASK_EVERY_S * 2 ** min(failures, 10)))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Passes the client's calls to the reader."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._reader.revoke([TopicPartition(*p) for p in revoked])

    def on_partitions_lost(self, lost: Collection[Any]) -> None:
        self._reader.revoke([TopicPartition(*p) for p in lost])

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._reader.take([TopicPartition(*p) for p in assigned])
