"""Callbacks of a routed producer: they refresh leaders after errors, and count records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from weakref import ref

from confluent_kafka import KafkaError

from trimtab.apply.records.kafka.leader_watch import LeaderWatch
from trimtab.apply.records.outstanding import OutstandingBytes, UnacknowledgedBytes
from trimtab.plan.records.counters import LazyValues

OnDelivery = Callable[[KafkaError | None, Any], None]

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


def refreshing_watches(
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


def ignored(*_: Any) -> None:
    """The callback if none is configured."""


def counting(
    produce: Callable[..., None], outstanding: OutstandingBytes, always: OnDelivery
) -> Callable[..., None]:
    """A `produce` that counts records before it sends them, as an answer may arrive at once.

    Each partition has its own callbacks, so that they need not read it from the message. Records
    whose partition the client chooses are not counted. `always` is the callback of records without
    one.
    """
    lines: LazyValues[str, LazyValues[int, _Line]] = LazyValues(
        lambda topic: LazyValues(
            lambda partition: _Line(outstanding.place(topic, partition), always)
        )
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


def _counted(place: UnacknowledgedBytes, size: int, notify: OnDelivery) -> OnDelivery:
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

    def __init__(self, place: UnacknowledgedBytes, always: OnDelivery) -> None:
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
