"""A reader by command, on a client that hands out what it is told to."""

from __future__ import annotations

import threading
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.consumers.kafka.directed_reader import DirectedReader
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Client:
    """Hands out `messages`; the logs end at `ends`."""

    def __init__(self, _config: Any) -> None:
        self.messages: list[Any] = []
        self.ends: dict[int, int] = {}

    def committed(self, places: list[TheirPartition], timeout: float) -> list[TheirPartition]:
        return [TheirPartition(p.topic, p.partition, 0) for p in places]

    def incremental_assign(self, _places: Any) -> None:
        pass

    def incremental_unassign(self, _places: Any) -> None:
        pass

    def list_topics(self, topic: str, timeout: float) -> Any:
        there = SimpleNamespace(error=None, partitions={0: None, 1: None})
        return SimpleNamespace(topics={topic: there})

    def consume(self, _most: int, _timeout: float) -> list[Any]:
        found, self.messages = self.messages, []
        return found

    def get_watermark_offsets(self, place: TheirPartition, *, cached: bool) -> tuple[int, int]:
        return 0, self.ends.get(place.partition, -1001)


def message(partition: int, offset: int, error: int | None = None) -> Any:
    return SimpleNamespace(
        topic=lambda: "orders",
        partition=lambda: partition,
        offset=lambda: offset,
        key=lambda: None,
        value=lambda: b"v",
        headers=lambda: None,
        timestamp=lambda: (1, 1000),
        error=lambda: None if error is None else KafkaError(error),
    )


def end(partition: int, offset: int) -> Any:
    return message(partition, offset, KafkaError._PARTITION_EOF)


def reading(monkeypatch: pytest.MonkeyPatch, *partitions: TopicPartition) -> tuple[Client, Any]:
    monkeypatch.setattr("confluent_kafka.Consumer", Client)

    def lost(gone: Collection[TopicPartition]) -> None:
        raise AssertionError(gone)

    reader = DirectedReader("pay", Cluster("x:1"), client_id="c", on_lost=lost)
    reader.take(partitions, threading.Event())
    client: Any = reader._consumer
    return client, reader


def test_records_of_an_open_transaction_are_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    client, reader = reading(monkeypatch, FIRST, SECOND)
    client.ends = {0: 5000, 1: 10}
    client.messages = [end(0, 0), *(message(1, n) for n in range(4))]
    reader.read(0.0)

    assert reader.behind() == 6

    client.messages = [message(0, 17)]
    reader.read(0.0)

    assert reader.behind() == 5000 - 18


def test_a_partition_whose_leader_is_away_is_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    client, reader = reading(monkeypatch, FIRST, SECOND)
    client.ends = {0: 5000, 1: 10}
    client.messages = [message(0, 0), message(1, 0)]
    reader.read(0.0)
    assert reader.behind() == 4999 + 9

    client.messages = [message(1, 1)]  # of the other nothing comes any more
    reader.read(0.0)

    assert reader.behind() == 8
