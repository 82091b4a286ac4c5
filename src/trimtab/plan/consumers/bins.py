"""Consumers as bins during packing; shared by all any-fit planners.

Promise  A partition goes only where it fits: `load + size <= capacity`, compared exactly. One that
         is too big for every consumer gets an empty consumer, which then takes nothing else, not
         even an empty partition. Ties go to the lowest index. A new consumer takes the index that
         the partition was on, if it is not open, else the lowest free one (eq. 14).
Cost     O(log n) per partition placed; a scan over all consumers would be quadratic.
Paper    Landau et al., sections II-B and VI-A. Differs: with unequal capacities "fullest" means
         least room left, and a consumer too small for a partition is not opened for it if another
         one is large enough.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from heapq import heappush, heapreplace
from typing import Protocol

from trimtab.errors import PlanningError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits


class Rule(StrEnum):
    """Which of the open consumers that have room takes the partition."""

    NEXT = "next"  # the last opened, whether or not others have room
    FIRST = "first"  # the lowest index
    BEST = "best"  # the fullest
    WORST = "worst"  # the emptiest


def check_loads(loads: Mapping[TopicPartition, float]) -> None:
    """Rejects invalid loads, naming the partition."""
    for partition, load in loads.items():
        if not (math.isfinite(load) and load >= 0):
            raise ValueError(f"{partition} has load {load}: it must be a number, 0 or more")


def check_countable(loads: Mapping[TopicPartition, float], limits: GroupLimits) -> None:
    """Rejects a capacity so small that load / capacity overflows."""
    whole = sum(loads.values())
    if whole / limits.capacity == math.inf:
        raise PlanningError(
            f"The load {whole:g} {limits.unit} is too large for capacity {limits.capacity:g}.",
            hint="Check the capacity and its unit.",
        )


def bigger_first(
    partitions: Iterable[TopicPartition], loads: Mapping[TopicPartition, float]
) -> list[TopicPartition]:
    """Descending load, then ascending partition."""
    return sorted(sorted(partitions), key=loads.__getitem__, reverse=True)


class Bins:
    """The assignment under construction."""

    def __init__(
        self,
        loads: Mapping[TopicPartition, float],
        previous: Mapping[TopicPartition, int],
        limits: GroupLimits,
        rule: Rule,
    ) -> None:
        self._sizes = loads
        self._previous = previous
        self._capacity = limits.capacity
        self._capacities = limits.capacities
        self._largest = limits.largest
        self._filled: dict[int, float] = {}
        self._owners: dict[TopicPartition, int] = {}
        self._shelf = self._new_shelf(rule)
        self._lowest_free = 0
        self._lowest_default = 0
        self._own = _LowestWith(limits.capacities)

    def assignment(self) -> Assignment:
        """The partitions placed so far."""
        return Assignment(self._owners)

    def fits(self, consumer: int, size: float) -> bool:
        """Whether this consumer, open or not, has room for that size."""
        filled = self._filled.get(consumer)
        if filled is None:
            return size <= self._capacity_of(consumer) or size > self._largest
        return filled + size <= self._capacity_of(consumer)

    def choose(self, size: float) -> int | None:
        """The open consumer that the rule prefers among those with room; None if there is none."""
        return self._shelf.choose(size)

    def name_for(self, partition: TopicPartition) -> int:
        """The index of the consumer to open for a partition that fits nowhere (eq. 14)."""
        size, home = self._sizes[partition], self._previous.get(partition)
        if home is not None and home not in self._filled and self.fits(home, size):
            return home
        free = self._lowest_free_for(size)
        if free is not None:
            return free
        # Every consumer that is large enough is open and full: open one that will be overfull.
        return home if home is not None and home not in self._filled else self._lowest_unopened()

    def add(self, partition: TopicPartition, consumer: int) -> None:
        """Places a partition on the consumer that was chosen or named for it."""
        was_open = consumer in self._filled
        before = self._filled.get(consumer, 0)
        after = self._filled[consumer] = before + self._sizes[partition]
        self._owners[partition] = consumer
        # Unequal capacities are compared by the room left, equal ones by the load itself:
        # the same order, without a subtraction that rounds.
        full = self._capacity_of(consumer) if self._capacities else 0
        if was_open:
            self._shelf.replace(consumer, before - full, after - full)
        else:
            self._own.drop(consumer)
            self._shelf.put(consumer, after - full)

    def place(self, partition: TopicPartition) -> None:
        """Puts a partition on the consumer that the rule prefers, or on a new one."""
        consumer = self.choose(self._sizes[partition])
        self.add(partition, self.name_for(partition) if consumer is None else consumer)

    def _new_shelf(self, rule: Rule) -> _Shelf:
        match rule:
            case Rule.NEXT:
                return _LastOpened(self.fits)
            case Rule.FIRST:
                return _LowestThatFits(self.fits, self._nameable())
            case Rule.BEST:
                return _FullestThatFits(self.fits)
            case Rule.WORST:
                return _EmptiestThatFits(self.fits)

    def _nameable(self) -> list[int]:
        """Every index that a consumer can get, ascending."""
        homes = {self._previous[p] for p in self._sizes if p in self._previous}
        lowest = range(len(self._sizes) + len(self._capacities))
        return sorted(homes.union(self._capacities, lowest))

    def _capacity_of(self, consumer: int) -> float:
        return self._capacities.get(consumer, self._capacity)

    def _lowest_unopened(self) -> int:
        while self._lowest_free in self._filled:
            self._lowest_free += 1
        return self._lowest_free

    def _lowest_free_for(self, size: float) -> int | None:
        if size > self._largest:
            return self._lowest_unopened()
        own = self._own.lowest(size)
        if size > self._capacity:
            return own
        while self._lowest_default in self._filled or self._lowest_default in self._capacities:
            self._lowest_default += 1
        return self._lowest_default if own is None else min(own, self._lowest_default)


class _Shelf(Protocol):
    """Open consumers in the order of one rule; `fill` grows as room shrinks."""

    def choose(self, size: float) -> int | None: ...

    def put(self, consumer: int, fill: float) -> None: ...

    def replace(self, consumer: int, before: float, after: float) -> None: ...


class _LastOpened:
    """Next fit: only the last opened consumer is considered."""

    def __init__(self, fits: Callable[[int, float], bool]) -> None:
        self._fits = fits
        self._last: int | None = None

    def choose(self, size: float) -> int | None:
        return self._last if self._last is not None and self._fits(self._last, size) else None

    def put(self, consumer: int, fill: float) -> None:
        del fill
        self._last = consumer

    def replace(self, consumer: int, before: float, after: float) -> None:
        """A consumer that gets fuller stays the last opened."""


class _LowestThatFits:
    """First fit: a tree over the indexes whose nodes know the emptiest consumer below them.

    If that consumer has no room, no consumer below the node has.
    """

    def __init__(self, fits: Callable[[int, float], bool], indexes: list[int]) -> None:
        self._fits = fits
        self._places = {index: place for place, index in enumerate(indexes)}
        self._leaves = 1 << max(0, len(indexes) - 1).bit_length()
        self._emptiest: list[tuple[float, int] | None] = [None] * (2 * self._leaves)

    def choose(self, size: float) -> int | None:
        tree, fits = self._emptiest, self._fits
        top = tree[1]
        if top is None or not fits(top[1], size):
            return None
        node = 1
        while node < self._leaves:
            node *= 2
            left = tree[node]
            if left is None or not fits(left[1], size):
                node += 1
        found = tree[node]
        return None if found is None else found[1]

    def put(self, consumer: int, fill: float) -> None:
        tree, node = self._emptiest, self._leaves + self._places[consumer]
        entry: tuple[float, int] | None = (fill, consumer)
        while node and tree[node] != entry:
            tree[node] = entry
            node //= 2
            left, right = tree[2 * node], tree[2 * node + 1]
            entry = right if left is None else left if right is None else min(left, right)

    def replace(self, consumer: int, before: float, after: float) -> None:
        del before
        self.put(consumer, after)


class _FullestThatFits:
    """Best fit: a sorted list in buckets, so that an insertion moves few elements."""

    _BUCKET = 128

    def __init__(self, fits: Callable[[int, float], bool]) -> None:
        self._fits = fits
        self._buckets: list[list[tuple[float, int]]] = []

    def choose(self, size: float) -> int | None:
        def too_full(entry: tuple[float, int]) -> bool:
            return not self._fits(-entry[1], size)

        bucket = bisect_left(self._buckets, True, key=lambda b: too_full(b[0])) - 1
        if bucket < 0:
            return None
        entries = self._buckets[bucket]
        return -entries[bisect_left(entries, True, key=too_full) - 1][1]

    def put(self, consumer: int, fill: float) -> None:
        entry = (fill, -consumer)  # of equal fills the lowest index is last and is found first
        if not self._buckets:
            self._buckets.append([entry])
            return
        at = min(self._bucket_of(entry), len(self._buckets) - 1)
        bucket = self._buckets[at]
        insort(bucket, entry)
        if len(bucket) > 2 * self._BUCKET:
            self._buckets.insert(at + 1, bucket[self._BUCKET :])
            del bucket[self._BUCKET :]

    def replace(self, consumer: int, before: float, after: float) -> None:
        entry = (before, -consumer)
        at = self._bucket_of(entry)
        bucket = self._buckets[at]
        del bucket[bisect_left(bucket, entry)]
        if not bucket:
            del self._buckets[at]
        self.put(consumer, after)

    def _bucket_of(self, entry: tuple[float, int]) -> int:
        return bisect_left(self._buckets, entry, key=lambda bucket: bucket[-1])


class _EmptiestThatFits:
    """Worst fit: only the emptiest consumer matters; if it has no room, no consumer has.

    Consumers only get fuller, so a heap entry is updated when it reaches the top.
    """

    def __init__(self, fits: Callable[[int, float], bool]) -> None:
        self._fits = fits
        self._fill: dict[int, float] = {}
        self._heap: list[tuple[float, int]] = []

    def choose(self, size: float) -> int | None:
        while self._heap:
            fill, consumer = self._heap[0]
            if fill == self._fill[consumer]:
                return consumer if self._fits(consumer, size) else None
            heapreplace(self._heap, (self._fill[consumer], consumer))
        return None

    def put(self, consumer: int, fill: float) -> None:
        self._fill[consumer] = fill
        heappush(self._heap, (fill, consumer))

    def replace(self, consumer: int, before: float, after: float) -> None:
        del before
        self._fill[consumer] = after


class _LowestWith:
    """Finds the lowest index whose value is at least a given one: a tree of maxima."""

    def __init__(self, values: Mapping[int, float]) -> None:
        self._indexes = sorted(values)
        self._leaves = 1 << max(0, len(values) - 1).bit_length()
        self._most = [-math.inf] * (2 * self._leaves)
        for place, index in enumerate(self._indexes):
            self._most[self._leaves + place] = values[index]
        for node in reversed(range(1, self._leaves)):
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])

    def lowest(self, least: float) -> int | None:
        if self._most[1] < least:
            return None
        node = 1
        while node < self._leaves:
            node = 2 * node if self._most[2 * node] >= least else 2 * node + 1
        return self._indexes[node - self._leaves]

    def drop(self, index: int) -> None:
        place = bisect_left(self._indexes, index)
        if place == len(self._indexes) or self._indexes[place] != index:
            return
        node = self._leaves + place
        self._most[node] = -math.inf
        while node > 1:
            node //= 2
            self._most[node] = max(self._most[2 * node], self._most[2 * node + 1])
