"""Which records of rates are read, and what of them counts."""

from __future__ import annotations

import json

import pytest

from trimtab.model import rates_reader
from trimtab.model.control import TopicRates
from trimtab.model.rates_reader import Keyed, RatesReader

RATE = {"bytes_s": 1.0, "records_s": 1.0, "end_offset": 1, "complete": True, "stale": False}


def record(topic: str, ts: int, part: int = 0, of: int = 1) -> Keyed:
    value = {"v": 1, "ts": ts, "topic": topic, "part": part, "of": of}
    return topic.encode(), json.dumps(value | {"partitions": {str(part): RATE}}).encode()


def seen(rates: list[TopicRates]) -> list[tuple[str, int, list[int]]]:
    return [(r.topic, r.ts, sorted(r.partitions)) for r in rates]


@pytest.fixture
def reader() -> RatesReader:
    return RatesReader(origin="rates", topics=["a", "ä"])


def test_records_are_read_in_their_order_and_those_of_other_topics_are_not_parsed(
    reader: RatesReader,
) -> None:
    records = [record("a", 1), (b"other", b"{nonsense"), record("ä", 1), record("a", 2)]

    complete, refused = reader.read(records)

    assert seen(complete) == [("a", 1, [0]), ("ä", 1, [0]), ("a", 2, [0])]
    assert refused == []


def test_without_a_key_or_without_topics_everything_is_read(reader: RatesReader) -> None:
    _, value = record("a", 1)

    assert len(reader.read([(None, value)])[0]) == 1
    assert len(RatesReader(origin="rates").read([record("x", 1)])[0]) == 1


def test_a_record_that_cannot_be_read_hides_no_other(reader: RatesReader) -> None:
    complete, refused = reader.read([(b"a", b"{nonsense"), record("a", 1), (b"a", b"")])

    assert seen(complete) == [("a", 1, [0])]
    assert [error.message.split(":")[0] for error in refused] == ["rates", "rates"]


def test_parts_may_come_in_several_reads(reader: RatesReader) -> None:
    assert reader.read([record("a", 1, 0, 2)]) == ([], [])

    complete, _ = reader.read([record("a", 1, 1, 2)])

    assert seen(complete) == [("a", 1, [0, 1])]


def test_of_many_bytes_only_the_two_newest_complete_rates_of_each_topic_are_read(
    reader: RatesReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Topic a is in two parts, and the last part of its newest rates has yet to come.

    a: 1 1 2 2 3 3 4 .    ä: 1 2 3
    """
    monkeypatch.setattr(rates_reader, "_IN_FULL_BYTES", 100)
    sets = [record("a", ts, part, 2) for ts in (1, 2, 3, 4) for part in (0, 1)]
    records = [*sets[:-1], *(record("ä", ts) for ts in (1, 2, 3)), (b"a", b"{")]

    complete, refused = reader.read(records)
    later, _ = reader.read(sets[-1:])

    assert seen(complete) == [
        *(("a", 2, [0, 1]), ("a", 3, [0, 1])),
        *(("ä", 2, [0]), ("ä", 3, [0])),
    ]
    assert len(refused) == 1
    assert seen(later) == [("a", 4, [0, 1])]
