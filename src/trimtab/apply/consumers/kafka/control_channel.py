"""A consumer's end of the control topic: commands come in, reports go out.

Promise  Commands are read from the end that the partition had when the channel was opened, since
         older ones were meant for another process; only those of committed transactions are seen,
         so a fenced controller is not heard. Reports are delivered, or sent again.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.kafka.outbox import Outbox
from trimtab.errors import BadFile, TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_passing, kafka_errors, translated
from trimtab.kafka.retry import Retry
from trimtab.model.codec import dumps
from trimtab.model.control import Command, MemberRate, Report, Start, StateQuery, Stop
from trimtab.model.control_codec import control_from, control_to
from trimtab.model.reading import parse
from trimtab.observe.logging import library_log

log = library_log()

TO_CONTROLLER = 0
_ASK_S = 10.0
_INSISTING = Retry(first_s=0.1, most_s=2.0)
_LEADER_NOT_SETTLED = frozenset(
    {
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)
"""What brokers answer for a moment when a topic was just created or its leader has moved."""


def partition_of(consumer: int) -> int:
    """The partition of the control topic that belongs to a consumer."""
    return consumer + 1


class Reports:
    """Sends to the controller, from any thread."""

    def __init__(self, outbox: Outbox, topic: str) -> None:
        self._outbox = outbox
        self._topic = topic

    def send(self, report: Report | MemberRate) -> None:
        """Hands a report over."""
        value = dumps(control_to(report, ts=time.time_ns() // 1000)).encode()
        self._outbox.put(self._topic, value, partition=TO_CONTROLLER)

    def insist(self, within_s: float = 0.0) -> bool:
        """Sends again what was not delivered; says whether all is."""
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
        self._heard: list[Command] = []
        settings = {
            "group.id": client_id,  # demanded by the client; nothing is ever committed
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "latest",
        }
        with kafka_errors(f"opening the control topic {topic}"):
            self._reader = cluster.consumer(client_id, settings)

    def open(self, stop: threading.Event) -> bool:
        """Waits until the partition is there and stands at its end; False when told to stop."""
        for pause_s in _INSISTING.for_ever():
            why = self._stand_at_the_end()
            if why is None:
                return True
            log.warning("control_topic_was_not_ready", topic=self._topic, why=why)
            if stop.wait(pause_s):
                break
        return False

    def _stand_at_the_end(self) -> str | None:
        """Stands at the end; else says why not yet."""
        try:
            known = self._reader.list_topics(self._topic, timeout=_ASK_S).topics[self._topic]
            if self._partition not in known.partitions:
                return self._absent(known.error)
            mine = TheirPartition(self._topic, self._partition)
            _, end = self._reader.get_watermark_offsets(mine, timeout=_ASK_S)
            self._reader.assign([TheirPartition(self._topic, self._partition, end)])
        except KafkaException as error:
            if is_passing(error) or error.args[0].code() in _LEADER_NOT_SETTLED:
                return str(error.args[0].str())
            raise translated(error, f"opening the control topic {self._topic}") from error
        return None

    def _absent(self, error: KafkaError | None) -> str:
        if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise translated(KafkaException(error), f"reading the control topic {self._topic}")
        return f"it has no partition {self._partition} yet"

    def called(self) -> bool:
        """Whether any command waits to be obeyed."""
        self._heard.extend(self._new())
        return bool(self._heard)

    def commands(self) -> tuple[Command, ...]:
        """The commands that have come, in order; does not wait for more."""
        commands = (*self._heard, *self._new())
        self._heard.clear()
        return commands

    def _new(self) -> tuple[Command, ...]:
        found = []
        with kafka_errors(f"reading the control topic {self._topic}"):
            while messages := self._reader.consume(100, 0):
                for message in messages:
                    error = message.error()
                    if error is None:
                        found.append(message.value())
                    elif error.fatal() or not is_passing(KafkaException(error)):
                        log.error("control_topic_failed", topic=self._topic, why=error.str())
        commands = (self._command(value) for value in found)
        return tuple(command for command in commands if command is not None)

    def _command(self, value: Any) -> Command | None:
        try:
            said = control_from(parse(bytes(value or b"").decode(), origin=self._topic))
        except (BadFile, UnicodeDecodeError) as error:
            log.warning("command_was_refused", topic=self._topic, why=str(error))
            return None
        if isinstance(said, Start | Stop | StateQuery):
            return said
        log.warning("command_was_refused", topic=self._topic, why=f"no command: {said}")
        return None

    def close(self) -> None:
        """Lets go."""
        with kafka_errors(f"closing the control topic {self._topic}"):
            self._reader.close()
