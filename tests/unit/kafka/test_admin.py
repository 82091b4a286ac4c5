"""What a topic to be created may say, and when it counts as created."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kafka.errors as theirs
import pytest

from trimtab.kafka import admin as admin_module
from trimtab.kafka.admin import KafkaAdmin, TopicSpec
from trimtab.model.cluster import Broker, BrokerId
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
