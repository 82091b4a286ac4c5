"""The newest weights that were heard, as long as they hold: what `weighted-node` is steered by.

Why      Weights come from outside, late or not at all. Old ones are worse than none: a broker that
         was left alone an hour ago may be the only good one now.
Promise  Empty, which means equal weights, before anything was heard and when what was heard is
         older than its `valid_s`. Any thread may tell and ask. While nothing changes, the answer
         is the same object. The same records may come from several places, some of them late: one
         that is older than what is held, and still holds, changes nothing.
         A record is never believed for longer than `valid_s` after it came. How old it was when it
         came is told by its `ts`, and the clocks of two machines differ; so a record that came in
         the pace in which it was written (at least a second after an earlier one, and half to twice
         as long as their `ts` say) was just written, and what its `ts` is then off by is the
         difference of the clocks, which later records are forgiven. The first record, and those
         that come in a heap or after a gap, are judged by their `ts` less that difference: several
         that are read at once say nothing of when they were written, however near to each other.
Cost     One comparison when asked.

>>> now = [100.0]
>>> live = LiveWeights(clock=lambda: now[0], wall_us=lambda: int(now[0] * 1e6))
>>> live.heard(Weights(ts=99_000_000, valid_s=10, weights={1: 1.0, 2: 0.0}))
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

_NOTHING: Mapping[int, float] = MappingProxyType({})
_LEAST_S = 1.0
"""Over less there is no pace: partitions that end at different records are read one by one."""


class LiveWeights:
    """Holds the newest weights; called, it says what they are now."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_us: Callable[[], int] = lambda: time.time_ns() // 1000,
    ) -> None:
        """Knows nothing yet.

        Args:
            clock: Seconds that only grow.
            wall_us: Microseconds since 1970, as far as this machine knows.
        """
        self._clock = clock
        self._wall_us = wall_us
        self._guard = threading.Lock()
        self._held: tuple[float, Mapping[int, float]] = (float("-inf"), _NOTHING)
        self._newest: int | None = None
        self._since: tuple[float, int] | None = None
        self._off_s = 0.0

    def heard(self, weights: Weights) -> None:
        """Takes a record."""
        with self._guard:
            now = self._clock()
            if self._newest is not None and (
                weights.ts == self._newest or (weights.ts < self._newest and now < self._held[0])
            ):
                return
            seems_s = (self._wall_us() - weights.ts) / 1e6
            if self._came_in_pace(now, weights.ts):
                self._off_s = seems_s
            age_s = max(0.0, seems_s - self._off_s)
            self._newest = weights.ts
            self._held = (
                now + weights.valid_s - age_s,
                MappingProxyType(dict(weights.weights)),
            )

    def _came_in_pace(self, now: float, ts: int) -> bool:
        """Compares with the record that the present stretch began with; the next begins here."""
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
        """The weights by broker; empty when none are known, or none any more."""
        until, weights = self._held
        return weights if self._clock() < until else _NOTHING
