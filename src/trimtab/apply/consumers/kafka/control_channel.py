"""A consumer's side of the control topic: receives commands, sends reports.

Promise  Commands are read from the end of the partition at opening, since older ones were for an
         earlier process; only those of committed transactions, so a fenced controller has no
         effect. Reports are sent again until they are delivered.
"""

from __future__ import annotations

import threading
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.kafka.outbox import Outbox
from trimtab.errors import BadFile, TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors, translated
from trimtab.kafka.retry import SLOWING, attempts
from trimtab.model.codec import dumps
from trimtab.model.control import Command, MemberRate, Report, Start, StateQuery, Stop
from trimtab.model.control_codec import control_from, control_to
from trimtab.model.json_reader import parse
from trimtab.observe.clock import wall_clock_us
from trimtab.observe.logging import library_log

log = library_log()

TO_CONTROLLER = 0
_LEADER_NOT_SETTLED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""Answers of brokers shortly after a topic was created or its leader has moved."""


def partition_of(consumer: int) -> int:
    """The partition of the control topic that belongs to a consumer."""
    return consumer + 1


class Reports:
    """Sends reports to the controller; may be used from any thread."""

    def __init__(self, outbox: Outbox, topic: str) -> None:
        self._outbox = outbox
        self._topic = topic

    def send(self, report: Report | MemberRate) -> None:
        """Queues a report for sending."""
        value = dumps(control_to(report, ts=wall_clock_us())).encode()
        self._outbox.put(self._topic, value, partition=TO_CONTROLLER)

    def resend(self, within_s: float = 0.0) -> bool:
        """Sends undelivered reports again; returns whether all are delivered."""
        try:
            self._outbox.confirm(within_s)
        except TrimtabError:
            return False
        return True


class ControlChannel:
    """Reads the commands for one consumer."""

    def __init__(
        self,
        topic: str,
        consumer: int,
        cluster: Cluster,
        *,
        client_id: str,
    ) -> None:
        self._topic = topic
        self._partition = partition_of(consumer)
        self._attempt_s = cluster.timeouts.attempt_s
        self._received: list[Command] = []
        settings = {
            "group.id": client_id,  # required by the client; nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
        }
        with kafka_errors(f"opening the control topic {topic}"):
            self._reader = cluster.consumer(client_id, settings)

    def open(self, stop: threading.Event) -> bool:
        """Waits for the partition and seeks to its end; False when `stop` was set first."""
        for _ in attempts(SLOWING, stop=stop):
            why = self._seek_to_end()
            if why is None:
                return True
            log.warning("control_topic_was_not_ready", topic=self._topic, why=why)
        return False

    def _seek_to_end(self) -> str | None:
        """Starts reading at the end of the partition; returns the reason if it cannot yet."""
        try:
            found = self._reader.list_topics(self._topic, timeout=self._attempt_s)
            known = found.topics[self._topic]
            if self._partition not in known.partitions:
                return self._absent(known.error)
            mine = TheirPartition(self._topic, self._partition)
            _, end = self._reader.get_watermark_offsets(mine, timeout=self._attempt_s)
            self._reader.assign([TheirPartition(self._topic, self._partition, end)])
        except KafkaException as error:
            if is_retriable(error) or error.args[0].code() in _LEADER_NOT_SETTLED:
                return str(error.args[0].str())
            raise translated(error, f"opening the control topic {self._topic}") from error
        return None

    def _absent(self, error: KafkaError | None) -> str:
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise translated(KafkaException(error), f"reading the control topic {self._topic}")
        return f"it has no partition {self._partition} yet"

    def has_commands(self) -> bool:
        """Whether any command has arrived."""
        self._received.extend(self._new())
        return bool(self._received)

    def commands(self) -> tuple[Command, ...]:
        """The commands that have arrived, in order; does not wait for more."""
        commands = (*self._received, *self._new())
        self._received.clear()
        return commands

    def _new(self) -> tuple[Command, ...]:
        found = []
        with kafka_errors(f"reading the control topic {self._topic}"):
            while messages := self._reader.consume(100, 0):
                for message in messages:
                    error = message.error()
                    if error is None:
                        found.append(message.value())
                    elif error.fatal() or not is_retriable(KafkaException(error)):
                        log.error("control_topic_failed", topic=self._topic, why=error.str())
        commands = (self._command(value) for value in found)
        return tuple(command for command in commands if command is not None)

    def _command(self, value: Any) -> Command | None:
        try:
            found = control_from(parse(bytes(value or b"").decode(), origin=self._topic))
        except (BadFile, UnicodeDecodeError) as error:
            log.warning("command_was_refused", topic=self._topic, why=str(error))
            return None
        if isinstance(found, Start | Stop | StateQuery):
            return found
        log.warning("command_was_refused", topic=self._topic, why=f"not a command: {found}")
        return None

    def close(self) -> None:
        """Closes the client."""
        with kafka_errors(f"closing the control topic {self._topic}"):
            self._reader.close()
