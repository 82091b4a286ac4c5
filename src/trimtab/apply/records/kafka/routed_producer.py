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

from confluent_kafka import KafkaError, KafkaException, Producer, SerializingProducer
from confluent_kafka.admin import AdminClient

from trimtab.apply.records.kafka.leader_watch import ClientSource, LeaderWatch
from trimtab.apply.records.kafka.producer_settings import (
    EVERY_RECORD,
    WITHOUT_A_KEY,
    Keyless,
    connection_settings,
    keyless_of,
)
from trimtab.apply.records.outstanding import Outstanding, UnderWay
from trimtab.errors import ConfigError, TrimtabError, UnknownTopic
from trimtab.observe.logging import library_log
from trimtab.plan.records.counters import Once
from trimtab.plan.records.partitioner import Partitioner, RoutingOptions, nothing_queued
from trimtab.plan.records.registry import DEFAULTS, partitioner_of

log = library_log()

OnDelivery = Callable[[KafkaError | None, Any], None]
Headers = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]

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
_NO_ROOM = frozenset({KafkaError._QUEUE_FULL})
_BY_QUEUE = frozenset({"adaptive", "rack-aware"})
_UNASSIGNED = -1
_POLL_S = 0.1
_ANSWER_S = 5.0
_GONE_FOR_S = 10.0


