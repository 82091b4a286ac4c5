"""The halfway collector: consumes topics and forwards their records with one shared partitioner.

Promise  At least once: an offset is committed when all in-sync replicas have acknowledged every
         record up to it; after a crash unacknowledged records are sent again. Keys, values, headers
         and timestamps are kept. The first copies of a key's records arrive in order, by an
         idempotent producer and Kafka's hash. Before a rebalance revokes partitions, it waits for
         their unacknowledged records. A source partition whose offsets go back (truncated, created
         again) is read from its start. A record that the target refuses ends it with an error.
Cost     A hop more (10 ms to fill batches); a Python callback per record; 20 000 records or 64 MB.
Paper    Burato, section on halfway collectors; Theorem F of the partitioners page.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import structlog
from confluent_kafka import KafkaError, KafkaException

from trimtab.apply.records.forwarding import ForwardProgress
from trimtab.apply.records.kafka.forward_route import ForwardReport, Route, Survey
from trimtab.apply.records.kafka.forward_source import End, GroupSource
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.apply.records.kafka.weights_reader import WeightsReader
from trimtab.errors import ApplyError, BrokerUnavailable, TrimtabError, UnknownTopic
from trimtab.kafka.cluster import POLL_SLICE_S, Cluster
from trimtab.kafka.errors import kafka_errors, reason_of, translated
from trimtab.kafka.publisher import reliable
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe import metrics
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.live_weights import LiveWeights
from trimtab.plan.records.ratios import ratios

log = structlog.get_logger()

MOST_RECORDS = 20_000
MOST_BYTES = 64_000_000
_TURN = 500
_COMMIT_EVERY_S = 1.0
_COLLECT_S = 5.0  # short: only reports that have arrived already
_ROOM = 1024
_LINGER_MS = 10  # with less, an idempotent librdkafka burns several times the processor time


class RecordSource(Protocol):
    """The source of records; used by one thread."""

    def next(self, timeout_s: float) -> Record | End | None:
        """The next record, or the end of a partition; None after `timeout_s`.

        Rebalances happen within it: the hooks are called before it returns.
        """
        ...

    def owned(self) -> Collection[TopicPartition]:
        """The partitions that are read now."""
        ...

    def ends(self) -> Mapping[TopicPartition, int]:
        """The current end offsets of the source topics."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, int], *, wait: bool) -> bool:
        """Commits offsets; with `wait` returns whether they are committed."""
        ...

    def hold(self, *, still: bool) -> None:
        """Pauses or resumes reading; it stays a member of the group."""
        ...

    def close(self) -> None:
        """Leaves the group."""
        ...


class RecordTarget(Protocol):
    """The target of records, such as `RoutedProducer`."""

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        headers: Any = None,
        timestamp: int = 0,
        on_delivery: Callable[[KafkaError | None, Any], None] | None = None,
    ) -> None:
        """Queues a record."""
        ...

    def poll(self, timeout: float = 0.0) -> int:
        """Calls `on_delivery` of delivered records."""
        ...


