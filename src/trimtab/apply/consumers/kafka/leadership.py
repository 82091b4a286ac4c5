"""Leader election among the controllers of a group, and a producer that fences the previous leader.

Promise  The owner of the state topic's only partition leads, and keeps leadership when others join.
         Taking over makes every later transaction of the previous leader fail, so a controller that
         was frozen cannot send commands when it continues.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.controller_state import ControllerRules, Persist, Send, WriteJournal
from trimtab.apply.consumers.kafka.control_channel import partition_of
from trimtab.apply.kafka.plan_topic import journal_record
from trimtab.errors import ApplyError, BrokerUnavailable, Fenced
from trimtab.kafka.admin import Admin
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.compacted import ABSENT, TopicReader
from trimtab.kafka.errors import is_retriable, kafka_errors, reason_of
from trimtab.kafka.topics import ensure
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import GroupState
from trimtab.model.control_codec import control_to, group_state_from, group_state_to
from trimtab.model.json_reader import parse
from trimtab.model.timeouts import milliseconds
from trimtab.observe.clock import wall_clock_us

log = structlog.get_logger()

_STATE_KEY = b"state"
_TRANSACTION_TIMEOUT_MS = 60_000  # librdkafka's default

RESTART_PAUSE_S = 1.0
"""The pause before a controller repeats what has failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """Which group is controlled, on which cluster, and with which time limits."""

    group: str
    topics: tuple[str, ...]
    cluster: Cluster
    rules: ControllerRules = field(default_factory=ControllerRules)
    look_every_s: float = 0.5
    lease_s: float = 6.0

    @property
    def name(self) -> str:
        """The client id, the group id of the lease and the transactional id."""
        return f"trimtab-controller-{self.group}"

    def partitions(self, admin: Admin) -> frozenset[TopicPartition]:
        """The partitions that the group's topics have now."""
        return frozenset(replicas.name for replicas in admin.topics(self.topics))


# ---------------------------------------------------------------- the lease


class Lease:
    """Membership in the group of controllers; the owner of the only partition leads."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._mine = False
        self._consumer = config.cluster.consumer(
            config.name,
            {
                "group.id": config.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "latest",
                "session.timeout.ms": round(config.lease_s * 1000),
                "heartbeat.interval.ms": round(config.lease_s * 1000 / 6),
                # The leader stays leader when others join; the range assignor would move it.
                "partition.assignment.strategy": "cooperative-sticky",
            },
        )

    @contextmanager
    def held(self, stop: threading.Event) -> Iterator[Lease | None]:
        """Waits for the lease and holds it; None when `stop` was set first."""
        topic = self._config.cluster.topics.group(self._config.group)
        try:
            self._consumer.subscribe(
                [topic], on_assign=self._take, on_revoke=self._lose, on_lost=self._lose
            )
            log_at = time.monotonic() + RESTART_PAUSE_S  # usually it is free
            while not self._mine and not stop.is_set():
                self._poll(POLL_SLICE_S)
                if log_at and time.monotonic() > log_at:
                    log.info("controller_waiting_for_lease", group=self._config.group)
                    log_at = 0.0
            yield self if self._mine else None
        finally:
            self._consumer.close()

    def renewed(self) -> bool:
        """Polls the group of controllers and returns whether this one still holds the lease."""
        self._poll(0)
        return self._mine

    def _poll(self, timeout_s: float) -> None:
        message = self._consumer.poll(timeout_s)
        problem = None if message is None else message.error()
        # Brokers may not know a topic yet that another controller has just created.
        if problem is not None and problem.code() not in ABSENT:
            error = KafkaException(problem)
            if not is_retriable(error):
                with kafka_errors("holding the lease"):
                    raise error

    def _take(self, consumer: Consumer, partitions: list[TheirPartition]) -> None:
        if partitions:
            consumer.incremental_assign(partitions)
            consumer.pause(partitions)  # `persisted_state` reads the topic
            self._mine = True

    def _lose(self, _consumer: Consumer, partitions: list[TheirPartition]) -> None:
        if partitions:
            self._mine = False


# ---------------------------------------------------------------- commands


class CommandProducer:
    """Sends commands and state in transactions that fence all earlier controllers."""

    def __init__(self, config: GroupConfig) -> None:
        self._config = config
        self._timeouts = config.cluster.timeouts
        self._known_partitions = 0
        answer_s = max(self._timeouts.request_s, self._timeouts.attempt_s)
        own_ms = config.cluster.properties.for_confluent().get("socket.timeout.ms", 0)
        answer_s = max(answer_s, int(own_ms) / 1000)  # of the user's client properties
        longest_s = max(self._timeouts.transaction_s, answer_s + 1)  # the client demands more
        self._producer = config.cluster.producer(
            config.name,
            {
                "transactional.id": config.name,
                "linger.ms": 0,
                "acks": "all",
                # Brokers must not abort a transaction that is still waited for.
                "transaction.timeout.ms": max(_TRANSACTION_TIMEOUT_MS, milliseconds(longest_s)),
            },
        )
        with fencing("taking over"):
            self._producer.init_transactions(self._timeouts.transaction_s)

    def commit(self, effects: Sequence[Send | Persist | WriteJournal]) -> None:
        """Sends the effects in one transaction, and returns when that is committed.

        Without effects, the transaction only checks that this controller has not been fenced.
        """
        with fencing("sending commands"):
            self._producer.begin_transaction()
            for effect in effects:
                self._produce(effect)
            if not effects:
                self._producer.produce(
                    self._config.cluster.topics.group(self._config.group), b"", b"touch"
                )
            self._producer.commit_transaction(self._timeouts.transaction_s)

    def _produce(self, effect: Send | Persist | WriteJournal) -> None:
        ts, own, group = wall_clock_us(), self._config.cluster.topics, self._config.group
        match effect:
            case Send(consumer, command):
                self._learn_partition(partition_of(consumer))
                self._producer.produce(
                    own.control(group),
                    dumps(control_to(command, ts=ts)).encode(),
                    partition=partition_of(consumer),
                )
            case Persist(state):
                value = dumps(group_state_to(state, ts=ts)).encode()
                self._producer.produce(own.group(group), value, _STATE_KEY)
            case WriteJournal(entry):
                key, value = journal_record(replace(entry, ts=ts))
                self._producer.produce(own.plans, value, key)

    def _learn_partition(self, partition: int) -> None:
        """Refreshes the producer's metadata if it may not know a newly added partition."""
        if partition >= self._known_partitions:
            topic = self._config.cluster.topics.control(self._config.group)
            known = self._producer.list_topics(topic, timeout=self._timeouts.request_s)
            self._known_partitions = len(known.topics[topic].partitions)


