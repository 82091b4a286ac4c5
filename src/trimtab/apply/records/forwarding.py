"""How far a forwarder has come: what it took of each partition, and what of that is safe.

Why      Records are acknowledged in any order; an offset may be committed only when every record
         before it is acknowledged, or a crash would lose the one that is missing.
Promise  `safe` never names an offset with an unacknowledged record before it, and never goes back
         while a partition is held, unless the partition itself begins anew. Acknowledgements of
         partitions that were given up are ignored.
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
    """One partition: records under way in the order taken, and where it stands."""

    waiting: deque[int] = field(default_factory=deque)
    sizes: dict[int, int] = field(default_factory=dict)
    position: int = 0
    safe: int | None = None
    told: int | None = None
    kept: int | None = None


class ForwardProgress:
    """Keeps the books of one forwarder; one thread only."""

    def __init__(self) -> None:
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._laps: Counter[TopicPartition] = Counter()
        self.records = 0
        """Records under way."""
        self.bytes = 0

    def taken(self, partition: TopicPartition, offset: int, *, size: int) -> int:
        """A record goes out; those of a partition in the order of their offsets.

        Returns how often the partition began anew, which its acknowledgement is to say.
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
        """A record has arrived."""
        lane = self._lanes.get(partition)
        if lane is None or offset not in lane.sizes or lap != self._laps[partition]:
            return
        self.bytes -= lane.sizes.pop(offset)
        self.records -= 1
        while lane.waiting and lane.waiting[0] not in lane.sizes:
            lane.safe = lane.waiting.popleft() + 1

    def reached(self, partition: TopicPartition, position: int) -> None:
        """There is nothing before this position that was not taken, markers passed over."""
        lane = self._lanes.setdefault(partition, _Lane())
        lane.position = max(lane.position, position)

    def position(self, partition: TopicPartition) -> int:
        """The next offset that was not looked at; 0 where nothing was."""
        lane = self._lanes.get(partition)
        return 0 if lane is None else lane.position

    def under_way(self, partitions: Collection[TopicPartition]) -> int:
        """Records of these partitions that are not acknowledged."""
        return sum(len(self._lanes[p].sizes) for p in partitions if p in self._lanes)

    def safe(self, *, again: bool = False) -> dict[TopicPartition, int]:
        """What may be committed and was not told before; or is not known to be kept, `again`."""
        found = {}
        for partition, lane in self._lanes.items():
            if not lane.waiting and lane.position:  # all has arrived, and beyond there is nothing
                lane.safe = lane.position
            if lane.safe is not None and lane.safe != (lane.kept if again else lane.told):
                found[partition] = lane.told = lane.safe
        return found

    def kept(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are committed for certain."""
        for partition, offset in offsets.items():
            if partition in self._lanes:
                self._lanes[partition].kept = offset

    def untold(self, partitions: Collection[TopicPartition]) -> None:
        """What was told of these did not come through: it is told again."""
        for partition in partitions:
            if partition in self._lanes:
                self._lanes[partition].told = None

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """These are another's now; what is under way of them counts no longer."""
        for partition in partitions:
            lane = self._lanes.pop(partition, None)
            if lane is not None:
                self.records -= len(lane.sizes)
                self.bytes -= sum(lane.sizes.values())

    def begin_anew(self, partition: TopicPartition) -> None:
        """Its offsets now name other records: what is under way under them counts no longer."""
        self.forget([partition])
        self._laps[partition] += 1
