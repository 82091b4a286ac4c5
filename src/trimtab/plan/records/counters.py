"""Counters that wrap like a Java int with the sign bit cleared: one step per record.

Promise  The first number is the start; 2³¹−1 is followed by 0, since the sign bit of −2³¹ is
         cleared. Only at that wrap a rotation over a number of choices that is not a power of two
         jumps once. A counter is created once, even if several threads request it at once.
Cost     O(1); a lock per counter.
Paper    Burato, section 2.2, which is Kafka before 2.4.

>>> counter = Counter(2**31 - 3)
>>> [counter.step() % 3 for _ in range(6)]
[2, 0, 1, 0, 1, 2]
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from threading import Lock
from typing import TypeVar

from trimtab.plan.records.partitioner import RoutingOptions

WITHOUT_SIGN = 0x7FFFFFFF

K = TypeVar("K")
V = TypeVar("V")


class Counter:
    """Returns each number to one caller only; thread-safe."""

    __slots__ = ("_count", "_lock")

    def __init__(self, start: int) -> None:
        self._count = start & WITHOUT_SIGN
        self._lock = Lock()

    def step(self) -> int:
        """Returns the current number and advances."""
        with self._lock:
            count = self._count
            self._count = (count + 1) & WITHOUT_SIGN
            return count


class Starts:
    """Start values of counters: a given number, derived from seed and name, or random."""

    __slots__ = ("_seed", "_start")

    def __init__(self, options: RoutingOptions) -> None:
        self._seed = options.seed
        self._start = options.start

    @property
    def fixed(self) -> bool:
        """Whether the starts are deterministic."""
        return self._start is not None

    def of(self, topic: str, broker: int | None = None) -> int:
        """The start of a topic's counter, or of the one inside a broker."""
        if self._start is not None:
            return self._start & WITHOUT_SIGN
        return self.random(topic, broker).getrandbits(32) & WITHOUT_SIGN

    def random(self, topic: str, broker: int | None = None) -> Random:
        """A random generator for one topic or one broker of it, independent of other topics."""
        return Random(None if self._seed is None else f"{self._seed}/{topic}/{broker}")


class LazyValues(dict[K, V]):
    """Creates the value of a key on first access; thread-safe."""

    __slots__ = ("_lock", "_make")

    def __init__(self, make: Callable[[K], V]) -> None:
        super().__init__()
        self._make = make
        self._lock = Lock()

    def __missing__(self, key: K) -> V:
        with self._lock:
            found = self.get(key)
            if found is None:
                found = self[key] = self._make(key)
            return found


def per_topic(make: Callable[[str], V]) -> LazyValues[str, LazyValues[str, V]]:
    """A state per cluster and topic, created on first access."""
    return LazyValues(lambda _cluster: LazyValues(make))
