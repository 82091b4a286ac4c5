"""Blocks of records with the times at which they are due, independent of the receiver.

Why      An open-loop generator fixes each record's time before it sends.
         Keyed streams, rate schedules, keyless load and traces are all converted to these blocks.
Promise  Blocks are in the order of time and are a pure function of their source.
         `SequenceNumbers` counts each key's records 1, 2, 3 …; a record without a key is counted in
         its partition, and has no number if the client chooses the partition.
Cost     O(1) per record; `SequenceNumbers` keeps one number per distinct key.

>>> steady = RateSchedule.constant([2.0, 1.0], duration_s=2.0)
>>> [block] = partitioned(steady, seed=1, value_bytes=100)
>>> block.partitions.tolist(), SequenceNumbers().of(block)
([0, 1, 0, 0, 1, 0], [1, 1, 2, 3, 2, 4])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ConfigError
from trimtab.model.load import Loads, Unit
from trimtab.workload.key_streams import KeyStream, key_bytes
from trimtab.workload.rate_streams import RateSchedule, arrival_blocks

BLOCK_RECORDS = 2048
"""Small, so that preparing a block takes only a few milliseconds."""

ANY_PARTITION = -1


class Acks(StrEnum):
    """Which replicas must have a record before it counts as acknowledged."""

    ALL = "all"
    LEADER = "1"
    NONE = "0"


@dataclass(frozen=True, slots=True, kw_only=True)
class DueRecords:
    """A block of records in the order of time; without `keys` no record has a key.

    The client chooses the partition if `partitions` is missing or has `ANY_PARTITION`.
    """

    times_s: NDArray[np.float64]
    value_bytes: int | NDArray[np.int64]
    keys: Sequence[bytes | None] | None = None
    partitions: NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return int(self.times_s.size)

    def each_key(self) -> Iterable[bytes | None]:
        """Returns the key of every record."""
        return repeat(None, len(self)) if self.keys is None else self.keys

    def each_partition(self) -> Iterable[int]:
        """Returns the partition of every record, or `ANY_PARTITION`."""
        if self.partitions is None:
            return repeat(ANY_PARTITION, len(self))
        partitions: list[int] = self.partitions.tolist()
        return partitions

    def first(self, count: int) -> DueRecords:
        """Returns the first `count` records."""
        sizes = self.value_bytes
        return DueRecords(
            times_s=self.times_s[:count],
            value_bytes=sizes if isinstance(sizes, int) else sizes[:count],
            keys=None if self.keys is None else self.keys[:count],
            partitions=None if self.partitions is None else self.partitions[:count],
        )


def keyed(stream: KeyStream, *, duration_s: float, value_bytes: int) -> Iterator[DueRecords]:
    """Yields the records of a key stream."""
    for block in stream.blocks(duration_s, block_records=BLOCK_RECORDS):
        yield DueRecords(times_s=block.times_s, keys=key_bytes(block.keys), value_bytes=value_bytes)


def partitioned(
    schedule: RateSchedule, *, seed: int, value_bytes: int, poisson: bool = False
) -> Iterator[DueRecords]:
    """Yields records without keys, each with a partition, by the partitions' rates."""
    for times_s, partitions in arrival_blocks(
        schedule, seed=seed, poisson=poisson, block_records=BLOCK_RECORDS
    ):
        yield DueRecords(times_s=times_s, partitions=partitions, value_bytes=value_bytes)


def keyless(schedule: RateSchedule, *, seed: int, value_bytes: int) -> Iterator[DueRecords]:
    """Yields records without keys at Poisson arrivals; the client chooses partitions."""
    for block in partitioned(schedule, seed=seed, value_bytes=value_bytes, poisson=True):
        yield DueRecords(times_s=block.times_s, value_bytes=value_bytes)


def until(blocks: Iterable[DueRecords], duration_s: float) -> Iterator[DueRecords]:
    """Yields the records that are due before `duration_s`."""
    for block in blocks:
        count = int(np.searchsorted(block.times_s, duration_s))
        if count:
            yield block.first(count)
        if count < len(block):
            return


def schedule_of(
    loads: Loads, *, origin: str, topic: str, step_s: float, value_bytes: int
) -> RateSchedule:
    """Returns the record rates of a topic in a loads file, each step held for `step_s`.

    If the file has a single topic, its rates are used for any topic.
    """
    named = sorted({partition.topic for step in loads.steps for partition in step.loads})
    if topic not in named and len(named) != 1:
        raise ConfigError(
            f"{origin} has loads of {', '.join(named) or 'no topic'}, none of {topic}.",
            hint="Set --topic to one of these names, or use a file with a single topic.",
        )
    source = topic if topic in named else named[0]
    of_topic = [
        {p.partition: load for p, load in step.loads.items() if p.topic == source}
        for step in loads.steps
    ]
    rates = np.zeros((len(of_topic), 1 + max(max(step, default=0) for step in of_topic)))
    for row, step in zip(rates, of_topic, strict=True):
        row[list(step)] = list(step.values())
    return RateSchedule.from_steps(
        step_s, rates / value_bytes if loads.unit is Unit.BYTES_S else rates
    )


class SequenceNumbers:
    """Numbers the records of each key, across blocks."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[bytes | int, int] = {}

    def of(self, block: DueRecords) -> list[int | None]:
        """Returns the number of every record of the next block."""
        last = self._last
        numbers: list[int | None] = []
        for key, partition in zip(block.each_key(), block.each_partition(), strict=True):
            name = partition if key is None else key
            if name == ANY_PARTITION:
                numbers.append(None)
            else:
                last[name] = number = last.get(name, 0) + 1
                numbers.append(number)
        return numbers
