"""What a keyed group's waiting keys wait for, and how that is said."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.evaluate.keyed_status import (
    HandoverUnderWay,
    KeyedPartition,
    PartitionContents,
    ReadPosition,
    WaitCause,
    WaitingKey,
    confirmed,
    holding_up,
    keyed_status,
    summary,
)

NOW = 100_000_000


def waiting(
    key: bytes = b"a", *, since_s: float = 12, at: int = 3, offset: int = 150
) -> WaitingKey:
    since_ts = NOW - int(since_s * 1e6)
    return WaitingKey(key=key, set_id=7, since_ts=since_ts, end_partition=at, end_offset=offset)


def partition(number: int, *keys: WaitingKey, **more: Any) -> KeyedPartition:
    contents = more.pop("contents", None) or PartitionContents(waiting=keys)
    defaults: dict[str, Any] = {
        "data": ReadPosition(0, 200, 200),
        "handovers": ReadPosition(0, 10, 10),
    }
    return KeyedPartition(partition=number, contents=contents, **(defaults | more))


def status(*partitions: KeyedPartition) -> Any:
    return keyed_status("pay", "orders", NOW, partitions)


def sent(key: bytes = b"a", set_id: int = 7) -> HandoverUnderWay:
    return HandoverUnderWay(key=key, set_id=set_id, size_bytes=120, since_ts=NOW - 3_000_000)


def test_a_partition_whose_offset_stands_before_end_has_no_reader() -> None:
    behind = partition(3, data=ReadPosition(0, 200, 120), still=True)
    found = status(partition(0, waiting(), waiting(b"b", since_s=2)), behind)

    assert summary(found) == (
        "2 keys wait, the oldest for 12 s: partition 3 has no reader, 80 records behind.",
    )
    assert holding_up(found) == {3}


def test_a_partition_whose_offset_moves_is_only_late() -> None:
    found = status(partition(0, waiting()), partition(3, data=ReadPosition(0, 200, 120)))

    assert summary(found) == (
        "1 key waits for 12 s: partition 3 is read, but is 80 records behind.",
    )


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ({"still": True, "owner": "shop-1"}, "(shop-1) makes no progress, 80 records behind"),
        ({"owner": "shop-1"}, "(shop-1) is on its way, 80 records behind"),
        (
            {"still": True, "contents": PartitionContents(parked={b"z": 4}, parked_bytes=40)},
            "it has no reader, or it is paused with 4 parked records",
        ),
        ({"data": ReadPosition(0, 200, None)}, "partition 3 was never read"),
    ],
)
def test_what_is_known_of_the_reader_is_said(there: dict[str, Any], said: str) -> None:
    old = partition(3, **({"data": ReadPosition(0, 200, 120)} | there))

    assert said in summary(status(partition(0, waiting()), old))[0]


@pytest.mark.parametrize(
    ("here", "there", "cause", "depends_on"),
    [
        ({}, {"data": ReadPosition(0, 200, 150)}, WaitCause.END_NOT_READ, 3),
        ({}, {"data": ReadPosition(0, 200, None)}, WaitCause.END_NOT_READ, 3),
        ({}, {"data": ReadPosition(0, 200, 151)}, WaitCause.STATE_LOST, 3),
        ({}, {"data": ReadPosition(151, 200, None)}, WaitCause.STATE_LOST, 3),
        ({}, {"contents": PartitionContents(parked={b"a": 2})}, WaitCause.END_PARKED, 3),
        ({"under_way": (sent(),)}, {}, WaitCause.HANDOVER_NOT_READ, 0),
        ({"under_way": (sent(set_id=6),)}, {}, WaitCause.STATE_LOST, 3),
        ({"under_way": (sent(b"b"),)}, {}, WaitCause.STATE_LOST, 3),
    ],
)
def test_the_cause_of_a_wait(
    here: dict[str, Any], there: dict[str, Any], cause: WaitCause, depends_on: int
) -> None:
    found = status(partition(0, waiting(), **here), partition(3, **there))

    assert found.waits[0].reason.cause is cause
    assert found.waits[0].reason.partition == depends_on


def test_an_end_at_an_unknown_place_is_an_unknown_cause() -> None:
    found = status(partition(0, waiting(offset=-1), waiting(b"b", at=9)))

    assert {wait.reason.cause for wait in found.waits} == {WaitCause.UNKNOWN}
    assert summary(found)[0].endswith("it is not known what for.")


def test_a_state_is_lost_only_if_both_looks_say_so() -> None:
    old = partition(3, data=ReadPosition(0, 200, 151))
    first = status(partition(0, waiting()), old)
    second = confirmed(first, status(partition(0, waiting(), waiting(b"b")), old))

    assert {w.waiting.key: w.reason.cause for w in second.waits} == {
        b"a": WaitCause.STATE_LOST,
        b"b": WaitCause.ON_ITS_WAY,
    }
    assert "1 of them: the state is on its way" in summary(second)[0]


def test_different_causes_are_counted_apart() -> None:
    late = partition(3, data=ReadPosition(0, 200, 120), still=True)
    found = status(
        partition(0, waiting(), waiting(b"b"), waiting(b"c", at=1, offset=5)), partition(1), late
    )

    assert "2 of them: partition 3 has no reader" in summary(found)[0]
    assert (
        "1 of them: the state seems to be lost: partition 1 was read beyond END"
        in summary(found)[0]
    )


def test_states_under_way_and_partitions_never_read_are_named() -> None:
    found = status(
        partition(0, under_way=(sent(), sent(b"b"))),
        partition(1, data=ReadPosition(0, 9, None)),
    )

    assert summary(found) == (
        "No key waits.",
        "2 states are under way (240 bytes), the oldest for 3.0 s.",
        "Partition 1 was never read by this group.",
    )


def test_a_group_that_never_read_says_so_once() -> None:
    never = ReadPosition(0, 9, None)

    assert summary(status(partition(0, data=never), partition(1, data=never))) == (
        "No key waits.",
        "No partition was ever read by this group.",
    )


@pytest.mark.parametrize(
    ("position", "lag"),
    [
        (ReadPosition(2, 9, 5), 4),
        (ReadPosition(2, 9, None), 7),
        (ReadPosition(2, 9, 12), 0),
        (ReadPosition(None, None, 5), None),
        (ReadPosition(None, 9, None), None),
    ],
)
def test_lag(position: ReadPosition, lag: int | None) -> None:
    assert position.lag_records == lag
