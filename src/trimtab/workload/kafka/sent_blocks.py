"""Blocks of records in flight, and what became of them: lateness, latencies, failures."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import numpy as np
from confluent_kafka import KafkaError
from numpy.typing import NDArray

from trimtab.workload.due import DueRecords
from trimtab.workload.load_summary import Ack
from trimtab.workload.traces import SentRecords


class LoadTally:
    """Counts the results of the records, block by block, in the order they were sent."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        late_after_s: float,
        on_ack: Callable[[Ack], None] | None,
        record: Callable[[SentRecords], None] | None,
    ) -> None:
        self.clock = clock
        self.start = 0.0
        self.on_ack = on_ack
        self.acknowledged = 0
        self.failures: Counter[str] = Counter()
        self.late = 0
        self.max_late_s = 0.0
        self.latencies = LatencyHistogram()
        self.late_after_s = late_after_s
        self._record = record
        self._flights: deque[BlockInFlight] = deque()

    @property
    def failed(self) -> int:
        """How many records have failed so far."""
        return self.failures.total()

    def begin(self, block: DueRecords, numbers: list[int | None]) -> BlockInFlight:
        """Registers a block before it is sent."""
        flight = BlockInFlight(block, numbers, self)
        self._flights.append(flight)
        return flight

    def settle(self) -> None:
        """Counts the blocks whose records have all been acknowledged or have failed."""
        while self._flights and self._flights[0].open == 0:
            self._count(self._flights.popleft())

    def _count(self, flight: BlockInFlight) -> None:
        behind = flight.sent_at[: flight.sent] - flight.block.times_s[: flight.sent]
        self.late += int(np.count_nonzero(behind > self.late_after_s))
        self.max_late_s = max(self.max_late_s, float(behind.max(initial=0.0)))
        acked_at = np.array(flight.acked_at)
        kept = np.flatnonzero(~np.isnan(acked_at))
        due = flight.block.times_s[kept]
        self.latencies.add(acked_at[kept] - self.start - due)
        if self._record is not None and kept.size:
            keys = list(flight.block.each_key())
            sizes = np.broadcast_to(np.asarray(flight.block.value_bytes), len(flight.block))
            self._record(
                SentRecords(
                    times_s=due,
                    keys=[keys[at] for at in kept.tolist()],
                    partitions=np.array(flight.partitions)[kept],
                    offsets=np.maximum(np.array(flight.offsets)[kept], -1),
                    value_bytes=sizes[kept].astype(np.int64),
                )
            )


class BlockInFlight:
    """A block in flight: send and acknowledgement times, partitions and offsets."""

    __slots__ = (
        *("acked_at", "block", "numbers", "offsets", "open", "partitions", "sent", "sent_at"),
        "_keys",
        "_tally",
    )

    def __init__(self, block: DueRecords, numbers: list[int | None], tally: LoadTally) -> None:
        count = len(block)
        self.block = block
        self.numbers = numbers
        self.open = count + 1  # itself, until it is closed
        self.sent = 0
        self.sent_at = np.zeros(count)
        self.acked_at = [math.nan] * count
        self.partitions = [-1] * count
        self.offsets = [-1] * count
        self._keys = block.keys
        self._tally = tally

    def delivered(self, at: int, error: KafkaError | None, message: Any) -> None:
        """Records the delivery report of a record."""
        self.open -= 1
        tally = self._tally
        if error is not None:
            tally.failures[error.name()] += 1
            return
        self.acked_at[at] = tally.clock()
        tally.acknowledged += 1
        self.partitions[at] = where = message.partition()
        self.offsets[at] = offset = message.offset()
        if tally.on_ack is not None:
            key = None if self._keys is None else self._keys[at]
            tally.on_ack(Ack(key, self.numbers[at], where, max(offset, -1)))

    def close(self, *, sent: int) -> None:
        """Marks that no more records of the block are sent."""
        self.sent = sent
        self.open -= 1 + len(self.block) - sent


class LatencyHistogram:
    """A histogram of latencies whose buckets are 1 % wide, from 1 µs to a day."""

    _GROWTH = math.log(1.01)
    _LEAST_S = 1e-6

    def __init__(self) -> None:
        self._counts = np.zeros(math.ceil(math.log(86_400 / self._LEAST_S) / self._GROWTH) + 1)

    def add(self, seconds: NDArray[np.float64]) -> None:
        """Adds latencies."""
        grown = np.log(np.maximum(seconds, self._LEAST_S) / self._LEAST_S) / self._GROWTH
        buckets = np.minimum(np.rint(grown).astype(np.int64), self._counts.size - 1)
        self._counts += np.bincount(buckets, minlength=self._counts.size)

    def percentile_ms(self, percent: float) -> float | None:
        """Returns the nearest-rank percentile, within 0.5 %; None if there are no latencies."""
        ranks = np.cumsum(self._counts)
        if not ranks[-1]:
            return None
        bucket = int(np.searchsorted(ranks, math.ceil(ranks[-1] * percent / 100)))
        return round(1000 * self._LEAST_S * math.exp(bucket * self._GROWTH), 3)
