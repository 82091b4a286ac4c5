"""What is sent instead of a record that is refused, and who is blamed when one is not taken."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError

from trimtab.apply.consumers.kafka import consumer, outbox
from trimtab.apply.consumers.kafka.consumer import ConsumerConfig
from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.model.control_codec import receipt_from
from trimtab.model.json_reader import parse
from trimtab.model.record import Record

RECORD = Record("orders", 0, 17, b"k", b"v", (), 1000)


class Unacknowledged:
    """Takes everything and gets no answer."""

    def __init__(self, *_: Any, client_id: str, **__: Any) -> None:
        self.client_id = client_id
        self.topics: list[str] = []
        self.values: list[bytes | None] = []

    def put(self, topic: str, value: bytes | None, **_: Any) -> None:
        self.topics.append(topic)
        self.values.append(value)

    def confirm(self) -> None:
        if self.topics:
            raise BrokerUnavailable(f"{len(self.topics)} records of {set(self.topics)}")


class NoAdmin:
    def topics(self, _names: Any) -> list[str]:
        return ["there"]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(consumer, "Outbox", Unacknowledged)
    monkeypatch.setattr(Cluster, "admin", lambda _: nullcontext(NoAdmin()))
    config = ConsumerConfig(group="pay", topics=("orders",), cluster=Cluster("nowhere:1"), index=0)
    with consumer._work(config, "9b") as made:
        yield made


@pytest.mark.parametrize("time_ms", [-1, 0, 1_794_946_497_329_000_000, 2**63 - 1])
def test_a_receipt_can_be_read_whatever_the_time_of_its_record(work: Any, time_ms: int) -> None:
    work.receipts.note(RECORD._replace(timestamp_ms=time_ms), 1, 2)

    (noted,) = work.receipts._outbox.values
    found = receipt_from(parse(noted, origin="receipts"))
    assert found.event_ts == min(time_ms * 1000, 2**63 - 1)


def test_receipts_that_are_not_acknowledged_are_not_reported_as_dead_letters(work: Any) -> None:
    work.receipts.note(RECORD, 1, 2)
    work.dead_letters.confirm()  # there is none
    with pytest.raises(BrokerUnavailable, match="receipts"):
        work.receipts.confirm()


def test_a_dead_letter_that_is_not_acknowledged_is_reported_as_one(work: Any) -> None:
    work.dead_letters.send(RECORD, ValueError("no such account"))
    work.receipts.confirm()
    with pytest.raises(BrokerUnavailable, match=r"orders\.dead"):
        work.dead_letters.confirm()


class FakeCluster:
    """Makes topics, beside one with these settings."""

    def __init__(self, **settings: str) -> None:
        self.settings = settings
        self.made: list[Any] = []

    def topics(self, names: Any) -> list[Any]:
        return [name for name in names if name == "orders"]

    def topic_settings(self, _name: str) -> dict[str, str]:
        return self.settings

    def cluster(self) -> Any:
        return SimpleNamespace(live=[1])

    def create_topic(self, spec: Any) -> None:
        self.made.append(spec)


@pytest.mark.parametrize(("largest", "expected"), [("1000", 66_536), (str(2**31 - 1), 2**31 - 1)])
def test_a_dead_letter_topic_takes_what_its_topic_takes_and_more_where_it_can(
    largest: str, expected: int
) -> None:
    cluster = FakeCluster(**{"max.message.bytes": largest})

    def open_outbox() -> Any:
        return Unacknowledged(client_id="c")

    def open_admin() -> Any:
        return nullcontext(cluster)

    letters = outbox.DeadLetterTopics(open_outbox, open_admin)
    letters.send(RECORD, ValueError("no such account"))

    (made,) = cluster.made
    assert made.settings["max.message.bytes"] == str(expected)


# ---------------------------------------------------------------- what a topic does not take


class Sent(NamedTuple):
    value: bytes | None
    timestamp: int
    headers: list[tuple[str, bytes]]


class Particular:
    """A client whose topic takes no time before `since_ms`, nor a batch in which there is one."""

    since_ms = 1_000_000

    def __init__(self, _config: Any) -> None:
        self.kept: list[Sent] = []
        self.batch: list[tuple[Sent, Any]] = []

    def produce(
        self,
        _topic: str,
        value: bytes | None,
        _key: bytes | None,
        _partition: int,
        *,
        on_delivery: Any,
        timestamp: int,
        headers: list[tuple[str, bytes]],
    ) -> None:
        self.batch.append((Sent(value, timestamp, headers), on_delivery))

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        batch, self.batch = self.batch, []
        odd = any(0 < sent.timestamp < self.since_ms for sent, _ in batch)
        for sent, told in batch:
            told(KafkaError(KafkaError.INVALID_TIMESTAMP) if odd else None, None)
            self.kept += [] if odd else [sent]
        return 0


def test_a_record_whose_time_its_topic_does_not_take_goes_with_the_time_of_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outbox, "Producer", Particular)
    made = outbox.Outbox(Cluster("nowhere:1"), client_id="c")
    made.put("orders.dead", b"old", timestamp_ms=7, headers=(("a", b"x"),))
    made.put("orders.dead", b"new", timestamp_ms=2_000_000)

    for _ in range(2):
        with pytest.raises(BrokerUnavailable, match="not acknowledged"):
            made.confirm()
    made.confirm()

    client: Any = made._producer
    assert sorted(client.kept) == [
        Sent(b"new", 2_000_000, []),
        Sent(b"old", 0, [("a", b"x"), ("tt-timestamp", b"7")]),
    ]
