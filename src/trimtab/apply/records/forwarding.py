"""The progress of a forwarder: records taken from each partition, and offsets safe to commit.

Why      Records are acknowledged in any order; an offset may be committed only when every record
         before it is acknowledged, or a crash would lose the missing one.
Promise  `safe` never returns an offset with an unacknowledged record before it, and never goes back
         while a partition is owned, unless the partition itself restarts. Acknowledgements of
         partitions that are no longer owned are ignored.
Cost     O(1) per record, amortised.

>>> t = TopicPartition("t", 0)
>>> progress = ForwardProgress()
>>> for offset in (7, 8, 9):
...     lap = progress.taken(t, offset, size=100)
>>> progress.acknowledged(t, 8)
>>> progress.safe()
{}
>>> progress.acknowledged(t, 7)
>>> progress.safe()
{TopicPartition(topic='t', partition=0): 9}
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trimtab.model.cluster import TopicPartition


@dataclass(slots=True)
class _Lane:
    """One partition: unacknowledged records in the order taken, and its position."""

    waiting: deque[int] = field(default_factory=deque)
    sizes: dict[int, int] = field(default_factory=dict)
    position: int = 0
    safe: int | None = None
    returned: int | None = None
    kept: int | None = None


class ForwardProgress:
    """Tracks the progress of one forwarder; for one thread only."""

    def __init__(self) -> None:
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._laps: Counter[TopicPartition] = Counter()
        self.records = 0
        """Unacknowledged records."""
        self.bytes = 0

    def taken(self, partition: TopicPartition, offset: int, *, size: int) -> int:
        """Notes a record that is sent; those of a partition in offset order.

        Returns how often the partition has restarted; pass it with the acknowledgement.
        """
        lane = self._lanes.setdefault(partition, _Lane())
        if offset < lane.position:
            raise ValueError(f"offset {offset} of {partition} after {lane.position - 1}")
        lane.waiting.append(offset)
        lane.sizes[offset] = size
        lane.position = offset + 1
        self.records += 1
        self.bytes += size
        return self._laps[partition]

    def acknowledged(self, partition: TopicPartition, offset: int, *, lap: int = 0) -> None:
        """Notes that a record was acknowledged."""
        lane = self._lanes.get(partition)
        if lane is None or offset not in lane.sizes or lap != self._laps[partition]:
            return
        self.bytes -= lane.sizes.pop(offset)
        self.records -= 1
        while lane.waiting and lane.waiting[0] not in lane.sizes:
            lane.safe = lane.waiting.popleft() + 1

    def reached(self, partition: TopicPartition, position: int) -> None:
        """All records before this position were taken; transaction markers are skipped."""
        lane = self._lanes.setdefault(partition, _Lane())
        lane.position = max(lane.position, position)

    def position(self, partition: TopicPartition) -> int:
        """The next offset to take; 0 if nothing was taken."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else lane.position

    def under_way(self, partitions: Collection[TopicPartition]) -> int:
        """The number of unacknowledged records of these partitions."""
        return sum(len(self._lanes[p].sizes) for p in partitions if p in self._lanes)

    def safe(self, *, again: bool = False) -> dict[TopicPartition, int]:
        """Offsets to commit that were not returned before; with `again`, not confirmed before."""
        found = {}
        for partition, lane in self._lanes.items():
            if not lane.waiting and lane.position:  # everything is acknowledged
                lane.safe = lane.position
            if lane.safe is not None and lane.safe != (lane.kept if again else lane.returned):
                found[partition] = lane.returned = lane.safe
        return found

    def kept(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Notes that these offsets are committed."""
        for partition, offset in offsets.items():
            if partition in self._lanes:
                self._lanes[partition].kept = offset

    def not_committed(self, partitions: Collection[TopicPartition]) -> None:
        """A commit of these failed: `safe` returns their offsets again."""
        for partition in partitions:
            if partition in self._lanes:
                self._lanes[partition].returned = None

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets partitions that are no longer owned, with their unacknowledged records."""
        for partition in partitions:
            lane = self._lanes.pop(partition, None)
            if lane is not None:
                self.records -= len(lane.sizes)
                self.bytes -= sum(lane.sizes.values())

    def restart(self, partition: TopicPartition) -> None:
        """Restarts a partition whose offsets now belong to other records."""
        self.forget([partition])
        self._laps[partition] += 1
