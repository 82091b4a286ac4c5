"""What a task knows of the gateway shards that write to its partition.

Promise  A record of an earlier generation than the newest FENCE of its shard has no effect. Records
         without our headers are taken while no shard has closed the partition.
Cost     O(shards) per record.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from trimtab.apply.keys.key_entry import DroppedRecord, DropReason, RejectedRecord, RejectReason
from trimtab.apply.keys.message_sets import (
    CloseMarker,
    FenceMarker,
    KeyRecord,
    OpenMarker,
    PartitionMarker,
    PlainRecord,
)


@dataclass(frozen=True, slots=True)
class ShardFence:
    """The newest generation of a gateway shard, and whether it has left the partition open."""

    shard: int
    gen: int = 0
    is_open: bool = True


@dataclass(frozen=True, slots=True)
class PartitionFences:
    """The fences of all shards seen so far, by shard; kept in `.state` under its reserved key."""

    shards: tuple[ShardFence, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether records without our headers are taken."""
        return all(fence.is_open for fence in self.shards)

    def of(self, shard: int) -> ShardFence:
        """The fence of a shard."""
        for fence in self.shards:
            if fence.shard == shard:
                return fence
        return ShardFence(shard)

    def with_fence(self, changed: ShardFence) -> PartitionFences:
        """These fences with one of them replaced."""
        others = [fence for fence in self.shards if fence.shard != changed.shard]
        return PartitionFences(tuple(sorted([*others, changed], key=lambda fence: fence.shard)))


def read_marker(fences: PartitionFences, marker: PartitionMarker) -> PartitionFences:
    """The fences after a marker; one of an earlier generation changes nothing."""
    fence = fences.of(marker.shard)
    if marker.gen < fence.gen:
        return fences
    match marker:
        case FenceMarker():
            return fences.with_fence(replace(fence, gen=marker.gen))
        case CloseMarker():
            return fences.with_fence(replace(fence, is_open=False))
        case OpenMarker():
            return fences.with_fence(replace(fence, is_open=True))
        case _:
            assert_never(marker)


def refusal(fences: PartitionFences, record: KeyRecord) -> DroppedRecord | RejectedRecord | None:
    """Why a record must not reach its key's entry; None if it may."""
    if isinstance(record, PlainRecord):
        return None if fences.is_open else RejectedRecord(RejectReason.CLOSED)
    if record.gen < fences.of(record.shard).gen:
        return DroppedRecord(DropReason.FENCED)
    return None
