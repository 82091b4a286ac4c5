"""Fixed and moved queues: the latency of each byte while consumers keep up or are rebalanced.

Why      A partition is not read during its hand-over, and its new consumer must then catch up; a
         group that never moves partitions falls behind if it is uneven.
Promise  Deterministic. Every consumer has a queue of kept partitions and a queue of newly assigned
         ones; the latencies of each are a straight line, counted in closed form.
Cost     O(partitions · log partitions) per iteration, whatever the number of bytes.
Paper    Landau et al., eqs 16 to 27. Added: the unread part of a moved queue, which their capacity
         rule excludes, waits in the fixed queue of the next iteration; a moved queue that is never
         read counts what it waited until the iteration ended. The first iteration, in which all
         is new, has no samples.

>>> p = [TopicPartition("t", n) for n in range(2)]
>>> one = Assignment({p[0]: 0, p[1]: 0})
>>> landau([{p[0]: 8, p[1]: 8}] * 2, [one, one], capacity=10, capacity_ratio=1).ramps.slopes
array([0.0375])
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from trimtab.evaluate.latency import Ramp, Ramps
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.workload.rate_streams import LANDAU_ITERATION_S

REBALANCE_S = 5.0
CAPACITY_RATIO = 5 / 6
"""Packing capacity over real rate: lets a consumer catch up with moved load in an iteration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueLatency:
    """The latency of every unit of load, and how many were never read in their iteration."""

    ramps: Ramps
    starved: int


def landau(
    loads: Sequence[Mapping[TopicPartition, float]],
    assignments: Sequence[Assignment],
    *,
    capacity: float,
    capacity_ratio: float = CAPACITY_RATIO,
    iteration_s: float = LANDAU_ITERATION_S,
    rebalance_s: float = REBALANCE_S,
) -> QueueLatency:
    """The latency of each unit of load after the first iteration, in which all is new.

    `capacity` is what planners packed to; consumers really read `capacity / capacity_ratio`.
    """
    if not (capacity > 0 and 0 < capacity_ratio <= 1 and 0 <= rebalance_s < iteration_s):
        raise ValueError(
            "capacity must be positive, its ratio at most 1, rebalance_s below iteration_s: "
            f"{capacity}, {capacity_ratio}, {rebalance_s}, {iteration_s}"
        )
    queues = _Queues(capacity / capacity_ratio, iteration_s, rebalance_s)
    lines: list[Ramp] = []
    for k, (sizes, after) in enumerate(zip(loads, assignments, strict=True)):
        if k > 0:
            lines.extend(queues.iteration(sizes, assignments[k - 1], after))
    return QueueLatency(ramps=Ramps.of(lines), starved=queues.starved)


class _Queues:
    """The fixed queue of each consumer, carried over from one iteration to the next."""

    def __init__(self, rate: float, iteration_s: float, rebalance_s: float) -> None:
        self.rate, self.length, self.rebalance = rate, iteration_s, rebalance_s
        self.carried: dict[int, float] = {}
        self.starved = 0

    def iteration(
        self, loads: Mapping[TopicPartition, float], before: Assignment, after: Assignment
    ) -> Iterator[Ramp]:
        """Yields the lines of one iteration's samples."""
        written: dict[int, list[float]] = {}
        for partition in sorted(after):
            consumer = after[partition]
            kept = before.get(partition) == consumer  # eqs 16 and 17
            written.setdefault(consumer, [0.0, 0.0])[not kept] += loads[partition]
        carried = {}
        for consumer, (fixed, moving) in written.items():
            reads_fixed = min(self.rate, fixed) if moving else self.rate
            waits = 0.0
            if fixed:
                start = self.carried.get(consumer, 0.0)  # eq. 20
                slope = 1 / reads_fixed - 1 / fixed  # eq. 19
                yield Ramp(slope, start, int(self.length * fixed))  # eqs 21 and 22
                waits = max(slope * self.length * fixed + start, 0.0)
            if moving:
                reads_moved = self.rate - reads_fixed
                yield self._moved(moving, reads_moved)
                unread = self.length * moving - reads_moved * (self.length - self.rebalance)
                waits += max(unread, 0.0) / self.rate
            carried[consumer] = waits
        self.carried = carried

    def _moved(self, written: float, reads: float) -> Ramp:
        count = int(self.length * written)  # eq. 26
        if reads > 0:
            return Ramp(1 / reads - 1 / written, self.rebalance, count)  # eqs 25 and 27
        self.starved += count
        return Ramp(-1 / written, self.length, count)


def kafka_default(partitions: Collection[TopicPartition], consumers: int) -> Assignment:
    """A fixed assignment to `consumers` consumers: the partitions in turn."""
    return Assignment({p: i % consumers for i, p in enumerate(sorted(partitions))})
