"""Sends records to a real topic when they are due, and reports how well it kept the schedule.

Promise  Open loop: the schedule follows the clock, not the acknowledgements. Every record is sent
         when due or, if the client's queue is full or the machine too slow, as soon as possible,
         and then counts as late; none is dropped. Latency runs from due time to acknowledgement.
         One idempotent producer sends everything, so retries neither duplicate nor reorder, and
         partitions keys as the Java client does (murmur2).
Cost     Some 10 µs of one core per record; memory for at most half a million records in flight.
Headers of each record: `tt-seq` (its number in its key, or in its partition if it has no key) and
`tt-ts` (due time, microseconds since 1970; also its timestamp): 8 bytes, big-endian, signed.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, cycle, islice
from typing import Any, NamedTuple, Protocol

import numpy as np
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from numpy.typing import NDArray

from trimtab.errors import BrokerUnavailable, ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.errors import is_authentication, is_retriable, kafka_errors, reason_of
from trimtab.observe.clock import wall_clock_us
from trimtab.workload.due import Acks, DueRecords, Numbering
from trimtab.workload.traces import SentRecords

_librdkafka_log = logging.getLogger("librdkafka")

_CHUNK_RECORDS = 500  # between two checks of the clock and the acknowledgements
_LEAST_WAIT_S = 0.001  # the client waits for whole milliseconds
_LONGEST_WAIT_S = 0.1  # so that a stop takes effect soon
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


class Ack(NamedTuple):
    """An acknowledged record; `offset` is −1 if the broker did not report it."""

    key: bytes | None
    seq: int | None
    partition: int
    offset: int


class LoadProgress(NamedTuple):
    """Progress of a load; `behind_s` is how late the newest record was sent."""

    time_s: float
    sent: int
    acknowledged: int
    failed: int
    behind_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadSummary:
    """The result of a load.

    `asked` are the records due until the end, or until the load was stopped; each of those sent
    was acknowledged or failed. Rates are per second. A record is late if it was sent more than
    `late_after_ms` after it was due. `failures` counts failed records by the client's reason.
    `acknowledged` and the latencies are None with `acks=0`.
    """

    asked: int
    sent: int
    acknowledged: int | None
    failed: int
    asked_rate: float
    achieved_rate: float
    duration_s: float
    late: int
    late_after_ms: float
    max_late_ms: float
    queue_full_s: float
    latency_p50_ms: float | None
    latency_p99_ms: float | None
    failures: Mapping[str, int] = field(default_factory=dict)
    fatal: str | None = None
    interrupted: bool = False

    @property
    def shortfall(self) -> str | None:
        """How far and why the load fell behind its schedule; None if it kept it."""
        if not self.late:
            return None
        why = (
            f"the client's queue was full for {self.queue_full_s:.1f} s"
            if self.queue_full_s > 0
            else "this process could not send faster"
        )
        return (
            f"fell {self.max_late_ms / 1000:.2g} s behind its schedule: {why}; {self.late} of "
            f"{self.sent} records were sent more than {self.late_after_ms:g} ms late"
        )


class RecordProducer(Protocol):
    """The methods needed of a producer: confluent-kafka's, or a fake in tests."""

    def produce(
        self,
        topic: str,
        *,
        value: bytes,
        key: bytes | None,
        partition: int,
        on_delivery: Callable[[Any, Any], None],
        timestamp: int,
        headers: dict[str, str | bytes | None],
    ) -> None:
        """Queues a record; raises BufferError if the queue is full."""
        ...

    def poll(self, timeout: float) -> int:
        """Waits for acknowledgements up to `timeout` seconds, and runs their callbacks."""
        ...

    def flush(self, timeout: float) -> int:
        """Waits until no record is in flight; returns the number still in flight."""
        ...


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
    deadline = time.monotonic() + _METADATA_S
    while True:
        with kafka_errors(f"asking for topic {topic}"):
            found = admin.list_topics(timeout=_METADATA_S).topics.get(topic)
        if found is not None and found.partitions:
            leaderless = [p.id for p in found.partitions.values() if p.leader < 0]
            if not leaderless:
                return len(found.partitions)
        else:
            leaderless = []
        if time.monotonic() > deadline:
            raise BrokerUnavailable(
                f"Topic {topic} has no leader for partitions {sorted(leaderless)}."
                if leaderless
                else f"Topic {topic} is not known to the brokers {_METADATA_S:.0f} s after it "
                "was created.",
                hint="Check the brokers; with a local cluster: trimtab cluster status",
            )
        time.sleep(0.1)


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


