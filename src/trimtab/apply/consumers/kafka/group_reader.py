"""A reader that is a member of a subscribed group, whose leader asks the controller who reads what.

Why      Whoever must keep Kafka's own group protocol, with its fencing, still gets a planned
         assignment. The price is the client: an assignor in Python needs kafka-python.
Promise  Commits are made by the caller alone, for partitions it owns in the current generation.
         Before a rebalance takes partitions away, `on_revoked` is told of them, and nothing more
         of them is handed out. The protocol is eager: every rebalance takes all of them away, and
         what comes back is read from its committed offset. A read that meets a rebalance waits up
         to 2 s for its end, even when its own timeout is shorter.
         The leader asks the controller for a newer plan about once a second, between two reads,
         and more rarely after fallbacks or while the controller is away.
Cost     Some 35 000 records per second; the group stops during a rebalance.

`on_revoked` is called during `read`, `tend`, `commit` or `close`, while the caller waits in it. It
must be quick, and forget what it has of these partitions; it cannot commit: a cycle that commits
before it reads again has nothing left to commit then.
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
from trimtab.apply.consumers.sockets.assignment_service import ControllerLine
from trimtab.errors import ApplyError, ConfigError, TokenRefused
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import kafka_errors
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

log = library_log()

OnRevoked = Callable[[frozenset[TopicPartition]], None]

_ASK_EVERY_S = 1.0
_ASK_AT_LEAST_EVERY_S = 30.0
_COMMIT_WITHIN_S = 10.0
_TEND_S = 0.02
_REBALANCE_S = 2.0
_ASK_MS = 10_000
_JOIN_S = 0.5  # a join that ends between two polls is lost and made anew: so there are few of them
_NO_LONGER_OURS = (
    theirs.CommitFailedError,
    theirs.IllegalGenerationError,
    theirs.RebalanceInProgressError,
    theirs.UnknownMemberIdError,
)


def open_group_reader(
    group: str,
    topics: Collection[str],
    cluster: Cluster,
    *,
    line: ControllerLine,
    client_id: str,
    on_revoked: OnRevoked,
    instance: str | None = None,
    session_s: float = 10.0,
) -> GroupReader:
    """A reader that joins the group at its first read.

    A member silent for `session_s` counts as dead; a leader may wait for the controller meanwhile,
    so that must take less. With `instance` it is a static member: one that crashes and comes back
    within `session_s` has what it had, without a rebalance.
    """
    if session_s <= line.longest_s:
        raise ConfigError(
            f"A session of {session_s:g} s is too short: the group's leader may wait "
            f"{line.longest_s:g} s for the controller.",
            hint=f"Take at least {line.longest_s + 1:g} s.",
        )
    return GroupReader(
        group,
        topics,
        line,
        on_revoked,
        client_id=client_id,
        config={
            **cluster.for_kafka_python(),
            "session_timeout_ms": round(session_s * 1000),
            **({} if instance is None else {"group_instance_id": instance}),
        },
    )


class GroupReader:
    """A member of a group, as `trimtab.apply.consumers.ports.Reader` asks for it.

    `blocked_s` is how long the last rebalance kept it from reading. `member_id` is empty before the
    first assignment; it may be read from any thread.
    """

    def __init__(
        self,
        group: str,
        topics: Collection[str],
        line: ControllerLine,
        on_revoked: OnRevoked,
        *,
        client_id: str,
        config: Mapping[str, Any],
    ) -> None:
        self._group = group
        self._topics = tuple(sorted(topics))
        self._config = dict(config)
        self._line = line
        self._on_revoked = on_revoked
        self._owned: frozenset[TopicPartition] = frozenset()
        self._unplaced: frozenset[TopicPartition] = frozenset()
        self._handed_out: frozenset[TopicPartition] = frozenset()
        self._resting = False
        self._stopped_at: float | None = None
        self._silences = 0
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
                    # A fetch that waits at a broker holds up those for partitions that come later.
                    "fetch_max_wait_ms": 100,
                    "group_id": group,
                    # By a heartbeat members learn of a rebalance, and all wait for the last one.
                    "heartbeat_interval_ms": 300,
                    "isolation_level": "read_committed",
                    "metadata_max_age_ms": 10_000,  # so soon a topic that has grown is noticed
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
        """What this member reads now."""
        return self._owned

    @property
    def version(self) -> int:
        """The plan that the current assignment follows; -1 for none."""
        return self._assignor.version

    @property
    def leads(self) -> bool:
        """Whether this member, or the process in its place before, made the assignment."""
        return self._assignor.leads

    @property
    def fallbacks(self) -> int:
        """How often this member, as leader, had to do without the controller."""
        return self._assignor.fallbacks

    # ------------------------------------------------------------ as a reader

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; none after `timeout_s`."""
        if self._resting:
            self._resting = False
            self._consumer.resume(*self._consumer.paused())
        return self._polled(timeout_s)

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all that was handed out, transaction markers passed over."""
        if partition not in self._owned - self._unplaced:
            return None
        try:
            found = self._consumer.position(TheirPartition(*partition), timeout_ms=0)
        except theirs.KafkaError:
            return None  # a position that must be asked for first is not known
        return None if found is None else int(found)

    def behind(self) -> int:
        """Records at the brokers that were not handed out, as of the last fetch.

        Those behind an open transaction do not count, for nobody can have them yet, nor those of
        partitions of which nothing has come since it was last asked, as when their leader is away.
        """
        behind = 0
        moving, self._handed_out = self._handed_out & self._owned, frozenset()
        for partition in moving - self._unplaced:
            end = self._consumer.highwater(TheirPartition(*partition))
            position = None if end is None else self.position(partition)
            behind += 0 if position is None else max(0, int(end) - position)
        return behind

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keeps these offsets; partitions no longer owned are left out and told."""
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
                self._consumer.commit(kept, timeout_ms=round(_COMMIT_WITHIN_S * 1000))
            except _NO_LONGER_OURS as error:
                log.warning("commit_came_too_late", group=self._group, reason=type(error).__name__)
                self.let_go(self._owned)
            except theirs.FencedInstanceIdError as error:
                raise self._taken_over() from error

    def tend(self) -> None:
        """Takes part in the group while no record is wanted."""
        if not self._resting:
            self._resting = True
            self._consumer.pause(*self._consumer.assignment())
        self._polled(_TEND_S)

    def close(self) -> None:
        """Leaves the group, so that others take over at once; commits nothing."""
        with kafka_errors(f"leaving group {self._group}"):
            self._consumer.close(autocommit=False, timeout_ms=round(_COMMIT_WITHIN_S * 1000))
            if self.member_id and self._instance is not None and not self._fenced:
                self._leave_for_good(self._instance)

    def _leave_for_good(self, instance: str) -> None:
        """Takes a static member off the group: its client leaves without a word.

        Otherwise its partitions would have no reader until its session ends. With its member id
        that can only be itself, and not one that has taken over its instance id by now.
        """
        known = KafkaAdminClient.DEFAULT_CONFIG.keys()
        config = {name: value for name, value in self._config.items() if name in known}
        try:
            with closing(KafkaAdminClient(**config)) as admin:
                ours = MemberToRemove(self.member_id, instance, reason="stopped")
                admin.remove_group_members(self._group, [ours])
        except theirs.KafkaError as error:
            log.warning("member_left_without_a_word", group=self._group, reason=str(error))

    # ------------------------------------------------------------ as the listener calls

    def let_go(self, partitions: Collection[TopicPartition]) -> None:
        """Tells the caller, once, of partitions that are no longer its own."""
        gone = self._owned & frozenset(partitions)
        self._owned -= gone
        self._unplaced -= gone
        if gone:
            self._stopped_at = time.monotonic()
            self._on_revoked(gone)

    def take(self, partitions: Collection[TopicPartition]) -> None:
        """Notes what is the caller's own from now on, to be read from its committed offset.

        The client goes on where it was with partitions that it had before; but what it handed out
        of them was dropped by the caller, when they were revoked.
        """
        self._owned = self._unplaced = frozenset(partitions)
        self.member_id = str(self._consumer.group_metadata().member_id)
        if self._resting:
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

    # ------------------------------------------------------------ within

    def _polled(self, timeout_s: float) -> list[Record]:
        self._rejoin_if_newer()
        self._rebalancing()
        with kafka_errors(f"reading as a member of group {self._group}"):
            try:
                self._place()
                found = self._consumer.poll(timeout_ms=max(0, round(timeout_s * 1000)))
                give_up = time.monotonic() + _REBALANCE_S
                while not found and self._rebalancing() and time.monotonic() < give_up:
                    found = self._consumer.poll(timeout_ms=round(_JOIN_S * 1000))
            except theirs.FencedInstanceIdError as error:
                raise self._taken_over() from error
        readable = self._owned - self._unplaced
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
            hint="Give each consumer an --instance-id of its own.",
        )

    def _place(self) -> None:
        """Stands at the committed offset of partitions that have come."""
        for partition in sorted(self._unplaced):
            place = TheirPartition(*partition)
            committed = self._consumer.committed(place, timeout_ms=_ASK_MS)
            if partition not in self._owned:  # gone again meanwhile
                continue
            if committed is None:
                self._consumer.seek_to_beginning(place)
            else:
                self._consumer.seek(place, int(committed))
            self._unplaced -= {partition}

    def _rebalancing(self) -> bool:
        """Whether this member has asked to join and not been told its share yet.

        The client forgets that it is waiting when a leader that joined anew because a topic has
        grown has made its assignment: it would neither read nor send heartbeats any more. It is
        reminded here, which is without effect otherwise.
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
            if not self._silences:
                event = (
                    "controller_refused_the_token"
                    if isinstance(error, TokenRefused)
                    else "controller_fell_silent"
                )
                log.warning(event, group=self._group, reason=error.message, hint=error.hint)
            self._silences += 1
            newer = False
        else:
            self._silences = 0
        if newer or self._assignor.is_outgrown(self._partitions_known):
            log.info("rejoin_requested", group=self._group, version=self.version)
            request_rejoin(self._consumer)
        self._ask_at = time.monotonic() + self._interval_s()

    def _partitions_known(self) -> int:
        """How many partitions the topics have, as of the last look; 0 if one is not known."""
        try:
            found = [self._consumer.partitions_for_topic(topic) for topic in self._topics]
        except theirs.KafkaError:
            return 0
        return sum(map(len, found)) if all(found) else 0

    def _interval_s(self) -> float:
        """Doubles with every failure in a row, so that neither side wears the other out."""
        failures = max(self._silences, self._assignor.fallbacks_in_a_row)
        return float(min(_ASK_AT_LEAST_EVERY_S, _ASK_EVERY_S * 2 ** min(failures, 10)))


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Carries the client's calls over to the reader."""

    def __init__(self, reader: GroupReader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
        self._reader.let_go([TopicPartition(*p) for p in revoked])

    def on_partitions_lost(self, lost: Collection[Any]) -> None:
        self._reader.let_go([TopicPartition(*p) for p in lost])

    def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
        self._reader.take([TopicPartition(*p) for p in assigned])
