"""The transactions of one task: a round is written whole, with its offsets, or not at all.

Promise  `fence` ends the open transaction of any predecessor; from then on it can write nothing
         more. A transaction is open only during `write`. After `TaskFenced` or `RoundLost` the
         task's memory may know of what was rolled back: it must be dropped.
Cost     One producer with its threads per task; about 30 to 50 ms per round on a small machine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.task_round import AppliedReceipt, DeadLetter, TaskRound
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_retriable, kafka_errors, reason_of, translated
from trimtab.kafka.retry import SLOWING, attempts
from trimtab.model.cluster import TopicPartition
from trimtab.observe.logging import library_log

log = library_log()

TRANSACTION_TIMEOUT_MS = 10_000
"""How long a stopped process may hold up readers of what its transaction writes."""

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.TRANSACTIONAL_ID_NOT_FOUND
        if hasattr(KafkaError, "TRANSACTIONAL_ID_NOT_FOUND")
        else KafkaError.PRODUCER_FENCED,
    }
)
_STEP_S = 5.0
_GIVE_UP_S = 60.0

ReceiptText = Callable[[AppliedReceipt], bytes]


class TaskFenced(Exception):
    """Another process has taken over the task."""


class RoundLost(Exception):
    """The transaction was rolled back, or its end is not known: the task must begin again."""


class TaskWriter:
    """The transactional producer of one task.

    `state_end` is the end of the task's changelog after its last transaction; None before there was
    one.
    """

    def __init__(
        self,
        cluster: Cluster,
        partition: TopicPartition,
        topics: KeyedTopics,
        *,
        client_id: str,
        largest_bytes: int,
        receipt_topic: str,
        receipt_text: ReceiptText | None,
    ) -> None:
        self.state_end: int | None = None
        self._partition = partition
        self._topics = topics
        self._receipt_topic = receipt_topic
        self._receipt_text = receipt_text
        self._last_state: int | None = None
        self._what = f"writing for the task of {partition}"
        with kafka_errors(f"starting the task of {partition}"):
            self._producer: Producer = cluster.producer(
                client_id,
                {
                    "transactional.id": topics.transactional_id(partition.partition),
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "enable.idempotence": True,
                    "acks": "all",
                    "linger.ms": 0,
                    "partitioner": "murmur2_random",
                    "message.max.bytes": largest_bytes,
                    "queue.buffering.max.messages": 1_000_000,
                },
            )

    def fence(self, stop: threading.Event) -> bool:
        """Ends the predecessor's transaction and fences it; False if `stop` was set first."""
        for _ in attempts(SLOWING, stop=stop):
            try:
                self._producer.init_transactions(_STEP_S)
            except KafkaException as error:
                if not is_retriable(error):
                    raise translated(error, f"starting the task of {self._partition}") from error
                log.info("task_is_not_fenced_yet", partition=str(self._partition), why=str(error))
            else:
                return True
        return False

    def write(self, finished: TaskRound, group: Any) -> None:
        """Writes a round and its offsets; `group` is a consumer's group metadata."""
        producer = self._producer
        self._last_state = None
        try:
            producer.begin_transaction()
            self._produce(finished)
            if producer.flush(_GIVE_UP_S):
                raise RoundLost(f"{self._partition}: the brokers took too long")
            offsets = self._offsets(finished)
            if offsets:
                self._persist(lambda: producer.send_offsets_to_transaction(offsets, group, _STEP_S))
            self._persist(lambda: producer.commit_transaction(_STEP_S))
        except KafkaException as error:
            raise self._failure(error) from error
        if self._last_state is not None:
            self.state_end = self._last_state + 2  # behind the transaction's own marker

    def _persist(self, request: Callable[[], object]) -> None:
        """Repeats a request that the client allows to repeat."""
        for _ in attempts(SLOWING, within_s=_GIVE_UP_S):
            try:
                request()
            except KafkaException as error:
                problem = error.args[0]
                if problem.fatal() or problem.txn_requires_abort() or not is_retriable(error):
                    raise
                log.info("transaction_repeated", partition=str(self._partition), why=str(error))
            else:
                return
        raise RoundLost(f"{self._partition}: the brokers took too long")

    def _failure(self, error: KafkaException) -> Exception:
        problem = error.args[0]
        if problem.code() in _FENCED:
            return TaskFenced(f"{self._partition}: {reason_of(error)}")
        if problem.code() in (KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._UNKNOWN_TOPIC):
            return ApplyError(
                f"The brokers refuse a record of the task of {self._partition}: {reason_of(error)}",
                hint="Nothing was committed. Check the topics that the handler writes to, and "
                "their max.message.bytes.",
            )
        ours = translated(error, self._what)
        if isinstance(ours, BrokerUnavailable) or problem.txn_requires_abort() or problem.fatal():
            return RoundLost(f"{self._partition}: {reason_of(error)}")
        return ours

    # ------------------------------------------------------------ records

    def _produce(self, finished: TaskRound) -> None:
        topics, own = self._topics, self._partition.partition
        for write in finished.handovers:
            self._send(topics.handover, write.value, key=write.key, partition=write.partition)
        for output in finished.outputs:
            self._send(
                output.topic,
                output.value,
                key=output.key,
                headers=list(output.headers),
                **({} if output.partition is None else {"partition": output.partition}),
                **({} if output.timestamp_ms is None else {"timestamp": output.timestamp_ms}),
            )
        for letter in finished.dead_letters:
            self._bury(letter)
        if self._receipt_text is not None:
            for receipt in finished.receipts:
                text = self._receipt_text(receipt)
                self._send(self._receipt_topic, text, key=receipt.record.key)
        last = len(finished.state) - 1
        for number, (key, value) in enumerate(finished.state.items()):
            noted = {"on_delivery": self._note_end} if number == last else {}
            self._send(topics.state, value, key=key, partition=own, **noted)

    def _bury(self, letter: DeadLetter) -> None:
        record = letter.record
        place = {
            "tt-error": letter.reason,
            "tt-topic": record.topic,
            "tt-partition": str(record.partition),
            "tt-offset": str(record.offset),
        }
        log.error(
            "record_sent_to_dead_letters",
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            why=letter.reason,
            to=self._topics.dead,
        )
        headers = [*record.headers, *((name, text.encode()) for name, text in place.items())]
        self._send(
            self._topics.dead,
            record.value,
            key=record.key,
            headers=headers,
            **({"timestamp": record.timestamp_ms} if record.timestamp_ms > 0 else {}),
        )

    def _send(self, topic: str, value: bytes | None, **rest: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, **rest)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _note_end(self, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._last_state = message.offset()

    def _offsets(self, finished: TaskRound) -> list[TheirPartition]:
        found = []
        if finished.data_offset is not None:
            found.append(TheirPartition(*self._partition, finished.data_offset))
        if finished.handover_offset is not None:
            number = self._partition.partition
            found.append(TheirPartition(self._topics.handover, number, finished.handover_offset))
        return found

    def close(self) -> None:
        """Ends the client; an open transaction is rolled back by the next owner."""
        try:
            self._producer.purge(in_queue=True, in_flight=True)
            self._producer.close()
        except KafkaException as error:
            log.info("task_writer_not_closed", partition=str(self._partition), why=str(error))
