"""The newest valid broker weights, for `weighted-node`.

Promise  Empty (equal weights) before the first record, and when the newest record is older than its
         `valid_s`: stale weights are worse than none. Thread-safe; the result is the same object
         until it changes. A record older than a valid one is ignored. A record is used for at most
         `valid_s` after its arrival; its age on arrival is judged by its `ts`, corrected by the
         clock difference between the machines. That difference is learned from records that arrive
         at the pace at which they were written (at least 1 s apart, half to twice the difference of
         their `ts`); the first record, and records read in a burst or after a gap, do not count.
Cost     One comparison per call.

>>> now = [100.0]
>>> live = LiveWeights(clock=lambda: now[0], wall_us=lambda: int(now[0] * 1e6))
>>> live.update(Weights(ts=99_000_000, valid_s=10, weights={1: 1.0, 2: 0.0}))
>>> dict(live())
{1: 1.0, 2: 0.0}
>>> now[0] = 110.0
>>> dict(live())
{}
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from trimtab.model.weights import Weights
from trimtab.observe.clock import wall_clock_us

_NOTHING: Mapping[int, float] = MappingProxyType({})
_LEAST_S = 1.0
"""Records closer than this show no pace: they may come from several partitions."""


class LiveWeights:
    """Holds the newest weights; calling it returns the weights valid now."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        """Starts without weights.

        Args:
            clock: A monotonic clock in seconds.
            wall_us: The wall clock, in microseconds since 1970.
        """
        self._clock = clock
        self._wall_us = wall_us
        self._guard = threading.Lock()
        self._held: tuple[float, Mapping[int, float]] = (float("-inf"), _NOTHING)
        self._newest: int | None = None
        self._since: tuple[float, int] | None = None
        self._off_s = 0.0

    def update(self, weights: Weights) -> None:
        """Processes a record."""
        with self._guard:
            now = self._clock()
            if self._newest is not None and (
                weights.ts == self._newest or (weights.ts < self._newest and now < self._held[0])
            ):
                return
            seems_s = (self._wall_us() - weights.ts) / 1e6
            if self._arrived_at_pace(now, weights.ts):
                self._off_s = seems_s
            age_s = max(0.0, seems_s - self._off_s)
            self._newest = weights.ts
            self._held = (
                now + weights.valid_s - age_s,
                MappingProxyType(dict(weights.weights)),
            )

    def _arrived_at_pace(self, now: float, ts: int) -> bool:
        """Compares with the first record of the current interval, then starts a new interval."""
        if self._since is None:
            self._since = now, ts
            return False
        came, written = now - self._since[0], (ts - self._since[1]) / 1e6
        if written >= 0 and came < _LEAST_S:
            return False
        self._since = now, ts
        return came >= _LEAST_S and written / 2 <= came <= written * 2

    @property
    def fresh(self) -> bool:
        """Whether weights are known now."""
        return self._clock() < self._held[0]

    def __call__(self) -> Mapping[int, float]:
        """The weights by broker; empty if none are known or they have expired."""
        until, weights = self._held
        return weights if self._clock() < until else _NOTHING
