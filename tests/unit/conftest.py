"""A small cluster in memory for the tests without brokers."""

from __future__ import annotations

import pytest

from trimtab.model.cluster import Broker, BrokerId, Group, Member, Replicas, TopicPartition
from trimtab.testing.fakes import FakeAdmin


def _led_by(broker: int, other: int, topic: str, number: int, *, size: int, end: int) -> Replicas:
    ids = (BrokerId(broker), BrokerId(other))
    return Replicas(
        topic=topic,
        partition=number,
        leader=ids[0],
        replicas=ids,
        isr=ids,
        log_bytes=size,
        begin_offset=0,
        end_offset=end,
    )


@pytest.fixture
def world() -> FakeAdmin:
    """Two brokers, `orders` on both, one group that has read some of it."""
    member = Member(
        member_id="m",
        client_id="c",
        host="/127.0.0.1",
        partitions=frozenset({TopicPartition("orders", 0)}),
    )
    return FakeAdmin(
        brokers=[Broker(id=BrokerId(1), rack="a"), Broker(id=BrokerId(2), rack="b")],
        partitions=[
            _led_by(1, 2, "orders", 0, size=100, end=10),
            _led_by(2, 1, "orders", 1, size=200, end=20),
            _led_by(1, 2, "__consumer_offsets", 0, size=0, end=0),
            _led_by(1, 2, "trimtab.telemetry", 0, size=0, end=0),
        ],
        groups=[
            Group(
                name="g",
                state="STABLE",
                members=(member,),
                committed={TopicPartition("orders", 0): 7},
            )
        ],
    )
