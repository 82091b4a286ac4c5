"""The table of a keyed group."""

from __future__ import annotations

from rich.console import Console

from trimtab.evaluate.keyed_status import (
    KeyedPartition,
    PartitionContents,
    ReadPosition,
    WaitingKey,
    keyed_status,
)
from trimtab.report.keyed_status import status_document, status_view

WAIT = WaitingKey(key=b"\xff", set_id=7, since_ts=4_000_000, end_partition=1, end_offset=50)
STATUS = keyed_status(
    "pay",
    "orders",
    16_000_000,
    [
        KeyedPartition(
            partition=0,
            contents=PartitionContents(
                owned=1200, left=2, waiting=(WAIT,), parked={b"\xff": 3}, parked_bytes=90, early=1
            ),
            data=ReadPosition(0, 100, 90),
            handovers=ReadPosition(0, 4, 4),
        ),
        KeyedPartition(
            partition=1,
            contents=PartitionContents(),
            data=ReadPosition(0, 100, None),
            handovers=ReadPosition(None, None, None),
        ),
    ],
)


def test_the_table_has_a_row_for_each_partition_and_one_for_all() -> None:
    console = Console(width=200, record=True)
    console.print(status_view(STATUS))
    lines = [line.split() for line in console.export_text().splitlines()]

    assert lines[0][:6] == ["1", "key", "waits", "for", "12", "s:"]
    rows = {line[0]: line for line in lines if line and line[0] in {"0", "1", "all"}}
    assert rows["0"][1:7] == ["1,200", "1", "2", "3", "(90", "B)"]
    assert "never" in rows["1"]
    assert "unknown" in rows["1"]
    assert "never" not in rows["all"]


def test_the_document_says_unknown_with_null_and_keys_that_are_no_text_in_base64() -> None:
    document = status_document(STATUS)

    assert document["partitions"][1]["handover_lag_records"] is None
    assert document["total"]["handover_lag_records"] is None
    assert document["total"]["lag_records"] == 110
    assert document["waiting"][0]["key_b64"] == "/w=="
    assert document["waiting"][0]["wait_s"] == 12.0
    assert document["total"]["oldest_handover_s"] is None