@contextmanager
def fencing(what: str) -> Iterator[None]:
    """Translates a failed transaction: `Fenced`, or `BrokerUnavailable` where a retry may help."""
    try:
        yield
    except KafkaException as error:
        code = error.args[0].code()
        if code in {
            KafkaError._FENCED,
            KafkaError.INVALID_PRODUCER_EPOCH,
            KafkaError.PRODUCER_FENCED,
        }:
            raise Fenced(f"Another controller has taken over (noticed while {what}).") from error
        raise BrokerUnavailable(
            f"A transaction failed while {what}: {reason_of(error)}",
            hint="The controller starts again as soon as brokers answer.",
        ) from error


def persisted_state(config: GroupConfig, *, missing_ok: bool = False) -> GroupState | None:
    """The newest group state in the state topic; None where there is none."""
    topic = config.cluster.topics.group(config.group)
    state: GroupState | None = None
    with closing(TopicReader(config.cluster, topic, client_id=config.name)) as reader:
        if reader.missing and missing_ok:
            return None
        for key, value in reader.read_to_end():
            if key == _STATE_KEY:
                state = group_state_from(parse(value or b"", origin=topic))
    return state


def lead_when_elected(
    config: GroupConfig,
    run_as_leader: Callable[[Lease, threading.Event], None],
    stop: threading.Event,
) -> bool:
    """Creates the topics, waits for the lease and runs while leader; retries when it is lost.

    Returns whether it was leader when `stop` was set.
    """
    with config.cluster.admin() as admin:
        ensure(admin, config.cluster.topics.of_group(config.group))
    while not stop.is_set():
        try:
            with Lease(config).held(stop) as lease:
                if lease is not None:
                    run_as_leader(lease, stop)
                    if stop.is_set():
                        return True
                    log.warning("controller_lost_lease", group=config.group)
        except Fenced as error:
            log.warning("controller_was_fenced", group=config.group, why=error.message)
            stop.wait(RESTART_PAUSE_S)
        except BrokerUnavailable as error:
            log.warning("controller_lost_brokers", group=config.group, why=error.message)
            stop.wait(RESTART_PAUSE_S)
        except ApplyError as error:  # such as a backend that does not answer
            log.warning("controller_restarting", group=config.group, why=error.message)
            stop.wait(RESTART_PAUSE_S)
    return False
