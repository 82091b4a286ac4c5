"""Waiting for the lease, and reading the state that the controller before has left."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, ClassVar

import confluent_kafka
import pytest
from confluent_kafka import KafkaError

from trimtab.apply.consumers.kafka.leadership import (
    CommandProducer,
    GroupConfig,
    Lease,
    persisted_state,
)
from trimtab.errors import TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.properties import ClientProperties
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import GroupState
from trimtab.model.control_codec import group_state_to
from trimtab.model.timeouts import LONGEST_S, Timeouts

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
    monkeypatch.setattr("confluent_kafka.Consumer", Reader)
    config = GroupConfig(group="g", topics=("orders",), cluster=Cluster("none:1"))

    assert persisted_state(config, missing_ok=missing_ok) == STATE


class Member:
    """Joins the controllers: polls bring these errors, and then the partition."""

    errors: ClassVar[list[int]] = []

    def __init__(self, _: Any) -> None:
        self._coming = iter(self.errors)
        self.closed = False

    def subscribe(self, topics: list[str], *, on_assign: Any, **_: Any) -> None:
        self._topic, self._on_assign = topics[0], on_assign

    def poll(self, _: float) -> Message | None:
        code = next(self._coming, None)
        if code is not None:
            return Message(code=code)
        self._on_assign(self, [SimpleNamespace(topic=self._topic, partition=0)])
        return None

    def incremental_assign(self, _: Any) -> None: ...

    def pause(self, _: Any) -> None: ...

    def close(self) -> None:
        self.closed = True


def lease(monkeypatch: pytest.MonkeyPatch, *errors: int) -> Lease:
    monkeypatch.setattr(Member, "errors", list(errors))
    monkeypatch.setattr("confluent_kafka.Consumer", Member)
    return Lease(GroupConfig(group="g", topics=("orders",), cluster=Cluster("none:1")))


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_TOPIC_OR_PART,  # another controller has just created the topic
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError._ALL_BROKERS_DOWN,
    ],
)
def test_the_lease_is_waited_for_while_the_topic_or_the_brokers_are_not_there_yet(
    monkeypatch, code
) -> None:
    with lease(monkeypatch, code, code).held(threading.Event()) as held:
        assert held is not None
        assert held.renewed()
    assert vars(held._consumer)["closed"]


def test_an_error_that_does_not_pass_ends_the_wait_for_the_lease(monkeypatch) -> None:
    waiting = lease(monkeypatch, KafkaError.GROUP_AUTHORIZATION_FAILED)

    with pytest.raises(TrimtabError), waiting.held(threading.Event()):
        pass
    assert vars(waiting._consumer)["closed"]


@pytest.mark.parametrize(
    ("cluster", "least_ms"),
    [
        (Cluster("h:1"), 60_000),
        (Cluster("h:1", timeouts=Timeouts(transaction_s=120)), 120_000),
        (Cluster("h:1", timeouts=Timeouts(request_s=LONGEST_S)), 301_000),
        (Cluster("h:1", timeouts=Timeouts(transaction_s=LONGEST_S)), 300_000),
        (Cluster("h:1", ClientProperties({"request.timeout.ms": "90000"})), 91_000),
    ],
)
def test_brokers_keep_a_transaction_as_long_as_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, least_ms: int
) -> None:
    real = confluent_kafka.Producer
    made: list[tuple[dict[str, Any], float]] = []

    class Producer:
        def __init__(self, config: dict[str, Any]) -> None:
            self.config = config
            real(config)  # librdkafka refuses limits that contradict each other

        def init_transactions(self, timeout: float) -> None:
            made.append((self.config, timeout))

    monkeypatch.setattr("confluent_kafka.Producer", Producer)
    CommandProducer(GroupConfig(group="g", topics=("t",), cluster=cluster))

    ((config, waited_s),) = made
    assert config["transaction.timeout.ms"] == least_ms
    assert waited_s == cluster.timeouts.transaction_s
