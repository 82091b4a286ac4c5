"""What kafka-python's fetcher is taught: odd names of headers, and where reading ends for now."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.record import MemoryRecords, MemoryRecordsBuilder

from trimtab.apply.consumers.kafka.fetching import patch_fetcher


class Odd(str):
    """A name that another client has written in its own way."""

    def encode(self, *_: Any, **__: Any) -> bytes:
        return b"\xff" + super().encode()


def fetched(compression: int, headers: list[list[tuple[str, bytes | None]]]) -> MemoryRecords:
    builder = MemoryRecordsBuilder(magic=2, compression_type=compression, batch_size=1_000_000)
    for number, of_record in enumerate(headers):
        builder.append(timestamp=1000, key=b"k", value=b"%d" % number, headers=of_record)
    builder.close()
    return MemoryRecords(builder.buffer())


def unpacked(consumer: Any, records: MemoryRecords) -> list[Any]:
    place = TopicPartition("orders", 0)
    return list(consumer._fetcher.PartitionRecords(0, place, records).take(100))


def fetcher(parse: Any = print) -> Any:
    return SimpleNamespace(
        _fetcher=SimpleNamespace(
            PartitionRecords=Fetcher.PartitionRecords, _parse_fetched_data=parse
        )
    )


def test_a_client_with_other_insides_stays_as_it_is() -> None:
    other = SimpleNamespace(_fetcher=SimpleNamespace())
    patch_fetcher(other)
    patch_fetcher(SimpleNamespace())
    assert not vars(other._fetcher)


HEADERS: list[list[tuple[str, bytes | None]]] = [
    [("a", b"1")],
    [("a", b"2"), (Odd("ä"), b"\xff")],
    [],
    [(Odd("b"), None)],
]


@pytest.mark.parametrize("compression", [0, 1], ids=["plain", "gzip"])
def test_a_header_name_that_is_not_utf8_is_escaped(compression: int) -> None:
    consumer = fetcher()
    patch_fetcher(consumer)

    found = unpacked(consumer, fetched(compression, HEADERS))

    assert [(r.offset, r.key, r.value) for r in found] == [(n, b"k", b"%d" % n) for n in range(4)]
    assert [list(r.headers) for r in found] == [
        [("a", b"1")],
        [("a", b"2"), ("\\xffä", b"\xff")],
        [],
        [("\\xffb", None)],
    ]
    assert {type(part) for r in found for part in (r.key, r.value)} == {bytes}


def test_what_is_damaged_otherwise_is_still_an_error() -> None:
    consumer = fetcher()
    patch_fetcher(consumer)
    raw = bytearray(fetched(0, HEADERS)._buffer)
    raw[-3] ^= 0xFF

    with pytest.raises(CorruptRecordError):
        unpacked(consumer, MemoryRecords(raw))


@pytest.mark.parametrize(("stable", "expected"), [(7, 7), (10, 10), (-1, 10), (12, 10)])
def test_reading_ends_at_the_last_stable_offset(stable: int, expected: int) -> None:
    seen: list[int] = []
    consumer = fetcher(lambda completed: seen.append(completed.partition_data.high_watermark))
    patch_fetcher(consumer)
    told = SimpleNamespace(high_watermark=10, last_stable_offset=stable)

    consumer._fetcher._parse_fetched_data(SimpleNamespace(partition_data=told))

    assert seen == [expected]
