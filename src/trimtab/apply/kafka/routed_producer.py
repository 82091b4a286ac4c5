"""A confluent-kafka producer whose partitions are chosen by one of our partitioners.

Why      librdkafka takes no partitioner from Python; so the partition is chosen here and given.
Promise  A record never waits for metadata, save the first of a topic. Keyed records go where the
         Java client's hash puts them, by murmur2 and not by librdkafka's default CRC32: others that
         write the topic should set `partitioner=murmur2_random`.
         A delivery error that speaks of leaders makes the watch look again at once. A partition
         that is gone, since its topic was made anew with fewer, is chosen anew; only a record that
         was under way then is reported to `on_delivery` as failed.
         Several threads may produce. Several producers may share one partitioner, and must share
         the watch then. Errors of the client leave as ours.
Cost     Per record one choice and one call of librdkafka, and a Python callback on delivery.

librdkafka does not tell when a batch is full: `sticky` goes by its `sticky_bytes` and `linger_s`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from trimtab.apply.kafka.leader_watch import ClientSource, LeaderWatch
from trimtab.apply.outstanding import Outstanding, UnderWay
from trimtab.client_properties import ClientProperties
from trimtab.errors import BrokerUnavailable, UnknownTopic
from trimtab.plan.routing.counters import Once
from trimtab.plan.routing.partitioner import Partitioner, RoutingOptions, nothing_queued
from trimtab.plan.routing.registry import DEFAULTS, partitioner_of
from trimtab.workload.kafka.errors import kafka_errors, translated

OnDelivery = Callable[[KafkaError | None, Any], None]
Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]

_LEADERS_MOVED = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._MSG_TIMED_OUT,
        KafkaError._TRANSPORT,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
    }
)
_PARTITION_GONE = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
_BY_QUEUE = frozenset({"adaptive", "rack-aware"})
_POLL_S = 0.1
_ANSWER_S = 5.0
_GONE_FOR_S = 30.0


class RoutedProducer:
    """Chooses the partition of each record and hands it to `producer`, which stays in reach."""

    def __init__(
        self,
        producer: Any,
        partitioner: Partitioner,
        watch: LeaderWatch,
        *,
        outstanding: Outstanding | None = None,
        wait_s: float = 60.0,
        owns_watch: bool = False,
    ) -> None:
        """Wraps a producer that is there already; `connect` makes one.

        Args:
            producer: A `confluent_kafka.Producer`.
            partitioner: Who chooses; may be shared.
            watch: Who knows the leaders; must be shared along with the partitioner.
            outstanding: Told of all that is under way, for `adaptive`.
            wait_s: How long a record may wait for room in the buffer. With 0 a full buffer raises
                BufferError at once, and the choice is kept for a later record.
            owns_watch: Whether `close` closes the watch.
        """
        self.producer = producer
        self.watch = watch
        self._choose = partitioner.partition
        self._hand_over: Callable[..., None] = producer.produce
        self._told: OnDelivery = self._on_delivery
        self._wait_s = wait_s
        self._owns_watch = owns_watch
        self._returned: dict[str, list[int]] = {}
        self._returning = threading.Lock()
        if outstanding is not None:
            outstanding.follow(lambda: watch.snapshot)
            self._hand_over = _counting(producer.produce, outstanding, self._told)

    @classmethod
    def connect(  # noqa: PLR0913 - each is a choice of its own
        cls,
        bootstrap_server: str,
        properties: ClientProperties,
        partitioner: Partitioner,
        *,
        config: Mapping[str, Any] | None = None,
        watch: LeaderWatch | None = None,
        outstanding: Outstanding | None = None,
        racks: bool = False,
        metadata_refresh_s: float = 5.0,
        wait_s: float = 60.0,
    ) -> Self:
        """A new producer.

        Args:
            bootstrap_server: The cluster.
            properties: How to reach it.
            partitioner: Who chooses; may be shared.
            config: More settings of librdkafka.
            watch: That of the producer which the partitioner is shared with; else its own.
            outstanding: Told of all that is under way, for `adaptive`.
            racks: Whether its own watch asks where brokers stand, for `rack-aware`.
            metadata_refresh_s: How often its own watch looks at the leaders.
            wait_s: As above.
        """
        where: dict[str, Any] = {
            "logger": logging.getLogger("librdkafka"),
            **properties.for_confluent(),
            "bootstrap.servers": bootstrap_server,
        }
        settings = where | dict(config or {})
        told: list[LeaderWatch] = []
        settings["error_cb"] = _looking_again(told, settings.get("error_cb"))
        with kafka_errors("starting a producer"):
            producer = Producer(settings)
        own = watch is None
        if watch is None:
            source = ClientSource(producer, (lambda: AdminClient(where)) if racks else None)
            watch = LeaderWatch(source, refresh_s=metadata_refresh_s)
        told.append(watch)
        return cls(
            producer, partitioner, watch, outstanding=outstanding, wait_s=wait_s, owns_watch=own
        )

    @classmethod
    def named(
        cls,
        bootstrap_server: str,
        properties: ClientProperties,
        partitioner: str,
        options: RoutingOptions = DEFAULTS,
        *,
        config: Mapping[str, Any] | None = None,
        stuck_after_s: float | None = None,
        metadata_refresh_s: float = 5.0,
    ) -> Self:
        """A new producer with a partitioner of its own, which is told what it wants to know.

        Args:
            bootstrap_server: The cluster.
            properties: How to reach it.
            partitioner: Its name.
            options: What it may be told; queues are added where they matter and none are given.
            config: More settings of librdkafka.
            stuck_after_s: When `adaptive` leaves a silent broker alone; None for never.
            metadata_refresh_s: How often it looks at the leaders.
        """
        outstanding = None
        if partitioner in _BY_QUEUE and options.queues is nothing_queued:
            outstanding = Outstanding(
                batch_bytes=options.sticky_bytes, stuck_after_s=stuck_after_s, clock=options.clock
            )
            options = replace(options, queues=outstanding.queues, stuck=outstanding.stuck)
        return cls.connect(
            bootstrap_server,
            properties,
            partitioner_of(partitioner, options),
            config=config,
            outstanding=outstanding,
            racks=partitioner == "rack-aware",
            metadata_refresh_s=metadata_refresh_s,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self.producer)

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        *,
        headers: Headers | None = None,
        timestamp: int = 0,
        on_delivery: OnDelivery | None = None,
        partition: int | None = None,
    ) -> None:
        """Takes a record; one that has its partition keeps it.

        Args:
            topic: Where it goes; unknown raises UnknownTopic.
            value: What it says.
            key: Whose it is; None for nobody's.
            headers: What goes with it.
            timestamp: When it happened, in milliseconds; 0 for now.
            on_delivery: Called with (error or None, message) from within `poll` or `flush`.
            partition: Set by the caller; None to let it be chosen.
        """
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        size = 0 if value is None else len(value)
        if key is not None:
            size += len(key)
        chosen = partition
        if chosen is None and key is None and self._returned:
            chosen = self._given_back(topic)
        if chosen is None:
            try:
                chosen = self._choose(topic, key, size, self.watch.snapshot)
            except UnknownTopic:
                chosen = self._met(topic, key, size)
        told = self._told if on_delivery is None else _both(self._told, on_delivery)
        try:
            self._hand_over(topic, value, key, chosen, told, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            rest = told, None, timestamp, headers
            self._insist(error, (topic, value, key), rest, chosen, free=partition is None)

    def poll(self, timeout: float = 0.0) -> int:
        """Calls `on_delivery` of what was delivered; returns how many it called."""
        called: int = self.producer.poll(timeout)
        return called

    def flush(self, timeout: float = -1.0) -> int:
        """Waits until everything is delivered; returns how many records are not."""
        left: int = self.producer.flush(timeout)
        return left

    def close(self, timeout: float = -1.0) -> None:
        """Delivers what is under way and ends the watch, if it is this one's own."""
        try:
            self.flush(timeout)
        finally:
            if self._owns_watch:
                self.watch.close()

    def _met(self, topic: str, key: bytes | None, size: int) -> int:
        self.watch.meet(topic)
        return self._choose(topic, key, size, self.watch.snapshot)

    def _given_back(self, topic: str) -> int | None:
        """The choice for a record that was not taken: the next one has it, and nothing steps."""
        with self._returning:
            kept = self._returned.get(topic)
            if not kept:
                return None
            chosen = kept.pop(0)
            if not kept:
                del self._returned[topic]
        try:
            return chosen if self.watch.snapshot.topic(topic).takes(chosen) else None
        except UnknownTopic:
            return None

    def _insist(
        self,
        error: Exception,
        record: tuple[str, bytes | None, bytes | None],
        rest: tuple[Any, ...],
        chosen: int,
        *,
        free: bool,
    ) -> None:
        """Sends what the client did not take: there is no room, or the partition is gone."""
        topic, value, key = record
        size = len(value or b"") + len(key or b"")
        began = time.monotonic()
        while True:
            if isinstance(error, BufferError):
                if self._wait_s <= 0:
                    if free and key is None:
                        with self._returning:
                            self._returned.setdefault(topic, []).append(chosen)
                    raise error
                if time.monotonic() > began + self._wait_s:
                    raise BrokerUnavailable(
                        f"The buffer stayed full for {self._wait_s:g} s, while writing to {topic}.",
                        hint="The brokers take less than is sent; check that they run.",
                    ) from error
                self.producer.poll(_POLL_S)
            elif free and _is_gone(error) and time.monotonic() < began + _GONE_FOR_S:
                chosen = self._chosen_anew(topic, key, size)
            else:
                raise translated(error, f"writing to topic {topic}") from error
            try:
                self._hand_over(topic, value, key, chosen, *rest)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                return

    def _chosen_anew(self, topic: str, key: bytes | None, size: int) -> int:
        """Lets client and watch look at the topic, which has other partitions than they thought."""
        with suppress(KafkaException):  # the watch says what is wrong
            self.producer.list_topics(topic, timeout=_ANSWER_S)
        self.producer.poll(_POLL_S)
        self.watch.refresh(topic)
        return self._met(topic, key, size)

    def _on_delivery(self, error: KafkaError | None, _message: Any) -> None:
        if error is not None and error.code() in _LEADERS_MOVED:
            self.watch.look_again()


