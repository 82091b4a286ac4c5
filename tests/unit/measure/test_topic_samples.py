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
    read_any_sample,
    read_sample,
)
from trimtab.measure.windows import PartitionSample
from trimtab.model.cluster import TopicPartition

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


OTHER_TYPE = "not JSON, or a field of another type"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (None, "no value"),
        (b"", "no value"),
        (b"{nonsense", OTHER_TYPE),
        (b"[1]", OTHER_TYPE),
        (text().decode().encode("utf-16"), OTHER_TYPE),
        (b'{"ts":1}', "no version"),
        (text(v=1), "unknown version 1"),
        (text(v=9), "unknown version 9"),
        (text(v="2"), OTHER_TYPE),
        (text(ts=None), "no ts"),
        (text(ts=0), "no ts"),
        (text(ts=-1), "ts is negative"),
        (text(ts="now"), OTHER_TYPE),
        (text(ts=True), OTHER_TYPE),
        (text(ts=NOW * 1000), "ts lies in the future"),
        (text(topic=None), "no topic"),
        (text(topic=5), OTHER_TYPE),
        (text(sample_id=None), "no sample_id"),
        (text(partition=None), "no partition"),
        (text(partition=[]), "no partition"),
        (text(partition=0), OTHER_TYPE),
        (text(partition=[0, None]), "partition has an unknown value"),
        (text(partition=[0, -2]), "partition is negative"),
        (text(partition=[0, 0]), "partition has duplicates"),
        (text(partition=[0, 2_000_000_000]), "partition is 1000000 or more"),
        (text(leader=[1]), "leader is not as long as partition"),
        (text(leader=[1, None]), "leader has an unknown value"),
        (text(leader=[1, -2]), "leader is negative"),
        (text(leader=[1, 2**31]), OTHER_TYPE),
        (text(replicas=[[1], [2], [3]]), "replicas is not as long as partition"),
        (text(isr=[[1], ["2"]]), OTHER_TYPE),
        (text(log_bytes=[1, -5]), "log_bytes is negative"),
        (text(log_bytes=[None, -1]), "log_bytes is negative"),
        (text(begin_offset=[None, -1]), "begin_offset is negative"),
        (text(end_offset=[1, 2, 3]), "end_offset is not as long as partition"),
        (text(committed={"g": [1]}), "committed is not as long as partition"),
        (text(committed={"g": None}), "committed is not as long as partition"),
        (text(committed={"g": [1, -1]}), "committed is negative"),
        (text(committed={"g": 1}), OTHER_TYPE),
        (text(committed=[1]), OTHER_TYPE),
        (text(committed=[]), OTHER_TYPE),
        (text(part=1, of=1), "part is not below of"),
        (text(part=1), "part is not below of"),
        (text(part=-1, of=2), "part is not below of"),
    ],
)
def test_a_record_that_cannot_be_used_is_rejected_with_its_reason(
    record: bytes | None, reason: str
) -> None:
    with pytest.raises(BadSample) as caught:
        read_sample(record, arrived_ts=NOW)
    assert str(caught.value) == reason


@pytest.mark.parametrize("value", [1.7, 1.0, "5", True, [2], 10**30, {}])
@pytest.mark.parametrize("column", ["partition", "leader", "log_bytes", "end_offset"])
def test_only_integers_are_integers(column: str, value: object) -> None:
    """numpy would take 1.7 for 1, and "5" for 5."""
    with pytest.raises(BadSample, match="another type"):
        read_sample(text(**{column: [1, value]}), arrived_ts=NOW)
    with pytest.raises(BadSample, match="another type"):
        read_sample(text(committed={"other": [1, value]}), arrived_ts=NOW, groups=frozenset("g"))


def test_columns_that_are_not_needed_are_unknown_if_they_are_absent() -> None:
    record = {k: v for k, v in GOOD.items() if k not in {"log_bytes", "end_offset", "committed"}}
    sample = read_sample(json.dumps(record).encode(), arrived_ts=NOW)
    assert sample.log_bytes.tolist() == sample.end_offset.tolist() == [UNKNOWN, UNKNOWN]
    assert sample.committed == {}


ONE: dict[str, Any] = GOOD | {
    "v": 1,
    "partition": 2,
    "leader": 1,
    "replicas": [1, 2],
    "isr": [1],
    "log_bytes": None,
    "begin_offset": 0,
    "end_offset": 10,
    "committed": {"g": 7, "h": None},
}


def test_a_record_of_one_partition_is_read_as_a_topic_with_one() -> None:
    """An offset that is null is unknown, whether or not its group was named."""
    sample = read_any_sample(json.dumps(ONE).encode(), arrived_ts=NOW)
    ((name, found),) = sample.partitions()
    assert name == TopicPartition("orders", 2)
    assert found == PartitionSample(
        ts=NOW, leader=1, log_bytes=None, end_offset=10, committed={"g": 7, "h": None}
    )


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"leader": None}, "no leader"),
        ({"partition": [0]}, OTHER_TYPE),
        ({"log_bytes": "5"}, OTHER_TYPE),
        ({"committed": {"g": -1}}, "committed is negative"),
        ({"committed": 5}, OTHER_TYPE),
        ({"end_offset": -1}, "end_offset is negative"),
    ],
)
def test_a_record_of_one_partition_is_rejected_with_its_reason(
    change: dict[str, Any], reason: str
) -> None:
    with pytest.raises(BadSample) as caught:
        read_any_sample(json.dumps(ONE | change).encode(), arrived_ts=NOW)
    assert str(caught.value) == reason


def test_each_partition_by_itself_has_the_offsets_of_its_groups() -> None:
    first, second = read_any_sample(text(), arrived_ts=NOW).partitions()
    assert first == (
        TopicPartition("orders", 0),
        PartitionSample(ts=NOW, leader=1, log_bytes=100, end_offset=10, committed={"g": 7}),
    )
    assert second == (
        TopicPartition("orders", 2),
        PartitionSample(
            ts=NOW, leader=-1, log_bytes=None, end_offset=None, committed={"g": None, "h": 3}
        ),
    )


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