# ---------------------------------------------------------------- sending


def send_through(  # noqa: PLR0913 - independent options
    producer: RecordProducer,
    blocks: Iterable[DueRecords],
    *,
    topic: str,
    acks: Acks = Acks.ALL,
    seed: int = 0,
    late_after_s: float = 0.1,
    duration_s: float | None = None,
    clock: Callable[[], float] = time.monotonic,
    now_ts: Callable[[], int] = wall_clock_us,
    on_progress: Callable[[LoadProgress], None] | None = None,
    on_ack: Callable[[Ack], None] | None = None,
    record: Callable[[SentRecords], None] | None = None,
    stop: threading.Event | None = None,
) -> LoadSummary:
    """Like `send`, with an existing producer; it waits only inside the producer's methods."""
    coming = iter(blocks)
    first = list(islice(coming, 1))  # prepared before the clock starts
    run = _Run(
        producer=producer,
        topic=topic,
        clock=clock,
        stop=stop or threading.Event(),
        tally=_Tally(clock=clock, late_after_s=late_after_s, on_ack=on_ack, record=record),
        on_progress=on_progress,
        values=_Values(seed),
        started_ts=now_ts(),
    )
    unsent = 0
    for block in chain(first, coming):
        sent = run.send(block)
        if sent < len(block):
            unsent = _due_by(block, run.now, skip=sent)
            while unsent and (later := next(coming, None)) is not None:
                if not (more := _due_by(later, run.now)):
                    break
                unsent += more
            break
    ended = run.now
    run.deliver()
    tally = run.tally
    whole = duration_s if duration_s is not None else run.last_due_s
    interrupted = run.stop.is_set()
    span = min(whole, ended) if interrupted or run.fatal else whole
    asked = run.sent + unsent
    return LoadSummary(
        asked=asked,
        sent=run.sent,
        acknowledged=None if acks is Acks.NONE else tally.acknowledged,
        failed=tally.failed,
        asked_rate=_rate(asked, span),
        achieved_rate=_rate(run.sent, max(span, run.last_sent_s)),
        duration_s=span,
        late=tally.late,
        late_after_ms=late_after_s * 1000,
        max_late_ms=tally.max_late_s * 1000,
        queue_full_s=run.queue_full_s,
        latency_p50_ms=None if acks is Acks.NONE else tally.latencies.percentile_ms(50),
        latency_p99_ms=None if acks is Acks.NONE else tally.latencies.percentile_ms(99),
        failures=dict(sorted(tally.failures.items())),
        fatal=run.fatal,
        interrupted=interrupted,
    )


def _rate(records: int, span_s: float) -> float:
    return records / span_s if span_s > 0 else 0.0


def _due_by(block: DueRecords, time_s: float, *, skip: int = 0) -> int:
    """Returns how many records are due by a time, without the first `skip`."""
    return max(0, int(np.searchsorted(block.times_s, time_s, side="right")) - skip)


class _Prepared(NamedTuple):
    """A block ready to send: columns, since one object per record would slow garbage collection."""

    values: list[bytes]
    keys: list[bytes | None]
    partitions: list[int]
    callbacks: list[Callable[[Any, Any], None]]
    timestamps_ms: list[int]
    headers: list[dict[str, str | bytes | None]]


