"""Headers of a keyed topic: what a gateway writes is what a task reads."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.apply.keys.message_sets import (
    CloseMarker,
    DataRecord,
    EndMarker,
    FenceMarker,
    OpenMarker,
    PlainRecord,
    StartMarker,
)
from trimtab.apply.keys.record_headers import MalformedRecord, headers_for, parse
from trimtab.model.record import Record

numbers = st.integers(-(2**63), 2**63 - 1)


def number(value):
    return value.to_bytes(8, "big", signed=True)


def record(headers, key: bytes | None = b"k"):
    return Record("orders", 1, 7, key, b"v", tuple(headers), 1)


WRITTEN: list[tuple[Any, dict[str, int]]] = [
    (DataRecord(shard=2, gen=3, src=4), {"tt-shard": 2, "tt-gen": 3, "tt-src": 4}),
    (
        DataRecord(shard=2, gen=3, src=4, set_id=5),
        {"tt-shard": 2, "tt-gen": 3, "tt-src": 4, "tt-set": 5},
    ),
    (
        EndMarker(shard=2, gen=3, set_id=4, next_set=5, to=6),
        {"tt-kind": 1, "tt-shard": 2, "tt-gen": 3, "tt-set": 4, "tt-next": 5, "tt-to": 6},
    ),
    (
        StartMarker(shard=2, gen=3, set_id=5, source=6, end_offset=-1),
        {"tt-kind": 2, "tt-shard": 2, "tt-gen": 3, "tt-set": 5, "tt-from": 6, "tt-end": -1},
    ),
    (FenceMarker(shard=2, gen=3), {"tt-kind": 3, "tt-shard": 2, "tt-gen": 3}),
    (
        FenceMarker(shard=2, gen=3, committed=9),
        {"tt-kind": 3, "tt-shard": 2, "tt-gen": 3, "tt-src": 9},
    ),
    (CloseMarker(2, 3), {"tt-kind": 4, "tt-shard": 2, "tt-gen": 3}),
    (OpenMarker(2, 3), {"tt-kind": 5, "tt-shard": 2, "tt-gen": 3}),
]


@pytest.mark.parametrize(("written", "headers"), WRITTEN)
def test_headers_are_eight_bytes_each_and_the_kind_is_one(written, headers):
    expected = {k: bytes([v]) if k == "tt-kind" else number(v) for k, v in headers.items()}

    assert dict(headers_for(written)) == expected
    assert len(headers_for(written)) == len(expected)


@given(st.sampled_from(WRITTEN), st.lists(st.tuples(st.text(max_size=3), st.binary(max_size=9))))
def test_what_was_written_is_read_among_other_headers(case, others):
    written, _ = case
    found = record([*others, *headers_for(written), ("tt-seq", b"")])

    assert parse(found) == (
        DataRecord(
            shard=written.shard,
            gen=written.gen,
            src=written.src,
            set_id=written.set_id,
            payload=found,
        )
        if isinstance(written, DataRecord)
        else written
    )


@given(numbers, numbers, numbers, numbers | st.none())
def test_any_number_survives(shard, gen, src, set_id):
    written = DataRecord(shard=shard, gen=gen, src=src, set_id=set_id)
    found = parse(record(headers_for(written)))

    assert isinstance(found, DataRecord)
    assert (found.shard, found.gen, found.src, found.set_id) == (shard, gen, src, set_id)


@pytest.mark.parametrize("headers", [(), (("tt-seq", number(1)), ("tt-ts", number(2)))])
def test_a_record_without_our_headers_is_plain(headers):
    found = record(headers)

    assert parse(found) == PlainRecord(found)


def test_the_last_header_of_a_name_counts():
    headers = headers_for(DataRecord(shard=0, gen=1, src=2))

    found = parse(record([("tt-src", b"short"), *headers, ("tt-src", number(8))]))

    assert isinstance(found, DataRecord)
    assert found.src == 8


@pytest.mark.parametrize(("written", "headers"), WRITTEN)
def test_a_marker_or_record_that_lacks_a_header_is_malformed(written, headers):
    optional = {"tt-kind", "tt-set" if isinstance(written, DataRecord) else "tt-src"}
    for name in headers.keys() - optional:
        rest = [header for header in headers_for(written) if header[0] != name]

        assert parse(record(rest)) == MalformedRecord(f"{name} is missing")


@pytest.mark.parametrize(("written", "headers"), WRITTEN)
@pytest.mark.parametrize("value", [b"", bytes(7), bytes(9)])
def test_a_number_of_another_length_is_malformed(written, headers, value):
    for name in headers.keys() - {"tt-kind"}:
        changed = [(n, value if n == name else v) for n, v in headers_for(written)]

        expected = MalformedRecord(f"{name} has {len(value)} bytes instead of 8")
        assert parse(record(changed)) == expected


def test_a_number_without_a_value_is_missing():
    """Clients may return None for the value of a header."""
    headers = dict(headers_for(DataRecord(shard=0, gen=1, src=2))) | {"tt-src": None}

    assert parse(record(headers.items())) == MalformedRecord("tt-src is missing")


@pytest.mark.parametrize("kind", [b"", b"\x00", b"\x06", b"\x01\x01", None])
def test_an_unknown_kind_is_malformed(kind):
    headers = (("tt-kind", kind), *headers_for(DataRecord(shard=0, gen=1, src=2)))

    assert parse(record(headers)) == MalformedRecord(
        f"tt-kind is {kind!r}, which is no kind of marker"
    )


def test_records_of_a_key_need_one_and_markers_of_a_partition_do_not():
    for written, _ in WRITTEN:
        found = parse(record(headers_for(written), key=None))
        of_partition = isinstance(written, FenceMarker | CloseMarker | OpenMarker)

        assert found == (written if of_partition else MalformedRecord("it has no key"))
    assert parse(record((), key=None)) == MalformedRecord("it has no key")


def test_an_empty_key_is_a_key():
    assert isinstance(parse(record((), key=b"")), PlainRecord)
    headers = headers_for(DataRecord(shard=0, gen=1, src=2))
    assert isinstance(parse(record(headers, key=b"")), DataRecord)
