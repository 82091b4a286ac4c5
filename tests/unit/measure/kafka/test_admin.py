"""What a topic to be created may say."""

from __future__ import annotations

import pytest

from trimtab.measure.kafka.admin import TopicSpec
from trimtab.model.cluster import Broker, BrokerId
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