class _Run:
    """A running load."""

    def __init__(
        self,
        *,
        producer: RecordProducer,
        topic: str,
        clock: Callable[[], float],
        stop: threading.Event,
        tally: _Tally,
        on_progress: Callable[[LoadProgress], None] | None,
        values: _Values,
        started_ts: int,
    ) -> None:
        self.stop = stop
        self.tally = tally
        self.sent = 0
        self.queue_full_s = 0.0
        self.last_due_s = 0.0
        self.last_sent_s = 0.0
        self.fatal: str | None = None
        self._producer = producer
        self._topic = topic
        self._on_progress = on_progress
        self._values = values
        self._numbering = Numbering()
        self._started_ts = started_ts
        self._clock = clock
        self._start = tally.start = clock()
        self._reported_s = -math.inf

    @property
    def now(self) -> float:
        """Seconds since the start of the load."""
        return self._clock() - self._start

    def send(self, block: DueRecords) -> int:
        """Sends a block, each record when due; returns how many were sent, fewer if stopped."""
        flight = self.tally.begin(block, self._numbering.of(block))
        records = self._prepared(block, flight)
        times = block.times_s.tolist()
        at, count = 0, len(times)
        while at < count and not self.stop.is_set() and self.fatal is None:
            now = self.now
            if times[at] > now:
                wait = min(max(times[at] - now, _LEAST_WAIT_S), _LONGEST_WAIT_S)
                self._producer.poll(wait)
            else:
                due = min(bisect_right(times, now, at), at + _CHUNK_RECORDS)
                reached = self._send_some(records, at, due, flight)
                now = self.now
                flight.sent_at[at:reached] = now
                self.sent += reached - at
                if reached > at:
                    self.last_sent_s = now
                at = reached
                if at < due and self.fatal is None:
                    self._wait_for_room()
                else:
                    self._producer.poll(0)
            self.tally.settle()
            self._report_progress(max(0.0, now - times[min(at, count - 1)]))
        self.last_due_s = times[-1] if at == count else self.now
        flight.close(sent=at)
        return at

    def deliver(self) -> None:
        """Waits until every record is acknowledged or has failed."""
        while self._producer.flush(_LONGEST_WAIT_S):
            self._report_progress(0.0)
        self.tally.settle()
        self._report_progress(0.0, always=True)

    def _send_some(self, records: _Prepared, first: int, end: int, flight: _Flight) -> int:
        """Queues records until `end`; returns the index of the first that did not fit the queue."""
        produce, topic = self._producer.produce, self._topic
        at = first
        for value, key, partition, callback, timestamp, headers in zip(
            *(column[first:end] for column in records), strict=True
        ):
            try:
                produce(
                    topic,
                    value=value,
                    key=key,
                    partition=partition,
                    on_delivery=callback,
                    timestamp=timestamp,
                    headers=headers,
                )
            except BufferError:
                return at
            except KafkaException as error:
                cause = error.args[0]
                flight.delivered(at, cause, None)
                if cause.fatal() or cause.code() == KafkaError._FATAL:
                    self.fatal = cause.str()
                    return at + 1
            at += 1
        return end

    def _wait_for_room(self) -> None:
        since = self._clock()
        self._producer.poll(_LEAST_WAIT_S)
        self.queue_full_s += self._clock() - since

    def _prepared(self, block: DueRecords, flight: _Flight) -> _Prepared:
        due_ts = self._started_ts + np.rint(block.times_s * 1e6).astype(np.int64)
        numbers = np.array([number or 0 for number in flight.numbers], dtype=np.int64)
        return _Prepared(
            values=self._values.of(block),
            keys=list(block.each_key()),
            partitions=list(block.each_partition()),
            callbacks=[partial(flight.delivered, at) for at in range(len(block))],
            timestamps_ms=(due_ts // 1000).tolist(),
            headers=[
                {"tt-ts": ts} if number is None else {"tt-seq": seq, "tt-ts": ts}
                for number, seq, ts in zip(
                    flight.numbers, _eight_bytes(numbers), _eight_bytes(due_ts), strict=True
                )
            ],
        )

    def _report_progress(self, behind_s: float, *, always: bool = False) -> None:
        now = self.now
        if self._on_progress is None or not (always or now - self._reported_s >= _LONGEST_WAIT_S):
            return
        self._reported_s = now
        tally = self.tally
        self._on_progress(LoadProgress(now, self.sent, tally.acknowledged, tally.failed, behind_s))


def _eight_bytes(numbers: NDArray[np.int64]) -> list[bytes]:
    """Returns each number as 8 bytes, big-endian, signed."""
    raw = numbers.astype(">i8").tobytes()
    return [raw[at : at + 8] for at in range(0, len(raw), 8)]


class _Values:
    """Record values: slices of one seeded buffer."""

    __slots__ = ("_buffer", "_pieces", "_rng")
    _PIECES = 64

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._buffer = b""
        self._pieces: list[bytes] = []

    def of(self, block: DueRecords) -> list[bytes]:
        """Returns a value for every record."""
        size = block.value_bytes
        if isinstance(size, int):
            if not self._pieces or len(self._pieces[0]) != size:
                self._pieces = self._cut([size] * self._PIECES)
            return list(islice(cycle(self._pieces), len(block)))
        return self._cut(size.tolist())

    def _cut(self, sizes: list[int]) -> list[bytes]:
        if (missing := max(sizes, default=0) + self._PIECES - len(self._buffer)) > 0:
            self._buffer += self._rng.bytes(missing)
        buffer, starts = self._buffer, cycle(range(self._PIECES))
        return [buffer[at : at + size] for at, size in zip(starts, sizes, strict=False)]


# ---------------------------------------------------------------- counting


class _Tally:
    """Counts the results of the records, block by block, in the order they were sent."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        late_after_s: float,
        on_ack: Callable[[Ack], None] | None,
        record: Callable[[SentRecords], None] | None,
    ) -> None:
        self.clock = clock
        self.start = 0.0
        self.on_ack = on_ack
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()
        self.late = 0
        self.max_late_s = 0.0
        self.latencies = _Latencies()
        self._late_after_s = late_after_s
        self._record = record
        self._flights: deque[_Flight] = deque()

    @property
    def failed(self) -> int:
        """How many records have failed so far."""
        return self.failures.total()

    def begin(self, block: DueRecords, numbers: list[int | None]) -> _Flight:
        """Registers a block before it is sent."""
        flight = _Flight(block, numbers, self)
        self._flights.append(flight)
        return flight

    def settle(self) -> None:
        """Counts the blocks whose records have all been acknowledged or have failed."""
        while self._flights and self._flights[0].open == 0:
            self._count(self._flights.popleft())

    def _count(self, flight: _Flight) -> None:
        behind = flight.sent_at[: flight.sent] - flight.block.times_s[: flight.sent]
        self.late += int(np.count_nonzero(behind > self._late_after_s))
        self.max_late_s = max(self.max_late_s, float(behind.max(initial=0.0)))
        acked_at = np.array(flight.acked_at)
        kept = np.flatnonzero(~np.isnan(acked_at))
        due = flight.block.times_s[kept]
        self.latencies.add(acked_at[kept] - self.start - due)
        if self._record is not None and kept.size:
            keys = list(flight.block.each_key())
            sizes = np.broadcast_to(np.asarray(flight.block.value_bytes), len(flight.block))
            self._record(
                SentRecords(
                    times_s=due,
                    keys=[keys[at] for at in kept.tolist()],
                    partitions=np.array(flight.partitions)[kept],
                    offsets=np.maximum(np.array(flight.offsets)[kept], -1),
                    value_bytes=sizes[kept].astype(np.int64),
                )
            )


class _Flight:
    """A block in flight: send and acknowledgement times, partitions and offsets."""

    __slots__ = (
        *("acked_at", "block", "numbers", "offsets", "open", "partitions", "sent", "sent_at"),
        "_keys",
        "_tally",
    )

    def __init__(self, block: DueRecords, numbers: list[int | None], tally: _Tally) -> None:
        count = len(block)
        self.block = block
        self.numbers = numbers
        self.open = count + 1  # itself, until it is closed
        self.sent = 0
        self.sent_at = np.zeros(count)
        self.acked_at = [math.nan] * count
        self.partitions = [-1] * count
        self.offsets = [-1] * count
        self._keys = block.keys
        self._tally = tally

    def delivered(self, at: int, error: KafkaError | None, message: Any) -> None:
        """Records the delivery report of a record."""
        self.open -= 1
        tally = self._tally
        if error is not None:
            tally.failures[error.name()] += 1
            return
        self.acked_at[at] = tally.clock()
        tally.acknowledged += 1
        self.partitions[at] = where = message.partition()
        self.offsets[at] = offset = message.offset()
        if tally.on_ack is not None:
            key = None if self._keys is None else self._keys[at]
            tally.on_ack(Ack(key, self.numbers[at], where, max(offset, -1)))

    def close(self, *, sent: int) -> None:
        """Marks that no more records of the block are sent."""
        self.sent = sent
        self.open -= 1 + len(self.block) - sent


class _Latencies:
    """A histogram of latencies whose buckets are 1 % wide, from 1 µs to a day."""

    _GROWTH = math.log(1.01)
    _LEAST_S = 1e-6

    def __init__(self) -> None:
        self._counts = np.zeros(math.ceil(math.log(86_400 / self._LEAST_S) / self._GROWTH) + 1)

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Adds latencies."""
        grown = np.log(np.maximum(seconds, self._LEAST_S) / self._LEAST_S) / self._GROWTH
        buckets = np.minimum(np.rint(grown).astype(np.int64), self._counts.size - 1)
        self._counts += np.bincount(buckets, minlength=self._counts.size)

    def percentile_ms(self, percent: float) -> float | None:
        """Returns the nearest-rank percentile, within 0.5 %; None if there are no latencies."""
        ranks = np.cumsum(self._counts)
        if not ranks[-1]:
            return None
        bucket = int(np.searchsorted(ranks, math.ceil(ranks[-1] * percent / 100)))
        return round(1000 * self._LEAST_S * math.exp(bucket * self._GROWTH), 3)
