"""Reading the state that the controller before has left."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from trimtab.apply.kafka import leadership
from trimtab.apply.kafka.leadership import Post, state_left
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import GroupState
from trimtab.model.control_codec import group_state_to

STATE = GroupState(
    epoch=7, clean=True, assignment=Assignment({TopicPartition("orders", 0): 0}), members={}
)


class Message:
    def __init__(self, *, code: int | None = None, value: bytes = b"") -> None:
        self._code, self._value = code, value

    def error(self) -> KafkaError | None:
        return None if self._code is None else KafkaError(self._code)

    def key(self) -> bytes:
        return b"state"

    def value(self) -> bytes:
        return self._value


class Reader:
    """A topic that was just created: the first fetch fails, the next ones do not."""

    def __init__(self, _: Any) -> None:
        self.assigned = 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        return SimpleNamespace(topics={topic: SimpleNamespace(error=None)})

    def assign(self, _: Any) -> None:
        self.assigned += 1
        state = Message(value=dumps(group_state_to(STATE, ts=1)).encode())
        there = [state, Message(code=KafkaError._PARTITION_EOF)]
        absent = [Message(code=KafkaError.UNKNOWN_TOPIC_OR_PART)]
        self._messages = iter(absent if self.assigned == 1 else there)

    def poll(self, _: float) -> Message | None:
        return next(self._messages, None)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("missing_ok", [False, True])
def test_a_state_topic_that_was_just_created_is_waited_for(monkeypatch, missing_ok) -> None:
    monkeypatch.setattr(leadership, "Consumer", Reader)
    post = Post(group="g", topics=("orders",), bootstrap_server="none:1")

    assert state_left(post, missing_ok=missing_ok) == STATE
