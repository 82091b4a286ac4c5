"""A group member that uses Kafka's cooperative sticky assignor, for comparison with ours.

Why      A comparison is fair if only the assignment differs: this member has the same cycle, the
         same service time and the same receipts as a directed consumer.
Promise  Only the cycle commits. A revoked partition is released when all its handled records are
         committed; a lost partition is released without a commit.

Run as a program: `python -m trimtab_lab.papers.live.kafka.sticky_member --help`.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.cycle import Cycle
from trimtab.apply.consumers.kafka.directed_reader import records_behind
from trimtab.apply.consumers.kafka.outbox import Outbox, ReceiptTopic
from trimtab.apply.consumers.work import Limits, Work
from trimtab.apply.handling import FixedService
from trimtab.errors import ApplyError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors, translated
from trimtab.kafka.properties import ClientProperties
from trimtab.kafka.topics import OwnTopics
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import configure

log = structlog.get_logger()

_CHUNK = 16
_LINGER_MS = 50
_NAP_S, _REBALANCED_WITHIN_S = 0.1, 60.0
_BEING_DEALT = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,
    }
)


class StickyReader:
    """A `Reader` that subscribes with Kafka's cooperative sticky assignor.

    All timeouts are the client's defaults, as in most groups.
    """

    def __init__(
        self,
        group: str,
        topic: str,
        cluster: Cluster,
        *,
        client_id: str,
        settle: Callable[[], None],
        on_gone: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self._group = group
        self._settle = settle
        self._on_gone = on_gone
        self._commits = self._revokes = False
        self._positions: dict[TopicPartition, int | None] = {}
        self._waiting: deque[Record] = deque()
        with kafka_errors(f"joining group {group}"):
            self._consumer = cluster.consumer(
                client_id,
                {
                    "group.id": group,
                    "partition.assignment.strategy": "cooperative-sticky",
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "earliest",
                    "isolation.level": "read_committed",
                    "fetch.wait.max.ms": 100,
                },
            )
            self._consumer.subscribe(
                [topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost
            )

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records; waits for a full chunk, at most `timeout_s`."""
        self._consume(_CHUNK, timeout_s)
        found = tuple(self._waiting)
        self._waiting.clear()
        for record in found:
            self._positions[record.source] = record.offset + 1
        return found

    def position(self, partition: TopicPartition) -> int | None:
        """The offset after the last record that was returned."""
        return self._positions.get(partition)

    def behind(self) -> int:
        """Records at the brokers that were not returned yet, as of the last fetch."""
        return records_behind(self._consumer, self._positions)

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the next offsets of these partitions; retries during a rebalance."""
        self._commits = True
        try:
            self._commit_with_retries(offsets)
        finally:
            self._commits = False

    def _commit_with_retries(self, offsets: Mapping[TopicPartition, int]) -> None:
        deadline = time.monotonic() + _REBALANCED_WITHIN_S
        while asked := [
            TheirPartition(p.topic, p.partition, at)
            for p, at in offsets.items()
            if p in self._positions
        ]:
            try:
                answers = self._consumer.commit(offsets=asked, asynchronous=False) or []
                if refused := [answer.error for answer in answers if answer.error]:
                    raise KafkaException(refused[0])  # noqa: TRY301 - handled like errors of the call
            except KafkaException as error:
                if self._revokes:  # a revocation callback must not wait
                    raise ApplyError(
                        f"Group {self._group} rebalanced before a commit succeeded.",
                        hint="The records since the last commit are read again.",
                    ) from error
                if error.args[0].code() not in _BEING_DEALT or time.monotonic() > deadline:
                    raise translated(error, f"committing for group {self._group}") from error
                self._consume(1, _NAP_S)  # continues the rebalance, which may revoke partitions
            else:
                return

    def stay_active(self) -> None:
        """Serves the group protocol; records that arrive are returned by the next read."""
        self._consume(1, 0.0)

    def close(self) -> None:
        """Leaves the group, so that others take over at once."""
        with kafka_errors(f"leaving group {self._group}"):
            self._consumer.close()

    def _consume(self, most: int, timeout_s: float) -> None:
        with kafka_errors(f"reading as a member of group {self._group}"):
            for message in self._consumer.consume(most, timeout_s):
                if (error := message.error()) is None:
                    self._waiting.append(_record(message))
                elif not is_retriable(KafkaException(error)):
                    raise KafkaException(error)

    def _assigned(self, _: Consumer, partitions: Sequence[TheirPartition]) -> None:
        """Notes the partitions; the client itself starts them at their committed offsets."""
        self._positions.update(dict.fromkeys(_names(partitions)))
        log.info("partitions_assigned", group=self._group, owned=len(self._positions))

    def _revoked(self, consumer: Consumer, partitions: Sequence[TheirPartition]) -> None:
        if not self._commits:  # otherwise a commit is already in progress
            self._revokes = True
            try:
                self._settle()
            except ApplyError as error:
                log.warning("commit_on_revoke_failed", group=self._group, why=error.message)
            finally:
                self._revokes = False
        self._lost(consumer, partitions)

    def _lost(self, _: Consumer, partitions: Sequence[TheirPartition]) -> None:
        gone = frozenset(_names(partitions))
        for partition in gone:
            self._positions.pop(partition, None)
        self._waiting = deque(r for r in self._waiting if r.source not in gone)
        self._on_gone(gone)


def _names(partitions: Sequence[TheirPartition]) -> list[TopicPartition]:
    return [TopicPartition(p.topic, p.partition) for p in partitions]


def _record(message: Message) -> Record:
    key: Any = message.key()
    value: Any = message.value()
    headers: Any = message.headers() or ()
    return Record(
        message.topic() or "",
        message.partition() or 0,
        message.offset() or 0,
        key,
        value,
        tuple(headers),
        message.timestamp()[1],
    )


def work(asked: argparse.Namespace, stop: threading.Event) -> None:
    """Reads and handles until `stop` is set."""
    properties = (
        ClientProperties.none()
        if asked.command_config is None
        else ClientProperties.read(asked.command_config)
    )
    name, incarnation = f"sticky-{asked.group}-{asked.index}", uuid.uuid4().hex
    cluster = Cluster(asked.bootstrap_server, properties, OwnTopics(asked.topic_prefix))
    outbox = Outbox(cluster, client_id=f"{name}-outbox", linger_ms=_LINGER_MS)
    receipts = ReceiptTopic(
        outbox,
        cluster.topics.receipts,
        run=asked.run,
        group=asked.group,
        consumer=asked.index,
        incarnation=incarnation,
    )

    def settle() -> None:
        cycle.settle()

    def release(gone: Collection[TopicPartition]) -> None:
        cycle.release(gone)

    reader = StickyReader(
        asked.group,
        asked.topic,
        cluster,
        client_id=name,
        settle=settle,
        on_gone=release,
    )
    cycle = Cycle(
        reader,
        Work(
            handler=_service(asked),
            receipts=receipts,
            limits=Limits(batch_bytes=asked.batch_bytes, wait_s=asked.wait_s),
        ),
        stop=stop,
        on_trouble=lambda what, error: log.warning("work_was_delayed", what=what, why=str(error)),
    )
    try:
        cycle.run(has_commands=lambda: False)  # it receives no commands
    finally:
        reader.close()


def _service(asked: argparse.Namespace) -> FixedService:
    if asked.service_bytes_s is not None:
        return FixedService(0.0, per_byte_s=1 / asked.service_bytes_s)
    return FixedService(asked.service_ms / 1000)


def main() -> None:
    """Runs until SIGTERM or Ctrl-C."""
    asked = argparse.ArgumentParser(description=__doc__)
    for name in ("bootstrap-server", "group", "topic", "run"):
        asked.add_argument(f"--{name}", required=True)
    asked.add_argument("--index", type=int, required=True)
    service = asked.add_mutually_exclusive_group(required=True)
    service.add_argument("--service-ms", type=float)
    service.add_argument("--service-bytes-s", type=float)
    asked.add_argument("--wait-s", type=float, required=True)
    asked.add_argument("--batch-bytes", type=int, required=True)
    asked.add_argument("--command-config", type=Path)
    asked.add_argument("--topic-prefix", default=OwnTopics().prefix)
    configure(verbose=False)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    work(asked.parse_args(), stop)


if __name__ == "__main__":
    main()
