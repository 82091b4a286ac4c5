"""What a consumer hears on its control topic is handed out once, in order."""

from __future__ import annotations

import threading
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from trimtab.apply.consumers.kafka.control_channel import ControlChannel
from trimtab.kafka.cluster import Cluster
from trimtab.model.codec import dumps
from trimtab.model.control import StateQuery
from trimtab.model.control_codec import control_to


def _query(name: str) -> StateQuery:
    return StateQuery(epoch=1, query_id=name)


class _Message:
    def __init__(self, name: str) -> None:
        self._value = dumps(control_to(_query(name), ts=1)).encode()

    def error(self) -> None:
        return None

    def value(self) -> bytes:
        return self._value


class _Topic:
    """Hands out one command at a time, as they come."""

    def __init__(self) -> None:
        self.arrived: deque[_Message] = deque()

    def consume(self, most: int, timeout_s: float) -> list[_Message]:
        return [self.arrived.popleft()] if self.arrived else []


def test_who_asks_whether_it_is_called_takes_nothing_away():
    channel = ControlChannel("control", 0, Cluster("localhost:1"), client_id="c")
    channel._reader.close()
    topic = _Topic()
    channel._reader = topic  # type: ignore[assignment]

    assert not channel.has_commands()
    topic.arrived.extend([_Message("first"), _Message("second")])
    assert channel.has_commands()
    assert channel.has_commands()
    topic.arrived.append(_Message("third"))
    assert channel.commands() == tuple(map(_query, ("first", "second", "third")))
    assert channel.commands() == ()
    assert not channel.has_commands()


class _NewTopic:
    """A topic whose leader is not settled when it is first asked for its end."""

    def __init__(self, code: int) -> None:
        self.failures = [KafkaException(KafkaError(code))]
        self.assigned: list[Any] = []

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(partitions={1: None}, error=None)})

    def get_watermark_offsets(self, partition: Any, timeout: float) -> tuple[int, int]:
        if self.failures:
            raise self.failures.pop()
        return 0, 7

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = partitions


@pytest.mark.parametrize(
    "code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_a_control_topic_whose_leader_is_not_settled_is_asked_again(code: int) -> None:
    channel = ControlChannel("control", 0, Cluster("localhost:1"), client_id="c")
    channel._reader.close()
    topic = _NewTopic(code)
    channel._reader = topic  # type: ignore[assignment]

    assert channel.open(threading.Event())
    assert [(p.partition, p.offset) for p in topic.assigned] == [(1, 7)]
