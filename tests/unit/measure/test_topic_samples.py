"""A telemetry record in columns is read whole, or rejected with its reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.measure.topic_samples import (
    NO_OFFSET,
    UNKNOWN,
    BadSample,
    is_older_version,
    read_sample,
)

NOW = 1_000_000_000
GOOD: dict[str, Any] = {
    "v": 2,
    "sample_id": "5c",
    "ts": NOW,
    "cluster": "Zx",
    "topic": "orders",
    "partition": [0, 2],
    "leader": [1, -1],
    "replicas": [[1], [2]],
    "isr": [[1], []],
    "log_bytes": [100, None],
    "begin_offset": [0, None],
    "end_offset": [10, None],
    "committed": {"g": [7, None], "h": [None, 3]},
    "named": ["g"],
}


def text(**changes: Any) -> bytes:
    return json.dumps(GOOD | changes).encode()


def test_nulls_are_unknown_and_groups_without_an_offset_are_told_from_them() -> None:
    sample = read_sample(text(), arrived_ts=NOW)
    assert sample.partition.tolist() == [0, 2]
    assert sample.leader.tolist() == [1, -1]
    assert sample.log_bytes.tolist() == [100, UNKNOWN]
    assert sample.end_offset.tolist() == [10, UNKNOWN]
    assert {g: c.tolist() for g, c in sample.committed.items()} == {
        "g": [7, UNKNOWN],
        "h": [NO_OFFSET, 3],
    }
    assert sample.is_last_part


def test_only_the_groups_asked_for_are_read() -> None:
    sample = read_sample(text(), arrived_ts=NOW, groups=frozenset({"h"}))
    assert list(sample.committed) == ["h"]


@pytest.mark.parametrize(("part", "is_last"), [(0, False), (1, False), (2, True)])
def test_a_topic_in_parts_is_whole_with_the_last_one(part: int, is_last: bool) -> None:
    assert read_sample(text(part=part, of=3), arrived_ts=NOW).is_last_part is is_last


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "no value"),
        (b"", "no value"),
        (b"{nonsense", "not JSON"),
        (b"[1]", "not JSON"),
        (b'{"ts":1}', "no version"),
        (text(v=1), "version 1 instead of 2"),
        (text(v=9), "version 9 instead of 2"),
        (text(ts=None), "no ts"),
        (text(ts=-1), "no ts"),
        (text(ts="now"), "no ts"),
        (text(ts=NOW * 1000), "ts lies in the future"),
        (text(topic=None), "no topic"),
        (text(partition=None), "no partition"),
        (text(partition=0), "no partition"),
        (text(partition=[0, None]), "partition has a null"),
        (text(partition=[0, -2]), "partition is negative"),
        (text(partition=[0, 0]), "partition has duplicates"),
        (text(partition=[0, 2_000_000_000]), "partition is 1000000 or more"),
        (text(leader=[1]), "columns differ in length"),
        (text(leader=[1, None]), "leader has a null"),
        (text(log_bytes=[1, -5]), "log_bytes is negative"),
        (text(log_bytes=[None, -1]), "log_bytes is negative"),
        (text(log_bytes=[1, "x"]), "log_bytes has a value that is not an integer"),
        (text(log_bytes=[1, [2]]), "log_bytes has a value that is not an integer"),
        (text(end_offset=[1, 2, 3]), "columns differ in length"),
        (text(committed={"g": [1]}), "columns differ in length"),
        (text(committed={"g": 1}), "no committed of g"),
        (text(committed=[1]), "committed is not a map"),
        (text(log_bytes=[1, 10**30]), "log_bytes has a value that is not an integer"),
    ],
)
def test_a_record_that_cannot_be_used_is_rejected_with_its_reason(
    record: bytes | None, reason: str
) -> None:
    with pytest.raises(BadSample, match=reason):
        read_sample(record, arrived_ts=NOW)


@pytest.mark.parametrize(
    ("record", "older"),
    [(text(v=1), True), (text(), False), (b"{", False), (None, False), (b"[]", False)],
)
def test_an_older_version_is_known_by_its_number(record: bytes | None, older: bool) -> None:
    assert is_older_version(record) is older


@pytest.mark.parametrize(
    "changes",
    [
        {"of": "2"},
        {"part": [1], "of": None},
        {"named": 5},
        {"named": [["g"]]},
        {"topic": "\ud800"},
        {"committed": {"\ud800": [1, 2]}},
    ],
)
def test_fields_of_another_type_and_names_that_cannot_be_written_are_rejected(
    changes: dict[str, Any],
) -> None:
    """Any other error would end the query, again and again while the record is in the window."""
    with pytest.raises(BadSample):
        read_sample(text(**changes), arrived_ts=NOW)


def test_json_that_is_nested_too_deeply_is_rejected() -> None:
    with pytest.raises(BadSample):
        read_sample(b"[" * 100_000, arrived_ts=NOW)
    assert not is_older_version(b"[" * 100_000)
