"""What a topic to be created may say, when it counts as created, and who is asked for what."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors as theirs
import pytest

from trimtab.errors import MeasurementError
from trimtab.kafka import admin as admin_module
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.model.cluster import NO_LEADER, Broker, BrokerId, TopicPartition
from trimtab.model.timeouts import Timeouts
from trimtab.testing.fakes import FakeAdmin


def test_a_topic_stands_where_it_was_assigned_to() -> None:
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(b)) for b in (1, 2, 3)])
    held = {0: [1, 2], 1: [2, 3], 2: [2, 1]}

    admin.create_topic(TopicSpec(name="U", partitions=3, replication=2, assignment=held))

    assert {p.partition: list(p.replicas) for p in admin.topics(["U"])} == held
    assert [p.leader for p in admin.topics(["U"])] == [1, 2, 2]


@pytest.mark.parametrize(
    ("partitions", "replication", "assignment", "says"),
    [
        (3, 1, {0: [1], 1: [2]}, "partitions"),
        (2, 1, {1: [1], 2: [2]}, "partitions"),
        (1, 2, {0: [1]}, "replication"),
        (1, 2, {0: [1, 1]}, "replication"),
    ],
)
def test_an_assignment_that_contradicts_the_numbers_is_refused(
    partitions: int, replication: int, assignment: dict[int, list[int]], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        TopicSpec(name="t", partitions=partitions, replication=replication, assignment=assignment)


class Brokers:
    """Two brokers; the second one sees a topic only when it is asked for the third time."""

    def __init__(self, *, exists: bool = False) -> None:
        self.asked, self.exists = 0, exists
        self.client = SimpleNamespace(create_topics=self._create)

    def _create(self, _: Any) -> None:
        if self.exists:
            raise theirs.TopicAlreadyExistsError("it is there")

    def ask_any(self, _: Any) -> Any:
        known = [SimpleNamespace(broker_id=b, rack=None, is_fenced=False) for b in (1, 2)]
        return SimpleNamespace(error_code=0, cluster_id="c", brokers=known)

    def ask_each(self, requests: Any, _: str) -> dict[int, Any]:
        self.asked += 1
        return {broker: broker == 1 or self.asked > 2 for broker in requests}


@pytest.mark.parametrize("exists", [False, True])
def test_a_topic_is_created_when_every_broker_shows_it_whoever_created_it(
    monkeypatch, exists
) -> None:
    brokers: Any = Brokers(exists=exists)
    shown = (SimpleNamespace(offline=False),)
    monkeypatch.setattr(admin_module, "_placed", lambda sees: shown if sees else ())

    created = KafkaAdmin(brokers, Timeouts()).create_topic(
        TopicSpec(name="t", partitions=1, replication=1)
    )

    assert (created, brokers.asked) == (not exists, 3)


class Logs:
    """Brokers that answer for the partitions they are asked about, and keep the requests."""

    def __init__(self, **answered: Any) -> None:
        self.asked: list[dict[int, dict[str, list[int]]]] = []
        self.answered = {"error_code": 0, "offset": 7} | answered

    def ask_each(self, requests: Any, what: str) -> dict[int, Any]:
        made = {broker: request() for broker, request in requests.items()}
        asked = {broker: self._partitions(request) for broker, request in made.items()}
        self.asked.append(asked)
        return {broker: self._answer(topics) for broker, topics in asked.items()}

    @staticmethod
    def _partitions(request: Any) -> dict[str, list[int]]:
        return {
            getattr(t, "topic", None) or t.name: [getattr(p, "partition_index", p) for p in numbers]
            for t in request.topics
            for numbers in [t.partitions]
        }

    def _answer(self, topics: dict[str, list[int]]) -> Any:
        found = [
            SimpleNamespace(
                name=topic,
                partitions=[
                    SimpleNamespace(
                        partition_index=n,
                        partition_size=100 + n,
                        is_future_key=False,
                        **self.answered,
                    )
                    for n in numbers
                ],
            )
            for topic, numbers in topics.items()
        ]
        return SimpleNamespace(
            topics=found, error_code=0, results=[SimpleNamespace(error_code=0, topics=found)]
        )


LEADERS = {
    TopicPartition("a", 0): BrokerId(1),
    TopicPartition("a", 1): BrokerId(2),
    TopicPartition("b", 0): BrokerId(2),
    TopicPartition("b", 1): NO_LEADER,
}


def test_each_broker_is_asked_once_for_the_partitions_it_leads() -> None:
    brokers: Any = Logs()
    admin = KafkaAdmin(brokers, Timeouts())

    sizes, offsets = admin.log_dirs(LEADERS), admin.offsets(LEADERS)

    led = {1: {"a": [0]}, 2: {"a": [1], "b": [0]}}
    assert brokers.asked == [led, led, led]  # sizes, first offsets, next offsets
    online = {name: leader for name, leader in LEADERS.items() if leader != NO_LEADER}
    assert sizes == {name: 100 + name.partition for name in online}
    assert offsets == dict.fromkeys(online, (7, 7))


def test_an_offset_that_a_broker_cannot_tell_now_is_left_out() -> None:
    brokers: Any = Logs(error_code=theirs.NotLeaderForPartitionError.errno, offset=-1)

    assert KafkaAdmin(brokers, Timeouts()).ends(LEADERS) == {}


def test_an_offset_that_we_may_not_see_is_an_error() -> None:
    brokers: Any = Logs(error_code=theirs.TopicAuthorizationFailedError.errno, offset=-1)

    with pytest.raises(MeasurementError, match="Authorization failed"):
        KafkaAdmin(brokers, Timeouts()).ends(LEADERS)