class RoutedProducer:
    """A `confluent_kafka.Producer` whose keyless records are routed by a partitioner."""

    def __init__(  # noqa: PLR0913 - each is a choice of its own
        self,
        client: Mapping[str, Any] | Producer,
        partitioner: str | Partitioner,
        options: RoutingOptions = DEFAULTS,
        *,
        watch: LeaderWatch | None = None,
        outstanding: Outstanding | None = None,
        on_delivery: OnDelivery | None = None,
        keys_by_partitioner: bool = False,
        racks: bool | None = None,
        admin: Mapping[str, Any] | None = None,
        stuck_after_s: float | None = None,
        metadata_refresh_s: float = 5.0,
        wait_s: float = 0.0,
        **settings: Any,
    ) -> None:
        """Creates a producer, or wraps an existing one.

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
        config = {**client, **settings} if isinstance(client, Mapping) else None
        if config is None:
            _check(client, settings)
        if racks is None:
            racks = partitioner == "rack-aware"
        if isinstance(partitioner, str) and racks and options.rack is None and config is not None:
            options = replace(options, rack=config.get("client.rack"))
        self._admin = connection_settings(config or {} if admin is None else admin)
        if racks and not self._admin:
            raise ConfigError(
                "RoutedProducer: the racks of brokers cannot be read from an existing producer.",
                hint="Pass the settings of the client in admin=.",
            )
        chooser, counts = _chooser(partitioner, options, stuck_after_s)
        outstanding = outstanding or counts
        if outstanding is not None and (config or {}).get("delivery.report.only.error") is True:
            raise ConfigError(
                "RoutedProducer: with delivery.report.only.error there are no reports of delivered "
                "records, so unacknowledged records cannot be counted.",
                hint="Remove that setting, or use a partitioner other than adaptive and "
                "rack-aware.",
            )
        self._choose = chooser.partition
        self._keys_by_partitioner = keys_by_partitioner
        self._keyless = _keyless(config, chooser, asked=keys_by_partitioner)
        self._routes_null = self._keyless.null
        self._wait_s = wait_s
        self._owns_watch = watch is None
        self._unmet: set[str] = set()
        self._returned: dict[str, list[int]] = {}
        self._returning = threading.Lock()
        looking: list[ref[LeaderWatch]] = []
        self._owns_client = config is not None
        made: Any = client if config is None else _made(config, on_delivery, looking)
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

    def _count(self, outstanding: Outstanding, notify: OnDelivery | None) -> None:
        if notify is None and not self._owns_client:
            raise ConfigError(
                "RoutedProducer: counting unacknowledged records would replace the delivery "
                "callback of an existing producer.",
                hint="Pass that callback in on_delivery=, or the producer's settings as a dict.",
            )
        watch = self.watch
        outstanding.follow(lambda: watch.snapshot)
        self._produce = _counting(
            self.producer.produce,
            outstanding,
            _refreshing_watches([ref(watch)], notify or _nothing),
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
        if partition == _UNASSIGNED and (self._routes_null if key is None else self._routes(key)):
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
        sizes = None if partition != _UNASSIGNED else _sizes(messages)
        if sizes is None:
            return int(send(topic, messages, partition, notify))  # it reports what is wrong
        copies = [{k: v for k, v in m.items() if k != "_error"} for m in messages]
        routed = {at for at, copy in enumerate(copies) if self._is_free(copy)}
        chosen = [
            self._chosen(topic, _bytes(copy.get("key")), size)
            if at in routed
            else _own_partition(copy)
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
                routed -= {at for at in left if chosen[at] == _UNASSIGNED}
                left = [at for at in left if at in routed and _failed(copies[at], _PARTITION_GONE)]
                if left:
                    self._refresh_topic(topic)
                late = time.monotonic() >= late_at
                for at in left:
                    key = _bytes(copies[at].get("key"))
                    chosen[at] = _UNASSIGNED if late else self._chosen(topic, key, sizes[at])
        finally:
            for at, (message, copy) in enumerate(zip(messages, copies, strict=True)):
                if "_error" in copy:
                    message["_error"] = copy["_error"]
                if at in routed and _failed(copy, _NO_ROOM):
                    self._keep_choice(topic, copy.get("key"), chosen[at])
        return taken

    def _is_free(self, message: Mapping[str, Any]) -> bool:
        """Whether a record of a batch is routed here."""
        return _own_partition(message) == _UNASSIGNED and self._routes(message.get("key"))

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
                return _UNASSIGNED  # the client reports what is wrong
            if topic in self._unmet:
                self.watch.expect(topic)
                return _UNASSIGNED
        try:
            self.watch.ensure_known(topic)
            return self._choose(topic, asked, size, self.watch.snapshot)
        except TrimtabError as error:
            log.warning("records_are_not_routed", topic=topic, why=error.message)
            self._unmet.add(topic)
            self.watch.expect(topic)
            return _UNASSIGNED

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
        routed = size >= 0 and chosen != _UNASSIGNED
        began = time.monotonic()
        while True:
            if isinstance(error, BufferError):
                if time.monotonic() >= began + self._wait_s:
                    if routed:
                        self._keep_choice(topic, key, chosen)
                    raise error
                self.producer.poll(_POLL_S)
            elif routed and _is_gone(error):
                late = time.monotonic() >= began + _GONE_FOR_S
                chosen = _UNASSIGNED if late else self._choose_again(topic, key, size)
                routed = chosen != _UNASSIGNED
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
        self.producer.poll(_POLL_S)
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


def _sizes(messages: object) -> list[int] | None:
    """The size of each record of a batch; None if the client would refuse one.

    The client checks all records first, so nothing of such a batch is sent.
    """
    if not (isinstance(messages, list) and all(_is_record(message) for message in messages)):
        return None
    try:
        return [
            len(_bytes(m.get("value")) or b"") + len(_bytes(m.get("key")) or b"") for m in messages
        ]
    except UnicodeEncodeError:
        return None


def _is_record(message: object) -> bool:
    return (
        isinstance(message, dict)
        and isinstance(message.get("value"), bytes | str | None)
        and isinstance(message.get("key"), bytes | str | None)
        and isinstance(message.get("partition"), int | None)
        and abs(message.get("partition") or 0) < 2**31
        and message.get("timestamp") is None
    )


def _own_partition(message: Mapping[str, Any]) -> int:
    found: int | None = message.get("partition")
    return _UNASSIGNED if found is None else found


def _bytes(text: bytes | str | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _failed(message: Mapping[str, Any], codes: frozenset[int]) -> bool:
    """Whether the client refused a record of a batch for one of these reasons."""
    error = message.get("_error")
    return isinstance(error, KafkaError) and error.code() in codes


def _check(client: Any, settings: Mapping[str, Any]) -> None:
    """Refuses objects that are not producers, and producers with another `produce`."""
    if settings:
        raise TypeError(f"RoutedProducer: an existing producer takes no {', '.join(settings)}")
    if isinstance(client, SerializingProducer):
        raise ConfigError(
            "RoutedProducer takes bytes, but SerializingProducer takes objects, key before value.",
            hint="Call the serializers yourself, and pass a Producer or its settings.",
        )
    if not callable(getattr(client, "produce", None)):
        raise TypeError(
            "RoutedProducer takes confluent-kafka's settings or its Producer, "
            f"not {type(client).__name__}"
        )


def _chooser(
    partitioner: str | Partitioner, options: RoutingOptions, stuck_after_s: float | None
) -> tuple[Partitioner, Outstanding | None]:
    """The partitioner, and the counter of unacknowledged records if it needs one."""
    if not isinstance(partitioner, str):
        if not callable(getattr(partitioner, "closed", None)):
            raise TypeError(
                f"RoutedProducer takes a partitioner or its name, not {type(partitioner).__name__}"
            )
        if options is not DEFAULTS:
            raise ConfigError(
                "RoutedProducer: options can only be set for a partitioner given by name.",
                hint="Pass them to partitioner_of(name, options), or pass the name here.",
            )
        return partitioner, None
    if partitioner not in _BY_QUEUE or options.queues is not nothing_queued:
        return partitioner_of(partitioner, options), None
    counts = Outstanding(
        batch_bytes=options.sticky_bytes, stuck_after_s=stuck_after_s, clock=options.clock
    )
    with_queues = replace(options, queues=counts.queues, stuck=counts.stuck)
    return partitioner_of(partitioner, with_queues), counts


def _keyless(config: Mapping[str, Any] | None, partitioner: Partitioner, *, asked: bool) -> Keyless:
    if asked or getattr(partitioner, "ignore_keys", False):
        return EVERY_RECORD
    if config is None:
        return WITHOUT_A_KEY
    found = keyless_of(config)
    if found.nothing:
        log.warning(
            "nothing_is_routed",
            why=f"partitioner={config.get('partitioner')} sends records without a key to one "
            "partition; use a partitioner that ends in _random",
        )
    return found


def _made(
    config: Mapping[str, Any], on_delivery: OnDelivery | None, looking: list[ref[LeaderWatch]]
) -> Producer:
    """A client with these settings, whose errors also refresh the watches.

    A callback that is not callable is passed on, so that the client refuses it.
    """
    settings = dict(config)
    if on_delivery is not None:
        settings.setdefault("on_delivery", on_delivery)
    settings.setdefault("error_cb", _nothing)
    for name in {"on_delivery", "error_cb"} & settings.keys():
        if callable(settings[name]):
            settings[name] = _refreshing_watches(looking, settings[name])
    return Producer(settings)


def _refreshing_watches(
    looking: Sequence[ref[LeaderWatch]], also: Callable[..., None]
) -> Callable[..., None]:
    """A callback that refreshes the watches after errors about leaders."""

    def refreshing(error: KafkaError | None, *rest: Any) -> None:
        if error is not None and error.code() in _LEADERS_MOVED:
            for watch in looking:
                if (existing := watch()) is not None:
                    existing.look_again()
        also(error, *rest)

    return refreshing


def _nothing(*_: Any) -> None:
    """The callback if none is configured."""


def _counting(
    produce: Callable[..., None], outstanding: Outstanding, always: OnDelivery
) -> Callable[..., None]:
    """A `produce` that counts records before it sends them, as an answer may arrive at once.

    Each partition has its own callbacks, so that they need not read it from the message. Records
    whose partition the client chooses are not counted. `always` is the callback of records without
    one.
    """
    lines: Once[str, Once[int, _Line]] = Once(
        lambda topic: Once(lambda partition: _Line(outstanding.place(topic, partition), always))
    )

    def counted_produce(
        topic: str,
        value: bytes | str | None,
        key: bytes | str | None,
        partition: int,
        notify: OnDelivery | None,
        *rest: Any,
    ) -> None:
        if partition < 0:
            produce(topic, value, key, partition, notify or always, *rest)
            return
        line = lines[topic][partition]
        if isinstance(value, str):
            value = value.encode()
        if isinstance(key, str):
            key = key.encode()
        size = 0 if value is None else len(value)
        if key is not None:
            size += len(key)
        if notify is None:
            counted = line.keyless if key is None else line.keyed
        else:
            counted = _counted(line.place, size, notify)
        line.place.sent(size)
        try:
            produce(topic, value, key, partition, counted, *rest)
        except BaseException:
            line.place.dropped(size)
            raise

    return counted_produce


def _counted(place: UnderWay, size: int, notify: OnDelivery) -> OnDelivery:
    def delivered(error: KafkaError | None, message: Any) -> None:
        if error is None:
            place.done(size)
        else:
            place.dropped(size)
        notify(error, message)

    return delivered


class _Line:
    """The counter of one partition, and its delivery callbacks."""

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