class Forwarder:
    """Forwards records from the source to the target until it is stopped."""

    def __init__(
        self,
        route: Route,
        source: RecordSource,
        target: RecordTarget,
        *,
        leaders: Callable[[], LeaderSnapshot],
        delivery_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._route = route
        self._source = source
        self._target = target
        self._leaders = leaders
        self._clock = clock
        self._delivery_s = self._settle_s = delivery_s
        self._progress = ForwardProgress()
        self._failure: ApplyError | None = None
        self._ends: Mapping[TopicPartition, int] = {}
        self._assigned = False
        self._held = False
        self._taken = self._committed = 0
        self._brokers: Counter[int] = Counter()
        self._partitions: Counter[TopicPartition] = Counter()

    @property
    def report(self) -> ForwardReport:
        """The report so far."""
        snapshot = self._leaders()
        known = {p: n for p, n in self._partitions.items() if p.topic in snapshot.topics}
        return ForwardReport(
            taken=self._taken,
            forwarded=self._partitions.total(),
            committed=self._committed,
            brokers=dict(sorted(self._brokers.items())),
            partitions=dict(sorted(self._partitions.items())),
            ratios=ratios(known, snapshot) if known else None,
        )

    def run(self, stop: threading.Event) -> ForwardReport:
        """Forwards until `stop` is set or the route's end; then commits and leaves the group.

        Raises ApplyError if a record cannot be delivered; what was acknowledged before is
        committed.
        """
        try:
            self._forward(stop)
        except ApplyError:
            self._collect()
            self._commit(wait=True)
            raise
        finally:
            self._settle_s = 0.0  # closing must not wait again
            self._source.close()
        return self.report

    def _forward(self, stop: threading.Event) -> None:
        if self._route.until_end:
            self._ends = self._source.ends()
        due = self._clock() + _COMMIT_EVERY_S
        while not (stop.is_set() or self._is_done()):
            self._turn()
            if self._clock() >= due:
                self._commit(wait=False)
                due = self._clock() + _COMMIT_EVERY_S
        left = self._settled(self._source.owned())
        if left:
            raise ApplyError(
                f"{left} records were not acknowledged within {self._settle_s:g} s.",
                hint="Their offsets are not committed: they are forwarded at the next start.",
            )

    # ------------------------------------------------------------ called by the source

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions were assigned: they start at their committed offsets."""
        self._progress.forget(partitions)
        self._assigned = True
        log.info("partitions_assigned", partitions=len(partitions))

    def settle(self, partitions: Collection[TopicPartition]) -> None:
        """Waits until the records of these are acknowledged, commits, and releases them."""
        try:
            left = self._settled(partitions)
            if left:
                log.warning("records_were_not_acknowledged", records=left)
        finally:
            self.lost(partitions)

    def _settled(self, partitions: Collection[TopicPartition]) -> int:
        """Waits for acknowledgements and commits; returns how many are missing."""
        deadline = self._clock() + self._settle_s
        try:
            while self._progress.under_way(partitions) and self._clock() < deadline:
                self._poll(POLL_SLICE_S)
        finally:
            self._commit(wait=True)
        return self._progress.under_way(partitions)

    def fail(self, error: ApplyError) -> None:
        """Ends forwarding with this error at the next opportunity."""
        self._failure = self._failure or error

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        """Another member owns these already: they are not committed any more."""
        self._assigned = False  # no partitions during a rebalance does not mean that all is done
        self._progress.forget(partitions)

    def on_commit_failed(self, partitions: Collection[TopicPartition]) -> None:
        """An asynchronous commit of these failed: it is repeated."""
        self._progress.not_committed(partitions)

    # ------------------------------------------------------------ internal

    def _has_enough(self) -> bool:
        return self._route.records is not None and self._taken >= self._route.records

    def _is_done(self) -> bool:
        return self._has_enough() or (
            self._route.until_end
            and self._assigned
            and all(
                self._progress.position(p) >= self._ends.get(p, 0) for p in self._source.owned()
            )
        )

    def _turn(self) -> None:
        full = self._progress.records >= MOST_RECORDS or self._progress.bytes >= MOST_BYTES
        if full != self._held:
            self._held = full
            self._source.hold(still=full)
        timeout_s = POLL_SLICE_S if not self._progress.records else 0.005
        for _ in range(_TURN):
            found = self._source.next(timeout_s)
            if found is None:
                break
            if isinstance(found, End):
                self._check_restart(found.partition, found.position)
                self._progress.reached(found.partition, found.position)
            else:
                self._send(found)
            if self._has_enough():
                break
            timeout_s = 0.0
        self._poll(POLL_SLICE_S if full else 0.0)

    def _check_restart(self, partition: TopicPartition, offset: int) -> None:
        """Restarts a partition whose offsets go back: it was truncated, or created again."""
        position = self._progress.position(partition)
        if offset >= position:
            return
        log.warning("source_offset_went_back", partition=str(partition), at=offset, was=position)
        self._progress.restart(partition)
        if self._route.until_end:
            self._ends = {**self._ends, partition: self._source.ends().get(partition, 0)}

    def _send(self, record: Record) -> None:
        self._check_restart(record.source, record.offset)
        lap = self._progress.taken(record.source, record.offset, size=record.size)
        self._taken += 1
        try:
            self._target.produce(
                self._route.topics[record.topic],
                record.value,
                record.key,
                headers=list(record.headers) or None,
                timestamp=max(0, record.timestamp_ms),
                on_delivery=partial(self._delivered, record.source, record.offset, lap),
            )
        except (TrimtabError, KafkaException, BufferError) as error:
            ours = error if isinstance(error, TrimtabError) else self._not_taken(error)
            raise ApplyError(
                f"{record.source} offset {record.offset} could not be forwarded: {ours.message}",
                hint=ours.hint,
            ) from error

    def _not_taken(self, error: KafkaException | BufferError) -> TrimtabError:
        if isinstance(error, BufferError):
            return BrokerUnavailable(
                f"The buffer of the target's producer stayed full for {self._delivery_s:g} s.",
                hint="The brokers are slower than the source, or down; check that they run.",
            )
        return translated(error, "writing to the target")

    def _delivered(
        self, source: TopicPartition, offset: int, lap: int, error: KafkaError | None, message: Any
    ) -> None:
        if error is not None:
            if self._failure is None:
                self._failure = _refused(source, offset, error, message)
            return
        place = TopicPartition(message.topic(), message.partition())
        self._partitions[place] += 1
        with suppress(UnknownTopic):  # deleted meanwhile
            leader = self._leaders().topic(place.topic).leader.get(place.partition, -1)
            if leader >= 0:
                self._brokers[leader] += 1
        metrics.forward_records_total.labels(place.topic).inc()
        self._progress.acknowledged(source, offset, lap=lap)

    def _poll(self, timeout_s: float) -> None:
        """Processes delivery reports; raises if the producer has failed."""
        try:
            self._target.poll(timeout_s)
        except KafkaException as error:
            raise ApplyError(
                f"The producer of the target failed: {reason_of(error)}",
                hint="Start the forwarder again: it continues at its committed offsets.",
            ) from error
        if self._failure is not None:
            raise self._failure

    def _collect(self) -> None:
        """Processes remaining delivery reports after a failure, so that less is repeated."""
        deadline = self._clock() + _COLLECT_S
        while self._progress.records and self._clock() < deadline:
            try:
                if not self._target.poll(POLL_SLICE_S):
                    break
            except KafkaException:
                continue  # the failure is raised again; reports come after it

    def _commit(self, *, wait: bool) -> None:
        offsets = self._progress.safe(again=wait)
        if not offsets:
            return
        try:
            kept = self._source.commit(offsets, wait=wait)
        except TrimtabError as error:
            kept = False
            log.warning("offsets_were_not_committed", why=error.message)
        if kept:
            self._committed += len(offsets)
            if wait:
                self._progress.kept(offsets)
        else:
            self._progress.not_committed(offsets)


def _refused(source: TopicPartition, offset: int, error: KafkaError, message: Any) -> ApplyError:
    hints = {
        KafkaError.MSG_SIZE_TOO_LARGE: "Raise max.message.bytes of the target topic.",
        KafkaError.INVALID_TIMESTAMP: "Raise message.timestamp.before.max.ms, or after.max.ms, of "
        "the target topic: timestamps are kept.",
        KafkaError.TOPIC_AUTHORIZATION_FAILED: "Give the target's user the ACL Write.",
        KafkaError.UNKNOWN_TOPIC_OR_PART: "Check whether the target topic was deleted.",
    }
    size = len(message.value() or b"") + len(message.key() or b"") if message is not None else 0
    return ApplyError(
        f"{source} offset {offset} ({size} bytes) was refused by topic "
        f"{message.topic() if message is not None else 'of the target'}: {error.str()}",
        hint=hints.get(
            error.code(),
            "Offsets after it are not committed: fix the cause and start again.",
        ),
    )


@contextmanager
def open_forwarder(
    surveyed: Survey,
    source: Cluster,
    target: Cluster,
) -> Iterator[Forwarder]:
    """A forwarder between real clusters.

    `weighted-node` follows the weights that steering publishes on the target.
    """
    route, delivery_s = surveyed.route, target.timeouts.delivery_s
    with ExitStack() as open_now:
        options = route.options
        if route.partitioner == "weighted-node":
            live = LiveWeights()
            reader = WeightsReader(target, live)
            open_now.enter_context(reader)
            options = replace(options, weights=live)
        config = reliable(target, client_id="trimtab-forward", linger_ms=_LINGER_MS) | {
            "message.timeout.ms": 0,  # no limit: it waits for an unavailable target
            "message.max.bytes": 1_000_000_000,  # the topic's limit is checked by the brokers
            "batch.size": max(1, min(1_000_000, surveyed.largest_bytes - _ROOM)),
            "partitioner": "murmur2_random",  # Kafka's hash
        }
        with kafka_errors("starting a producer"):
            producer = RoutedProducer(config, route.partitioner, options, wait_s=delivery_s)
        open_now.callback(_close, producer)
        for topic in sorted(set(route.topics.values())):
            producer.watch.ensure_known(topic)
        reading = GroupSource(
            route.group, sorted(route.topics), source, from_latest=route.from_latest
        )
        forwarder = Forwarder(
            route,
            reading,
            producer,
            leaders=lambda: producer.watch.snapshot,
            delivery_s=delivery_s,
        )
        reading.hooks = forwarder
        yield forwarder


def _close(producer: RoutedProducer) -> None:
    """Closes a producer; records that it still holds are not committed, and sent again later."""
    producer.purge()
    with suppress(KafkaException):
        producer.close()
