"""Takes load off the busiest partition with few moves of keys.

Promise  Every step lowers the load of the partition that is the busiest of those not set aside,
         and raises no other to its level. Deterministic.
How      In a stage, the busiest partition gives its largest key that fits both its excess over
         the mean and the room of another one, which is the one it fills best. A key whose home
         has room is preferred if it is at least half as large. If only larger keys are left, or
         only much smaller ones fit, the key that comes nearest to half the difference to the
         least loaded partition goes there. A stage begins when the busiest is above the band and
         ends at a quarter of it. A partition that no step relieves is set aside, with the steps
         of its stage that gained less than the noise in the end, and the others go on.
Cost     O(k log k) to sort k keys, then O(log k + log m) per step.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import isqrt
from typing import NamedTuple

from trimtab.model.key_counts import KeyCount
from trimtab.plan.keys.greedy import Accepts, GreedyStep


class DeadBand(NamedTuple):
    """How far above the mean is tolerated: standard deviations of a count, share of the mean."""

    noise: int
    tolerance: Fraction

    def width(self, total: int, partitions: int) -> int:
        """The width in records, times the number of partitions."""
        noise = isqrt(self.noise**2 * partitions * total)
        return max(noise, int(self.tolerance * total))


class ReliefStep(NamedTuple):
    """A step, and the partitions with their total load that it is judged by."""

    step: GreedyStep
    partitions: int
    total: int


class Relief:
    """The search for steps; `loads` are the total loads, and change with the steps."""

    def __init__(
        self,
        loads: Sequence[int],
        keys: Mapping[int, Sequence[KeyCount]],
        homes: Mapping[bytes, int],
        band: DeadBand,
    ) -> None:
        self.loads = list(loads)
        self._band = band
        self._homes = homes
        self._keys = {
            p: sorted(((k.count, k.key, k) for k in of if k.count > 0), key=lambda c: c[:2])
            for p, of in keys.items()
        }
        self._away = {
            p: [k for _, _, k in of if homes[k.key] != k.partition] for p, of in self._keys.items()
        }
        self._order = sorted((load, p) for p, load in enumerate(self.loads))
        self._total = sum(self.loads)

    def steps(self, *, most: int | None = None, accepts: Accepts | None = None) -> list[ReliefStep]:
        """The steps, no more than `most`; a key whose step is not accepted stays."""
        kept: list[ReliefStep] = []
        while len(self._order) > 1:
            stage, is_stuck = self._stage(None if most is None else most - len(kept), accepts)
            kept += stage
            if not is_stuck:
                break
            load, _ = self._order.pop()
            self._total -= load
        return kept

    def _stage(self, most: int | None, accepts: Accepts | None) -> tuple[list[ReliefStep], bool]:
        """The steps of one stage, and whether the busiest partition must be set aside."""
        m, total = len(self._order), self._total
        width = self._band.width(total, m)
        stop = width // 4
        made: list[ReliefStep] = []
        highest = [self._order[-1][0]]
        if m * highest[0] - total <= width:
            return [], False
        while m * self._order[-1][0] - total > stop:
            if most is not None and len(made) >= most:
                return made, False
            step = self._best(m, total, stop, accepts)
            if step is None:
                return self._worth_keeping(made, highest, isqrt(total // m)), True
            self._shift(step.key.count, step.source, step.target)
            made.append(ReliefStep(step, m, total))
            highest.append(self._order[-1][0])
        return made, False

    def _best(self, m: int, total: int, stop: int, accepts: Accepts | None) -> GreedyStep | None:
        """The next step from the busiest partition; None if there is none."""
        while (step := self._candidate(m, total, stop)) is not None:
            self._take(step.key, step.source)
            if accepts is None or accepts(step):
                return step
        return None

    def _candidate(self, m: int, total: int, stop: int) -> GreedyStep | None:
        load, source = self._order[-1]
        lightest, lowest = self._order[0]
        keys = self._keys.get(source)
        if not keys:
            return None
        ceiling = (total + stop) // m  # no partition is filled above it
        most = min((m * load - total + stop) // m, ceiling - lightest)
        fits = bisect_right(keys, most, key=lambda c: c[0]) - 1
        largest = keys[fits][0] if fits >= 0 else 0
        near = self._nearest(keys, load - lightest, above=fits)
        if near is not None and near.gain >= 2 * largest:
            return GreedyStep(near.key, source, lowest, load, lightest)
        if fits < 0:
            return None
        home = self._homeward(source, most, ceiling)
        if home is not None and 2 * home.count >= largest:
            target = self._homes[home.key]
            return GreedyStep(home, source, target, load, self.loads[target])
        # The fullest partition that stays below the ceiling, the lowest number of equal ones.
        room = bisect_right(self._order, ceiling - largest, key=lambda c: c[0]) - 1
        at = bisect_left(self._order, (self._order[room][0], -1))
        load_to, target = self._order[at]
        return GreedyStep(keys[fits][2], source, target, load, load_to)

    @staticmethod
    def _nearest(
        keys: Sequence[tuple[int, bytes, KeyCount]], difference: int, *, above: int
    ) -> _Gain | None:
        """Of the keys after place `above`, the one that lowers the higher of two loads the most."""
        at = bisect_left(keys, (difference + 1) // 2, key=lambda c: c[0])
        best: _Gain | None = None
        for place in (at - 1, at):
            if above < place < len(keys):
                count, _, key = keys[place]
                gain = min(count, difference - count)
                if gain > 0 and (best is None or gain > best.gain):
                    best = _Gain(gain, key)
        if best is None and above + 1 < len(keys):  # all of them are above half the difference
            count, _, key = keys[above + 1]
            gain = min(count, difference - count)
            return _Gain(gain, key) if gain > 0 else None
        return best

    def _homeward(self, source: int, most: int, ceiling: int) -> KeyCount | None:
        """The largest key that fits at its home."""
        fitting = [
            key
            for key in self._away.get(source, ())
            if key.count <= most and self.loads[self._homes[key.key]] + key.count <= ceiling
        ]
        return max(fitting, key=lambda k: (k.count, k.key), default=None)

    def _take(self, key: KeyCount, source: int) -> None:
        """Removes a key from those that may still move."""
        keys = self._keys[source]
        del keys[bisect_left(keys, (key.count, key.key), key=lambda c: c[:2])]
        if key in self._away[source]:
            self._away[source].remove(key)

    def _shift(self, count: int, source: int, target: int) -> None:
        for p, change in ((source, -count), (target, count)):
            del self._order[bisect_left(self._order, (self.loads[p], p))]
            self.loads[p] += change
            insort(self._order, (self.loads[p], p))

    def _worth_keeping(
        self, made: list[ReliefStep], highest: Sequence[int], noise: int
    ) -> list[ReliefStep]:
        """The fewest first steps that come as low as all of them, but for the noise."""
        enough = next(n for n, load in enumerate(highest) if load <= highest[-1] + noise)
        for undone in reversed(made[enough:]):
            self._shift(undone.step.key.count, undone.step.target, undone.step.source)
        return made[:enough]


class _Gain(NamedTuple):
    """By how much a key lowers the higher of two loads."""

    gain: int
    key: KeyCount
