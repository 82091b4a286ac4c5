"""The consuming service, up to the door behind which the client is."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.apply.consumers.kafka import consumer as door
from trimtab.apply.consumers.kafka.consumer import ConsumerConfig
from trimtab.apply.consumers.kafka.directed_reader import OffsetReset
from trimtab.apply.totals import Totals
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.services.consume import ConsumeMode, ConsumeRequest, RestoreNotes, consume_records

CLUSTER = Cluster("broker:9092")
Opened = list[tuple[str, ConsumerConfig, dict[str, Any]]]


def ignore(_: Record) -> None:
    """Handles nothing."""


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """What would have run, instead of its running."""
    seen: Opened = []

    def kind(name: str) -> type:
        class Consumer:
            def __init__(self, config: ConsumerConfig, **more: Any) -> None:
                seen.append((name, config, more))

            def run(self) -> Totals:
                return Totals(records=7)

        return Consumer

    monkeypatch.setattr(door, "DirectedConsumer", kind("directed"))
    monkeypatch.setattr(door, "GroupConsumer", kind("group"))
    return seen


def consume(request: ConsumeRequest, told: Told | None = None) -> Totals:
    stop = threading.Event()
    return consume_records(CLUSTER, request, stop=stop, listener=told or Told())


def test_a_directed_consumer_is_configured_as_the_request_says(
    opened: Opened, tmp_path: Path
) -> None:
    told = Told()
    request = ConsumeRequest(
        group="pay",
        topics=("orders",),
        index=2,
        handler=ignore,
        lake=tmp_path / "lake",
        beginning="latest",
        backoff_s=0.5,
    )

    assert consume(request, told).records == 7

    ((kind, config, more),) = opened
    assert (kind, config.cluster, config.index, config.handler) == ("directed", CLUSTER, 2, ignore)
    assert (config.beginning, config.retry.first_s, config.retry.most_s) == (
        *(OffsetReset.LATEST, 0.5, 10.0),
    )
    assert config.sink is not None
    assert set(more) == {"stop"}
    assert told.starts == ["Consuming for group pay (directed)"]


def test_a_long_first_pause_is_not_shortened(opened: Opened) -> None:
    consume(ConsumeRequest(group="pay", topics=("orders",), index=0, backoff_s=60.0))

    assert opened[0][1].retry.most_s == 60.0


def test_a_subscribed_member_knows_where_the_controller_is(opened: Opened) -> None:
    request = ConsumeRequest(
        group="pay",
        topics=("orders",),
        mode=ConsumeMode.GROUP,
        instance="pod-7",
        controller_url="http://10.0.0.1:1",
        token="s3cret",
    )

    consume(request)

    ((kind, config, more),) = opened
    assert (kind, config.index, config.instance) == ("group", None, "pod-7")
    assert (more["controller_url"], more["token"]) == ("http://10.0.0.1:1", "s3cret")


def test_the_record_of_a_crash_is_named_once(opened: Opened, tmp_path: Path) -> None:
    request = ConsumeRequest(
        group="pay", topics=("orders",), index=0, handler=ignore, in_hand=tmp_path / "record"
    )
    consume(request)
    noted = opened[0][1].in_hand
    assert noted is not None
    noted(Record("orders", 3, 17, None, None, (), 0))  # and then it is killed
    first, second = Told(), Told()

    consume(request, first)
    consume(request, second)

    assert first.warnings == ["the previous process ended while it handled orders-3, offset 17"]
    assert second.warnings == []


def test_a_long_restore_is_told_every_few_seconds():
    heard, now = Told(), [0.0]
    told = RestoreNotes(heard, clock=lambda: now[0])
    place = TopicPartition("orders", 3)
    for second in range(12):
        now[0] = float(second)
        told.restoring(place, second * 100, 2000)
    told.restored(place, 2000, 12.0)
    told.restored(place, 10, 0.1)

    assert heard.notes == [
        "Restoring orders-3: 500 records, about 25 %",
        "Restoring orders-3: 1000 records, about 50 %",
        "Restored orders-3: 2000 records in 12.0 s",
    ]
