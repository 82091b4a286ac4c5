"""Generations of gateway shards, and partitions that are open or closed."""

from __future__ import annotations

from trimtab.apply.keys.key_entry import DroppedRecord, DropReason, RejectedRecord, RejectReason
from trimtab.apply.keys.message_sets import (
    CloseMarker,
    DataRecord,
    FenceMarker,
    OpenMarker,
    PlainRecord,
)
from trimtab.apply.keys.partition_fences import PartitionFences, read_marker, refusal


def after(*markers):
    fences = PartitionFences()
    for marker in markers:
        fences = read_marker(fences, marker)
    return fences


def data(gen, shard=0):
    return DataRecord(shard=shard, gen=gen, src=1)


def test_a_record_of_an_earlier_generation_is_dropped():
    fences = after(FenceMarker(shard=0, gen=3))

    assert refusal(fences, data(2)) == DroppedRecord(DropReason.FENCED)
    assert refusal(fences, data(3)) is None
    assert refusal(fences, data(1, shard=1)) is None


def test_a_fence_never_goes_back():
    assert after(FenceMarker(shard=0, gen=3), FenceMarker(shard=0, gen=2)).of(0).gen == 3


def test_records_without_headers_are_taken_until_a_shard_closes_and_all_have_opened():
    plain, rejected = PlainRecord("x"), RejectedRecord(RejectReason.CLOSED)
    markers = [
        FenceMarker(shard=0, gen=1),
        CloseMarker(0, 1),
        CloseMarker(1, 1),
        OpenMarker(0, 1),
        OpenMarker(1, 1),
    ]

    found = [refusal(after(*markers[:count]), plain) for count in range(6)]

    assert found == [None, None, rejected, rejected, rejected, None]


def test_a_fenced_gateway_cannot_open_a_partition():
    fences = after(FenceMarker(shard=0, gen=2), CloseMarker(0, 2), OpenMarker(0, 1))

    assert not fences.is_open


def test_a_gateway_that_starts_again_leaves_a_closed_partition_closed():
    assert not after(CloseMarker(0, 1), FenceMarker(shard=0, gen=2)).is_open
