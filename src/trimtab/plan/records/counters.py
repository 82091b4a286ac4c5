"""Counters as a Java int has them: one step a record, and the sign bit is not looked at.

Promise  The first number is the start; after 2³¹−1 comes 0 again, since the sign bit of −2³¹ is
         cleared. At that wrap, and only there, a rotation over a number of choices that is no power
         of two jumps once. A counter is made once, however many threads ask for it first.
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
    """Gives each number to one caller only."""

    __slots__ = ("_count", "_lock")

    def __init__(self, start: int) -> None:
        self._count = start & WITHOUT_SIGN
        self._lock = Lock()

    def step(self) -> int:
        """The present number; the next caller gets the next one."""
        with self._lock:
            count = self._count
            self._count = (count + 1) & WITHOUT_SIGN
            return count


class Starts:
    """Where counters start: at a given number, by the seed and their name, or anywhere."""

    __slots__ = ("_seed", "_start")

    def __init__(self, options: RoutingOptions) -> None:
        self._seed = options.seed
        self._start = options.start

    @property
    def fixed(self) -> bool:
        """Whether nothing is left to chance."""
        return self._start is not None

    def of(self, topic: str, broker: int | None = None) -> int:
        """The start of a topic's counter, or of the one inside a broker."""
        if self._start is not None:
            return self._start & WITHOUT_SIGN
        return self.random(topic, broker).getrandbits(32) & WITHOUT_SIGN

    def random(self, topic: str, broker: int | None = None) -> Random:
        """Chance for one topic, or one broker of it: other topics do not disturb it."""
        return Random(None if self._seed is None else f"{self._seed}/{topic}/{broker}")


class Once(dict[K, V]):
    """Makes the value of a key when it is first asked for, whole before anybody sees it."""

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


def per_topic(make: Callable[[str], V]) -> Once[str, Once[str, V]]:
    """What is kept for each topic of each cluster, made when it is first asked for."""
    return Once(lambda _cluster: Once(make))
