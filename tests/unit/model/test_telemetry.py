"""A sample as records in columns: what is in which record, and what null means there."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimtab.model import telemetry
from trimtab.model.cluster import BrokerId, Replicas, TopicPartition
from trimtab.model.telemetry import TelemetrySample, telemetry_records


def placed(topic: str, partitions: int) -> tuple[Replicas, ...]:
    brokers = (BrokerId(1), BrokerId(2))
    return tuple(
        Replicas(topic=topic, partition=n, leader=brokers[0], replicas=brokers, isr=brokers)
        for n in range(partitions)
    )


def sample(
    *partitions: Replicas,
    committed: dict[str, dict[TopicPartition, int]] | None = None,
    named: tuple[str, ...] = (),
) -> TelemetrySample:
    return TelemetrySample(
        id="5c",
        ts=1,
        cluster="Zx",
        partitions=partitions,
        committed=committed or {},
        named_groups=named,
    )


def written(taken: TelemetrySample) -> list[tuple[str, dict[str, Any]]]:
    return [(key.decode(), json.loads(value)) for key, value in telemetry_records(taken)]


def test_each_topic_has_a_record_with_its_partitions_in_order() -> None:
    records = written(sample(*placed("a", 2), *placed("b", 1)))

    assert [(key, r["topic"], r["partition"]) for key, r in records] == [
        ("a", "a", [0, 1]),
        ("b", "b", [0]),
    ]
    assert not any({"part", "of", "named"} & r.keys() for _, r in records)


def test_the_record_is_that_of_the_contract() -> None:
    known = Replicas(
        topic="orders",
        partition=0,
        leader=BrokerId(1),
        replicas=(BrokerId(1), BrokerId(2)),
        isr=(BrokerId(1),),
        log_bytes=123,
        begin_offset=0,
        end_offset=9000,
    )
    [(_, value)] = telemetry_records(sample(known, committed={"g": {known.name: 8988}}))

    assert value.decode() == (
        '{"v":2,"sample_id":"5c","ts":1,"cluster":"Zx","topic":"orders","partition":[0],'
        '"leader":[1],"replicas":[[1,2]],"isr":[[1]],"log_bytes":[123],"begin_offset":[0],'
        '"end_offset":[9000],"committed":{"g":[8988]}}'
    )


def test_a_group_is_where_it_has_an_offset_and_a_named_one_everywhere() -> None:
    read = {"g": {TopicPartition("a", 1): 7}, "other": {TopicPartition("b", 0): 3}}

    records = dict(written(sample(*placed("a", 2), *placed("b", 1), committed=read)))
    named = dict(
        written(sample(*placed("a", 2), *placed("b", 1), committed=read, named=("n", "g")))
    )

    assert records["a"]["committed"] == {"g": [None, 7]}
    assert records["b"]["committed"] == {"other": [3]}
    assert named["a"]["committed"] == {"g": [None, 7], "n": [None, None]}
    assert named["b"]["committed"] == {"g": [None], "n": [None], "other": [3]}
    assert named["b"]["named"] == ["g", "n"]


@pytest.mark.parametrize(
    ("partitions", "lengths"), [(2000, [2000]), (2001, [2000, 1]), (4000, [2000, 2000])]
)
def test_a_large_topic_takes_several_records_with_one_key(
    partitions: int, lengths: list[int]
) -> None:
    records = written(sample(*placed("a", partitions)))

    assert [len(r["partition"]) for _, r in records] == lengths
    assert [n for _, r in records for n in r["partition"]] == list(range(partitions))
    if len(lengths) > 1:
        assert [(key, r["part"], r["of"]) for key, r in records] == [("a", 0, 2), ("a", 1, 2)]


def test_a_record_that_is_too_long_for_brokers_is_split_further(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many groups on one topic: its record is longer than the number of partitions suggests."""
    monkeypatch.setattr(telemetry, "MOST_BYTES", 1_000)
    read = {f"g{n}": {TopicPartition("a", p): 10**9 for p in range(9)} for n in range(20)}

    records = [value for _, value in telemetry_records(sample(*placed("a", 9), committed=read))]

    found = [json.loads(value) for value in records]
    assert max(map(len, records)) <= 1_000
    assert [n for r in found for n in r["partition"]] == list(range(9))
    assert [r["part"] for r in found] == list(range(found[0]["of"]))
