"""A confluent-kafka producer whose keyless records are routed by one of our partitioners.

Why      librdkafka takes no partitioner from Python, so the partition is chosen before `produce`.
Promise  Otherwise it behaves like `confluent_kafka.Producer`: methods, arguments, callbacks and
         exceptions. Records with a partition keep it; keyed records are left to the client and its
         setting `partitioner`, so no key moves. Only the first record of a topic waits for
         metadata; while leaders are unknown, the client chooses. Lost connections and delivery
         errors about leaders (if a callback is configured) refresh the leaders at once. Several
         threads may produce; producers that share a partitioner must share the watch.
Cost     Per routed record one choice and one call in Python.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self
from weakref import ref

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from trimtab.apply.records.kafka.delivery_callbacks import (
    OnDelivery,
    counting,
    ignored,
    refreshing_watches,
)
from trimtab.apply.records.kafka.leader_watch import ClientSource, LeaderWatch
from trimtab.apply.records.kafka.producer_arguments import (
    admin_settings,
    check_client,
    check_reports,
    chooser_of,
    keyless_for,
    made_client,
)
from trimtab.apply.records.kafka.record_batch import (
    UNASSIGNED,
    as_bytes,
    own_partition,
    sizes_of,
    was_refused,
)
from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.errors import ConfigError, TrimtabError, UnknownTopic
from trimtab.kafka.cluster import POLL_SLICE_S
from trimtab.observe.logging import library_log
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions
from trimtab.plan.records.registry import DEFAULTS

log = library_log()

Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]

_PARTITION_GONE = frozenset({KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC})
_NO_ROOM = frozenset({KafkaError._QUEUE_FULL})
_ANSWER_S = 5.0  # short: `produce` waits meanwhile; without an answer the client chooses
_GONE_FOR_S = 10.0


class RoutedProducer:
    """A `confluent_kafka.Producer` whose keyless records are routed by a partitioner.

    Args:
        client: Settings of `confluent_kafka.Producer`, callbacks included, or an existing
            producer, which stays open when this one is closed.
        partitioner: Its name, or an object, which may be shared.
        options: Options of a partitioner that is given by name.
        watch: The watch of the producer that shares the partitioner; default: a new one.
        outstanding: Counts unacknowledged records, for `adaptive`; default by name: a new one.
        on_delivery: Called for records without a callback, if the settings have none. If
            unacknowledged records are counted, pass the callback of an existing producer here,
            since it cannot be read from it.
        keys_by_partitioner: Whether the partitioner also chooses for keyed records: ours hash
            them by murmur2, as Java does, whatever the client's `partitioner` is.
        racks: Whether to ask for the racks of brokers; None: only for `rack-aware`.
        admin: Settings of the admin client that asks for racks; required for an existing
            producer, default: those of the client.
        stuck_after_s: When `adaptive` avoids a silent broker; None for never.
        metadata_refresh_s: How often a new watch refreshes the leaders.
        wait_s: How long a record may wait for space in the buffer. With 0 a full buffer raises
            BufferError at once, as with the client; the choice is kept for a later record.
        settings: More settings of the client, such as `logger`; they override those above.
    """

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        client: Mapping[str, Any] | Producer,
        partitioner: str | Partitioner,
        options: RoutingOptions = DEFAULTS,
        *,
        watch: LeaderWatch | None = None,
        outstanding: OutstandingBytes | None = None,
        on_delivery: OnDelivery | None = None,
        keys_by_partitioner: bool = False,
        racks: bool | None = None,
        admin: Mapping[str, Any] | None = None,
        stuck_after_s: float | None = None,
        metadata_refresh_s: float = 5.0,
        wait_s: float = 0.0,
        **settings: Any,
    ) -> None:
        """Creates a producer, or wraps an existing one."""
        config = {**client, **settings} if isinstance(client, Mapping) else None
        if config is None:
            check_client(client, settings)
        if racks is None:
            racks = partitioner == "rack-aware"
        if isinstance(partitioner, str) and racks and options.rack is None and config is not None:
            options = replace(options, rack=config.get("client.rack"))
        self._admin = admin_settings(config, admin, needed=racks)
        chooser, counts = chooser_of(partitioner, options, stuck_after_s)
        outstanding = outstanding or counts
        if outstanding is not None:
            check_reports(config or {})
        self._choose = chooser.partition
        self._keys_by_partitioner = keys_by_partitioner
        self._keyless = keyless_for(config, chooser, asked=keys_by_partitioner)
        self._routes_null = self._keyless.null
        self._wait_s = wait_s
        self._owns_watch = watch is None
        self._unmet: set[str] = set()
        self._returned: dict[str, list[int]] = {}
        self._returning = threading.Lock()
        looking: list[ref[LeaderWatch]] = []
        self._owns_client = config is not None
        made: Any = client if config is None else made_client(config, on_delivery, looking)
        self.producer = made
        """The client itself."""
        if watch is None:
            source = ClientSource(self.producer, self._open_admin if racks else None)
            watch = LeaderWatch(source, refresh_s=metadata_refresh_s)
        looking.append(ref(watch))
        self.watch = watch
        """The watch that knows the leaders."""
        self._produce: Callable[..., None] = self.producer.produce  # bound once, for speed
        if outstanding is not None:
            notify = on_delivery if config is None else config.get("on_delivery", on_delivery)
            self._count(outstanding, notify)

    def _count(self, outstanding: OutstandingBytes, notify: OnDelivery | None) -> None:
        if notify is None and not self._owns_client:
            raise ConfigError(
                "RoutedProducer: counting unacknowledged records would replace the delivery "
                "callback of an existing producer.",
                hint="Pass that callback in on_delivery=, or the producer's settings as a dict.",
            )
        watch = self.watch
        outstanding.follow(lambda: watch.snapshot)
        self._produce = counting(
            self.producer.produce,
            outstanding,
            refreshing_watches([ref(watch)], notify or ignored),
        )

    def _open_admin(self) -> AdminClient:
        return AdminClient(dict(self._admin))

    # ------------------------------------------------------------ records

    def produce(
        self,
        topic: str,
        value: bytes | str | None = None,
        key: bytes | str | None = None,
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
        timestamp: int = 0,
        headers: Headers | None = None,
    ) -> None:
        """Queues a record, as `confluent_kafka.Producer.produce` does.

        Args:
            topic: The topic.
            value: The value.
            key: The key.
            partition: The partition; −1 to have it chosen.
            callback: The same as `on_delivery`.
            on_delivery: Called with (error or None, message) from within `poll` or `flush`.
            timestamp: The timestamp in milliseconds; 0 for now.
            headers: The headers.
        """
        notify = on_delivery if callback is None else callback
        if notify is not None and not callable(notify):
            raise TypeError(f"on_delivery must be callable, not {type(notify).__name__}")
        chosen, size = partition, -1
        if partition == UNASSIGNED and (self._routes_null if key is None else self._routes(key)):
            if isinstance(value, str):
                value = value.encode()
            size = 0 if value is None else len(value)
            if key is not None:
                key = key.encode() if isinstance(key, str) else key
                size += len(key)
            if self._returned or self._keys_by_partitioner:
                chosen = self._chosen(topic, key, size)
            else:  # the usual case, inlined for speed
                try:
                    chosen = self._choose(topic, None, size, self.watch.snapshot)
                except UnknownTopic:
                    chosen = self._chosen(topic, key, size)
        try:
            self._produce(topic, value, key, chosen, notify, None, timestamp, headers)
        except (BufferError, KafkaException) as error:
            self._retry_produce(
                error, (topic, value, key), (notify, None, timestamp, headers), chosen, size
            )

    def produce_batch(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        partition: int = -1,
        callback: OnDelivery | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> int:
        """Queues records as `confluent_kafka.Producer.produce_batch` does, in batches by partition.

        A record with a partition keeps it. These records are not counted for `adaptive`.
        """
        notify = on_delivery if callback is None else callback
        send = self.producer.produce_batch
        sizes = None if partition != UNASSIGNED else sizes_of(messages)
        if sizes is None:
            return int(send(topic, messages, partition, notify))  # it reports what is wrong
        copies = [{k: v for k, v in m.items() if k != "_error"} for m in messages]
        routed = {at for at, copy in enumerate(copies) if self._is_free(copy)}
        chosen = [
            self._chosen(topic, as_bytes(copy.get("key")), size)
            if at in routed
            else own_partition(copy)
            for at, (copy, size) in enumerate(zip(copies, sizes, strict=True))
        ]
        taken, left = 0, list(range(len(copies)))
        late_at = time.monotonic() + _GONE_FOR_S
        try:
            while left:
                batches: dict[int, list[dict[str, Any]]] = {}
                for at in left:
                    copies[at].pop("_error", None)
                    batches.setdefault(chosen[at], []).append(copies[at])
                taken += sum(send(topic, batch, place, notify) for place, batch in batches.items())
                routed -= {at for at in left if chosen[at] == UNASSIGNED}
                left = [
                    at for at in left if at in routed and was_refused(copies[at], _PARTITION_GONE)
                ]
                if left:
                    self._refresh_topic(topic)
                late = time.monotonic() >= late_at
                for at in left:
                    key = as_bytes(copies[at].get("key"))
                    chosen[at] = UNASSIGNED if late else self._chosen(topic, key, sizes[at])
        finally:
            for at, (message, copy) in enumerate(zip(messages, copies, strict=True)):
                if "_error" in copy:
                    message["_error"] = copy["_error"]
                if at in routed and was_refused(copy, _NO_ROOM):
                    self._keep_choice(topic, copy.get("key"), chosen[at])
        return taken

    def _is_free(self, message: Mapping[str, Any]) -> bool:
        """Whether a record of a batch is routed here."""
        return own_partition(message) == UNASSIGNED and self._routes(message.get("key"))

    def _routes(self, key: bytes | str | None) -> bool:
        """Whether a record with this key is routed here, or left to the client."""
        if key is None:
            return self._routes_null
        return self._keyless.keyed or (self._keyless.empty and not len(key))

    def _chosen(self, topic: str, key: bytes | None, size: int) -> int:
        """The partition for a record; −1 while the leaders of its topic are unknown."""
        asked = key if self._keys_by_partitioner else None
        if self._returned and asked is None:
            kept = self._kept_choice(topic)
            if kept is not None:
                return kept
        try:
            return self._choose(topic, asked, size, self.watch.snapshot)
        except UnknownTopic:
            if not isinstance(topic, str):
                return UNASSIGNED  # the client reports what is wrong
            if topic in self._unmet:
                self.watch.expect(topic)
                return UNASSIGNED
        try:
            self.watch.ensure_known(topic)
            return self._choose(topic, asked, size, self.watch.snapshot)
        except TrimtabError as error:
            log.warning("records_are_not_routed", topic=topic, why=error.message)
            self._unmet.add(topic)
            self.watch.expect(topic)
            return UNASSIGNED

    def _kept_choice(self, topic: str) -> int | None:
        """The kept choice of a record that was not accepted, so that counters do not advance."""
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

    def _keep_choice(self, topic: str, key: object, chosen: int) -> None:
        """Keeps the choice of a record that was not accepted, unless it depends on its key."""
        if not (self._keys_by_partitioner and key is not None):
            with self._returning:
                self._returned.setdefault(topic, []).append(chosen)

    def _retry_produce(
        self,
        error: Exception,
        record: tuple[str, bytes | str | None, Any],
        rest: tuple[Any, ...],
        chosen: int,
        size: int,
    ) -> None:
        """Sends a record again after a full buffer or an unknown partition."""
        topic, value, key = record
        routed = size >= 0 and chosen != UNASSIGNED
        began = time.monotonic()
        while True:
            if isinstance(error, BufferError):
                if time.monotonic() >= began + self._wait_s:
                    if routed:
                        self._keep_choice(topic, key, chosen)
                    raise error
                self.producer.poll(POLL_SLICE_S)
            elif routed and _is_gone(error):
                late = time.monotonic() >= began + _GONE_FOR_S
                chosen = UNASSIGNED if late else self._choose_again(topic, key, size)
                routed = chosen != UNASSIGNED
            else:
                raise error
            try:
                self._produce(topic, value, key, chosen, *rest)
            except (BufferError, KafkaException) as again:
                error = again
            else:
                return

    def _choose_again(self, topic: str, key: bytes | None, size: int) -> int:
        self._refresh_topic(topic)
        return self._chosen(topic, key, size)

    def _refresh_topic(self, topic: str) -> None:
        """Refreshes the topic's metadata in client and watch: its partitions have changed."""
        with suppress(KafkaException):  # the watch reports what is wrong
            self.producer.list_topics(topic, timeout=_ANSWER_S)
        self.producer.poll(POLL_SLICE_S)
        self.watch.refresh(topic)

    # ------------------------------------------------------------ methods of the client

    def poll(self, timeout: float = -1) -> int:
        """Calls pending callbacks; returns how many it called."""
        called: int = self.producer.poll(timeout)
        return called

    def flush(self, timeout: float = -1) -> int:
        """Waits until all records are delivered; returns how many are not."""
        left: int = self.producer.flush(timeout)
        return left

    def purge(self, in_queue: bool = True, in_flight: bool = True, blocking: bool = True) -> None:
        """Drops records that are not delivered yet; their callbacks are called."""
        self.producer.purge(in_queue=in_queue, in_flight=in_flight, blocking=blocking)

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """The cluster's metadata."""
        if topic is None:
            return self.producer.list_topics(timeout=timeout)
        return self.producer.list_topics(topic, timeout)

    def cluster_id(self, timeout: float = -1) -> str:
        """The cluster's id."""
        named: str = self.producer.cluster_id(timeout)
        return named

    def init_transactions(self, timeout: float = -1) -> None:
        """Initialises transactions and fences earlier producers with this `transactional.id`."""
        self.producer.init_transactions(timeout)

    def begin_transaction(self) -> None:
        """Begins a transaction."""
        self.producer.begin_transaction()

    def commit_transaction(self, timeout: float = -1) -> None:
        """Commits the transaction."""
        self.producer.commit_transaction(timeout)

    def abort_transaction(self, timeout: float = -1) -> None:
        """Aborts the transaction."""
        self.producer.abort_transaction(timeout)

    def send_offsets_to_transaction(
        self, positions: list[Any], group_metadata: Any, timeout: float = -1
    ) -> None:
        """Commits a consumer's offsets with the transaction."""
        self.producer.send_offsets_to_transaction(positions, group_metadata, timeout)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Sets the credentials for new connections, including those that ask for racks."""
        self.producer.set_sasl_credentials(username, password)
        if self._admin:
            self._admin |= {"sasl.username": username, "sasl.password": password}

    def close(self) -> bool:
        """Delivers queued records and closes the client; an existing producer stays open."""
        if self._owns_watch:
            self.watch.close()
        if self._owns_client and hasattr(self.producer, "close"):  # the client has it since 2.13
            return bool(self.producer.close())
        self.producer.flush()
        return True

    def __len__(self) -> int:
        return len(self.producer)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, exc_type: Any, exc_value: Any, exc_traceback: Any) -> None:
        self.close()


def _is_gone(error: Exception) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _PARTITION_GONE