def _looking_again(told: Sequence[LeaderWatch], also: Callable[[KafkaError], None] | None) -> Any:
    """An `error_cb` by which a lost connection makes the watches look again."""

    def on_error(error: KafkaError) -> None:
        if error.code() in _LEADERS_MOVED:
            for watch in told:
                watch.look_again()
        if also is not None:
            also(error)

    return on_error


def _both(first: OnDelivery, then: OnDelivery) -> OnDelivery:
    def told(error: KafkaError | None, message: Any) -> None:
        first(error, message)
        then(error, message)

    return told


def _counting(
    produce: Callable[..., None], outstanding: Outstanding, always: OnDelivery
) -> Callable[..., None]:
    """Hands records over and notes them as under way; before, for an answer may come at once.

    Each partition has callbacks of its own, which need not ask a message where it went.
    """
    lines: Once[str, Once[int, _Line]] = Once(
        lambda topic: Once(lambda partition: _Line(outstanding.place(topic, partition), always))
    )

    def hand_over(
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        told: OnDelivery,
        unused: None,
        timestamp: int,
        headers: Headers | None,
    ) -> None:
        line = lines[topic][partition]
        size = 0 if value is None else len(value)
        counted = line.keyless
        if key is not None:
            size += len(key)
            counted = line.keyed
        if told is not always:
            counted = _both(counted, told)
        line.place.sent(size)
        try:
            produce(topic, value, key, partition, counted, unused, timestamp, headers)
        except BaseException:
            line.place.dropped(size)
            raise

    return hand_over


class _Line:
    """One partition on the way there, and what is told on the way back."""

    __slots__ = ("keyed", "keyless", "place")

    def __init__(self, place: UnderWay, always: OnDelivery) -> None:
        done, dropped = place.done, place.dropped

        def keyless(error: KafkaError | None, message: Any) -> None:
            if error is None:
                done(len(message))
            else:
                dropped(len(message))
                always(error, message)

        def keyed(error: KafkaError | None, message: Any) -> None:
            size = len(message) + len(message.key() or b"")
            if error is None:
                done(size)
            else:
                dropped(size)
                always(error, message)

        self.place = place
        self.keyless: OnDelivery = keyless
        self.keyed: OnDelivery = keyed


def _is_gone(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PARTITION_GONE
