"""Sends a load to a real topic, and makes the topic if it is asked to.

Promise  One idempotent producer sends everything, so retries neither duplicate nor reorder, and
         partitions keys as the Java client does (murmur2). The schedule is kept as `open_loop`
         says.
Cost     Some 10 µs of one core per record; memory for at most half a million records in flight.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.errors import BrokerUnavailable, ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_authentication, is_retriable, kafka_errors, reason_of
from trimtab.observe.clock import TimedOut, wait_until
from trimtab.workload.due import Acks, DueRecords
from trimtab.workload.kafka.open_loop import send_through
from trimtab.workload.load_summary import Ack, LoadProgress, LoadSummary
from trimtab.workload.traces import SentRecords

_librdkafka_log = logging.getLogger("librdkafka")
_QUEUE_RECORDS = 500_000
_QUEUE_KBYTES = 512 * 1024
_METADATA_S = 10.0
_MOST_REPLICAS = 3
_INVALID_REQUEST = {
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """Delivery settings of the producer; a record fails after `timeout_s` without success."""

    acks: Acks = Acks.ALL
    linger_ms: float = 5.0
    timeout_s: float = 120.0

    def config(self) -> dict[str, Any]:
        """Returns the client's settings."""
        ordered: dict[str, Any] = (
            {"enable.idempotence": True}
            if self.acks is Acks.ALL
            # Without idempotence, retries keep the order only with one request in flight.
            else {"max.in.flight.requests.per.connection": 1}
        )
        return ordered | {
            "acks": str(self.acks),
            "linger.ms": self.linger_ms,
            "message.timeout.ms": math.ceil(self.timeout_s * 1000),
        }


# ---------------------------------------------------------------- Kafka


def send(  # noqa: PLR0913 - independent options
    blocks: Iterable[DueRecords],
    *,
    topic: str,
    cluster: Cluster,
    delivery: Delivery | None = None,
    seed: int = 0,
    late_after_s: float = 0.1,
    duration_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_ack: Callable[[Ack], None] | None = None,
    record: Callable[[SentRecords], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadSummary:
    """Sends all blocks to an existing topic, each record when it is due.

    Args:
        blocks: The records; time 0 is the start of sending.
        topic: The topic to send to.
        cluster: The cluster of that topic.
        delivery: Delivery settings of the producer.
        seed: Seed of the values' bytes.
        late_after_s: A record sent later than this after its due time counts as late.
        duration_s: The time that rates refer to; by default until the last record is due.
        clock: A monotonic clock, in seconds.
        on_progress: Called with the progress several times a second.
        on_ack: Called for each record when it is acknowledged.
        record: Called with all acknowledged records, in the order of their due times.
        stop: Once set, no more records are sent; those in flight are still delivered.
    """
    chosen = delivery or Delivery()
    with _producer(cluster, chosen) as producer:
        return send_through(
            producer,
            blocks,
            topic=topic,
            acks=chosen.acks,
            seed=seed,
            late_after_s=late_after_s,
            duration_s=duration_s,
            clock=clock,
            on_progress=on_progress,
            on_ack=on_ack,
            record=record,
            stop=stop,
        )


def ensure_topic(
    topic: str,
    *,
    cluster: Cluster,
    create: int | None = None,
    replication_factor: int | None = None,
    least_partitions: int = 1,
) -> int:
    """Returns the number of partitions of a topic; creates it with `create` partitions if missing.

    A new topic has min.insync.replicas such that one replica may be lost.
    """
    auth_errors: list[KafkaError] = []
    with kafka_errors(f"asking {cluster.servers} for its topics"):
        admin = AdminClient(_client(cluster, auth_errors))
        found = _metadata(admin, auth_errors)
    if topic not in found.topics:
        if create is None:
            raise ConfigError(
                f"There is no topic {topic}.", hint=f"Create it with --create {least_partitions}."
            )
        if create < least_partitions:
            raise ConfigError(
                f"A topic of {create} partitions is too small: this load needs {least_partitions}.",
                hint=f"Use --create {least_partitions} or more.",
            )
        replicas = replication_factor or min(_MOST_REPLICAS, len(found.brokers))
        made = NewTopic(
            topic,
            num_partitions=create,
            replication_factor=replicas,
            config={"min.insync.replicas": str(max(1, replicas - 1))},
        )
        with kafka_errors(f"creating topic {topic}"):
            try:
                admin.create_topics([made])[topic].result(timeout=_METADATA_S)
            except KafkaException as error:
                code = error.args[0].code()
                if code in _INVALID_REQUEST:
                    raise ConfigError(
                        f"The brokers refused to create topic {topic}: {reason_of(error)}",
                        hint="Check --topic, --create and --replication-factor.",
                    ) from error
                if code != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
    partitions = _wait_for_leaders(admin, topic)
    if partitions < least_partitions:
        raise ConfigError(
            f"Topic {topic} has {partitions} partitions; this load needs {least_partitions}.",
            hint="Choose another topic, or a load of fewer partitions.",
        )
    return partitions


def _wait_for_leaders(admin: AdminClient, topic: str) -> int:
    """Returns the number of partitions of a topic as soon as each has a leader."""
    leaderless: list[int] = []

    def partitions() -> int:
        with kafka_errors(f"asking for topic {topic}"):
            found = admin.list_topics(timeout=_METADATA_S).topics.get(topic)
        known = found.partitions.values() if found is not None else ()
        leaderless[:] = [p.id for p in known if p.leader < 0]
        return 0 if leaderless else len(known)

    try:
        return wait_until(partitions, within_s=_METADATA_S)
    except TimedOut:
        raise BrokerUnavailable(
            f"Topic {topic} has no leader for partitions {sorted(leaderless)}."
            if leaderless
            else f"Topic {topic} is not known to the brokers {_METADATA_S:.0f} s after it "
            "was created.",
            hint="Check the brokers; with a local cluster: trimtab cluster status",
        ) from None


@contextmanager
def _producer(cluster: Cluster, delivery: Delivery) -> Iterator[Producer]:
    auth_errors: list[KafkaError] = []
    config = _client(cluster, auth_errors) | delivery.config()
    with kafka_errors("starting the producer"):
        producer = Producer(
            config
            | {
                "partitioner": "murmur2_random",  # librdkafka's default differs from Java's
                "queue.buffering.max.messages": _QUEUE_RECORDS,
                "queue.buffering.max.kbytes": _QUEUE_KBYTES,
            }
        )
        _metadata(producer, auth_errors)  # connected before the clock starts
    yield producer


def _client(cluster: Cluster, auth_errors: list[KafkaError]) -> dict[str, Any]:
    """Returns a client's settings; authentication failures are added to `auth_errors`."""

    def on_error(error: KafkaError) -> None:
        if is_authentication(KafkaException(error)):
            auth_errors.append(error)

    return cluster.client("trimtab-load", {"error_cb": on_error, "logger": _librdkafka_log})


def _metadata(client: AdminClient | Producer, auth_errors: Sequence[KafkaError]) -> Any:
    """Asks for brokers and topics; fails at once if authentication fails."""
    deadline, patience_s = time.monotonic() + _METADATA_S, 1.0
    while True:
        try:
            return client.list_topics(timeout=patience_s)
        except KafkaException as error:
            client.poll(0)  # runs the error callback
            if auth_errors:
                raise KafkaException(auth_errors[0]) from error
            left_s = deadline - time.monotonic()
            if not is_retriable(error) or left_s <= 0:
                raise
            patience_s = min(patience_s * 2, left_s)
