"""Who is blamed when something is not acknowledged."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from trimtab.apply.kafka import consumer
from trimtab.apply.kafka.consumer import Duties
from trimtab.apply.records import Record
from trimtab.errors import BrokerUnavailable

RECORD = Record("orders", 0, 17, b"k", b"v", (), 1000)


class Unacknowledged:
    """Takes everything and gets no answer."""

    def __init__(self, *_: Any, client_id: str, **__: Any) -> None:
        self.client_id = client_id
        self.topics: list[str] = []

    def put(self, topic: str, _value: bytes | None, **_: Any) -> None:
        self.topics.append(topic)

    def confirm(self) -> None:
        if self.topics:
            raise BrokerUnavailable(f"{len(self.topics)} records of {set(self.topics)}")


class NoAdmin:
    def topics(self, _names: Any) -> list[str]:
        return ["there"]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(consumer, "Outbox", Unacknowledged)
    monkeypatch.setattr(consumer, "connect", lambda *_: nullcontext(NoAdmin()))
    duties = Duties(group="pay", topics=("orders",), bootstrap_server="nowhere:1", index=0)
    with consumer._work(duties, "9b") as made:
        yield made


def test_receipts_that_are_not_acknowledged_are_not_reported_as_dead_letters(work: Any) -> None:
    work.receipts.note(RECORD, 1, 2)
    work.dead_letters.confirm()  # there is none
    with pytest.raises(BrokerUnavailable, match="receipts"):
        work.receipts.confirm()


def test_a_dead_letter_that_is_not_acknowledged_is_reported_as_one(work: Any) -> None:
    work.dead_letters.bury(RECORD, ValueError("no such account"))
    work.receipts.confirm()
    with pytest.raises(BrokerUnavailable, match=r"orders\.dead"):
        work.dead_letters.confirm()
