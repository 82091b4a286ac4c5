"""The same calls to a bare producer and to one of ours; what came of them is compared."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, TopicPartition

Case = Callable[[Any, str], object]
Told = list[tuple[Any, ...]]

FREE = "chosen"
"""Stands for a partition that is left to the producer: any is right."""


def telling(told: Told, tag: str, partition: object = FREE) -> Callable[[Any, Any], None]:
    """A delivery callback that keeps what it was told; of the partition, if it is set."""

    def on_delivery(error: Any, message: Any) -> None:
        where = message.partition() if partition is not FREE else FREE
        name = None if error is None else error.name()
        told.append((tag, name, message.key(), message.value(), where))

    return on_delivery


def outcome(case: Case, producer: Any, topic: str) -> object:
    """What a call returns, or the kind of error that it raises."""
    try:
        return case(producer, topic)
    except Exception as error:
        return type(error)


def delivered(*args: Any, **kwargs: Any) -> Case:
    """Produces with these arguments; `TAG` in place of a callback is one that is looked at."""

    def case(producer: Any, topic: str) -> object:
        told: Told = []
        place = kwargs.get("partition", args[2] if len(args) > 2 else -1)
        heard = telling(told, "own", FREE if place in (-1, None) else place)
        given = [heard if a is TAG else a for a in args]
        named = {k: heard if v is TAG else v for k, v in kwargs.items()}
        answer = producer.produce(topic, *given, **named)
        producer.flush(10)
        return answer, told

    return case


TAG = object()

PRODUCE: Mapping[str, Case] = {
    "value": delivered(b"v", on_delivery=TAG),
    "text": delivered("värde", "nyckel", on_delivery=TAG),
    "null value": delivered(None, b"k", on_delivery=TAG),
    "empty value and key": delivered(b"", b"", on_delivery=TAG),
    "nothing at all": delivered(callback=TAG),
    "positions": delivered(b"v", b"k", 1, TAG),
    "all positions": delivered(b"v", b"k", 2, TAG, None, 1234, [("h", b"x")]),
    "partition by name": delivered(b"v", partition=1, on_delivery=TAG),
    "partition 0": delivered(b"v", partition=0, on_delivery=TAG),
    "unassigned": delivered(b"v", None, -1, TAG),
    "unassigned and keyed": delivered(b"v", b"k", -1, TAG),
    "callback": delivered(b"v", callback=TAG),
    "both callbacks": delivered(b"v", callback=TAG, on_delivery=print),
    "callback None": delivered(b"v", callback=None),
    "names": delivered(value=b"v", key=b"k", timestamp=5, headers={"a": b"1"}, on_delivery=TAG),
    "headers of text": delivered(b"v", headers=[("a", "1"), ("b", None)], on_delivery=TAG),
    "a bool as partition": delivered(b"v", partition=True, on_delivery=TAG),
    "partition None": delivered(b"v", partition=None),
    "partition that is none": delivered(b"v", partition=-2),
    "partition as text": delivered(b"v", partition="1"),
    "value of another type": delivered(5),
    "value as bytearray": delivered(bytearray(b"v")),
    "key of another type": delivered(b"v", 5),
    "key as memoryview": delivered(b"v", memoryview(b"k")),
    "timestamp None": delivered(b"v", timestamp=None),
    "headers of another type": delivered(b"v", headers=5),
    "text that is not UTF-8": delivered("\udcff"),
    "too many": delivered(b"v", b"k", 1, None, None, 0, None, 9),
    "unknown name": delivered(b"v", nothing=1),
    "topic None": lambda producer, _: producer.produce(None, b"v"),
    "topic as bytes": lambda producer, topic: producer.produce(topic.encode(), b"v"),
    "no topic": lambda producer, _: producer.produce(),
    "topic by name": lambda producer, topic: producer.produce(topic=topic, value=b"v"),
}


def batch(messages: Any, *args: Any, **kwargs: Any) -> Case:
    """Produces a batch; the errors that are left in its records are part of what came of it."""

    def case(producer: Any, topic: str) -> object:
        told: Told = []
        heard = telling(told, "batch")
        given = [heard if a is TAG else a for a in args]
        named = {k: heard if v is TAG else v for k, v in kwargs.items()}
        records = [dict(m) if isinstance(m, dict) else m for m in messages or ()]
        taken = producer.produce_batch(
            topic, records if messages is not None else None, *given, **named
        )
        producer.flush(10)
        return taken, sorted(told), records

    return case


BATCH: Mapping[str, Case] = {
    "values": batch([{"value": b"%d" % i} for i in range(9)], on_delivery=TAG),
    "keys": batch([{"value": "v", "key": "k"}, {"value": b"v", "key": b"k"}], -1, TAG),
    "callback": batch([{"value": b"v"}], callback=TAG),
    "one partition": batch([{"value": b"v"}, {"value": b"w"}], 1, TAG),
    "no records": batch([]),
    "empty records": batch([{}, {"value": None, "key": None}], on_delivery=TAG),
    "no list": batch(None),
    "no dict": batch([5]),
    "value of another type": batch([{"value": 5}]),
    "timestamp": batch([{"value": b"v", "timestamp": 5}]),
    "partition None": batch([{"value": b"v", "partition": None}], on_delivery=TAG),
    "partition as text": batch([{"value": b"v", "partition": "1"}]),
}

REFUSED: Mapping[str, Mapping[str, Any]] = {
    "value of another type": {"value": 5},
    "key of another type": {"value": b"v", "key": 5},
    "partition as text": {"value": b"v", "partition": "1"},
    "timestamp": {"value": b"v", "timestamp": 5},
}
"""Records for the sake of which the client takes nothing of a batch."""


def _names(metadata: Any) -> object:
    return type(metadata), sorted(metadata.brokers), sorted(metadata.topics)


METHODS: Mapping[str, Case] = {
    "poll 0": lambda producer, _: producer.poll(0),
    "poll by name": lambda producer, _: producer.poll(timeout=0),
    "poll None": lambda producer, _: producer.poll(None),
    "flush": lambda producer, _: producer.flush(),
    "flush 5": lambda producer, _: producer.flush(5),
    "flush by name": lambda producer, _: producer.flush(timeout=5),
    "purge": lambda producer, _: producer.purge(),
    "purge by names": lambda producer, _: producer.purge(
        in_queue=True, in_flight=False, blocking=False
    ),
    "purge by position": lambda producer, _: producer.purge(True, True, True),
    "list_topics": lambda producer, _: sorted(producer.list_topics().brokers),
    "list_topics of one": lambda producer, topic: _names(producer.list_topics(topic, 10)),
    "list_topics by names": lambda producer, topic: _names(
        producer.list_topics(topic=topic, timeout=10)
    ),
    "list_topics of None": lambda producer, _: sorted(producer.list_topics(None, 10).brokers),
    "cluster_id": lambda producer, _: type(producer.cluster_id()),
    "cluster_id by name": lambda producer, _: type(producer.cluster_id(timeout=10)),
    "set_sasl_credentials": lambda producer, _: producer.set_sasl_credentials("a", "b"),
    "set_sasl_credentials of None": lambda producer, _: producer.set_sasl_credentials(None, "b"),
    "len": lambda producer, _: len(producer),
    "bool": lambda producer, _: bool(producer),
    "begin_transaction too early": lambda producer, _: producer.begin_transaction(),
    "commit_transaction too early": lambda producer, _: producer.commit_transaction(1),
    "abort_transaction too early": lambda producer, _: producer.abort_transaction(1),
    "init_transactions without an id": lambda producer, _: producer.init_transactions(5),
    "send_offsets without a group": lambda producer, _: producer.send_offsets_to_transaction(
        [], None
    ),
}


def _closed(use: Callable[[Any, str], object]) -> Case:
    def case(producer: Any, topic: str) -> object:
        answers = producer.close(), producer.close()
        return answers, outcome(use, producer, topic)

    return case


def _left(producer: Any, topic: str) -> object:
    told: Told = []
    with producer as entered:
        entered.produce(topic, b"v", on_delivery=telling(told, "left"))
    return entered is producer, told


CLOSING: Mapping[str, Case] = {
    "with": _left,
    "produce": _closed(lambda producer, topic: producer.produce(topic, b"v")),
    "produce to a partition": _closed(
        lambda producer, topic: producer.produce(topic, b"v", partition=0)
    ),
    "poll": _closed(lambda producer, _: producer.poll(0)),
    "flush": _closed(lambda producer, _: producer.flush(1)),
    "purge": _closed(lambda producer, _: producer.purge()),
    "list_topics": _closed(lambda producer, topic: producer.list_topics(topic, 1)),
    "cluster_id": _closed(lambda producer, _: producer.cluster_id(1)),
    "len": _closed(lambda producer, _: len(producer)),
    "bool": _closed(lambda producer, _: bool(producer)),
}


def transactions(consumer: Consumer) -> Case:
    """One transaction that counts and one that does not, with the offsets of a consumer."""

    def case(producer: Any, topic: str) -> object:
        told: Told = []
        answers = [producer.init_transactions(30), producer.begin_transaction()]
        producer.produce(topic, b"kept", on_delivery=telling(told, "kept"))
        offsets = [TopicPartition(topic, 0, 1)]
        answers += [
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 30),
            producer.commit_transaction(30),
            producer.begin_transaction(),
        ]
        producer.produce(topic, b"dropped", on_delivery=telling(told, "dropped"))
        answers += [producer.abort_transaction(30), producer.flush(10)]
        committed = consumer.committed([TopicPartition(topic, 0)], 30)[0].offset
        return answers, told[0], {tag for tag, *_ in told}, committed

    return case


def stated_signatures(kind: str = "Producer") -> dict[str, list[tuple[str, object]]]:
    """The parameters of each method and their defaults, as confluent-kafka's own types state."""
    text = Path(confluent_kafka.__file__).with_name("cimpl.pyi").read_text()
    (stated,) = (
        node
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and node.name == kind
    )
    found: dict[str, list[tuple[str, object]]] = {}
    for method in stated.body:
        if isinstance(method, ast.FunctionDef) and method.name != "__init__":
            names = [a.arg for a in method.args.args][1:]
            defaults = [ast.literal_eval(d) for d in method.args.defaults]
            needed: list[object] = [...] * (len(names) - len(defaults))
            found[method.name] = list(zip(names, [*needed, *defaults], strict=True))
    return found
