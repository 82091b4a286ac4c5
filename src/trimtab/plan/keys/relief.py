"""Takes load off the busiest partition with few moves of keys.

Promise  Every step lowers the partition that is the busiest of those not set aside, and raises no
         other to its level. Deterministic.
How      A stage begins when the busiest is above the band and ends at a quarter of it. Each step
         the busiest gives its largest key that fits its excess and the room of another one, the
         fullest that has room; a key with room at home goes there if it is half as large. If a
         larger key gains far more, it goes to the least loaded. A partition that no step relieves
         is set aside, without its steps that gained less than the noise, and the others go on.
         This is done in a few variants, which skip some keys: of those that come as low, also
         beside partitions set aside, the one with the fewest steps wins.
Cost     O(k log k) to sort k keys, then O(log k + log m) per step and variant.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import isqrt
from random import Random
from typing import NamedTuple

from trimtab.model.key_counts import KeyCount
from trimtab.plan.keys.greedy import Accepts, GreedyStep

_MOST_STEPS = 4000
"""Steps of all variants together, beyond the first one."""


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


class _Variant(NamedTuple):
    """How keys are chosen.

    A larger key is taken if it gains `near` halves of the largest that fits. In `skips` of 100
    steps one of the next two keys is taken, in `lightest` of 100 the least loaded partition.
    """

    near: int
    skips: int
    lightest: int


_VARIANTS = (
    _Variant(near=4, skips=0, lightest=0),
    *(
        _Variant(near=near, skips=skips, lightest=lightest)
        for skips, lightest in ((10, 0), (30, 0), (50, 20))
        for near in (3, 4, 6, 12, 1000)
    ),
)

_Entry = tuple[int, bytes, KeyCount]


class Relief:
    """A problem: total loads, the keys of each partition that may move, and their homes."""

    def __init__(
        self,
        loads: Sequence[int],
        keys: Mapping[int, Sequence[KeyCount]],
        homes: Mapping[bytes, int],
        band: DeadBand,
    ) -> None:
        self.loads = loads
        self.homes = homes
        self.band = band
        self.keys: Mapping[int, Sequence[_Entry]] = {
            p: sorted([(k.count, k.key, k) for k in of if k.count > 0]) for p, of in keys.items()
        }
        self.away = {
            p: [entry for entry in reversed(of) if homes[entry[1]] != p]
            for p, of in self.keys.items()
        }

    @property
    def ceiling(self) -> int:
        """The load of the busiest partition at which relief stops."""
        m, total = len(self.loads), sum(self.loads)
        return (total + self.band.width(total, m) // 4) // m

    def steps(
        self,
        *,
        most: int | None = None,
        accepts: Callable[[Sequence[int]], Accepts | None] = lambda _loads: None,
    ) -> list[ReliefStep]:
        """The steps of the best variant, no more than `most`.

        `accepts` gives the test of steps for a list of loads that changes with them; a key whose
        step is not accepted stays.
        """
        found: list[tuple[tuple[list[int], int, int], list[ReliefStep]]] = []
        left = _MOST_STEPS
        for number, variant in enumerate(_VARIANTS):
            search = _Search(self, variant, number)
            steps = search.steps(most, accepts(search.loads))
            moved = sum(one.step.key.count for one in steps)
            found.append(((search.above, len(steps), moved), steps))
            left -= len(steps)
            if len(steps) < 2 or left < len(steps):
                break
        return min(found, key=lambda one: one[0])[1]


class _Search:
    """The search of one variant; `loads` change with its steps.

    `above` is how far each partition that was set aside, and then the busiest of the others, is
    above the ceiling of its stage, in standard deviations.
    """

    def __init__(self, problem: Relief, variant: _Variant, number: int) -> None:
        self.loads = list(problem.loads)
        self._problem = problem
        self._variant = variant
        self._random = Random(number)
        self._own: dict[int, list[_Entry]] = {}  # keys of partitions that gave some
        self._taken: set[bytes] = set()
        self._order = sorted((load, p) for p, load in enumerate(self.loads))
        self._total = sum(self.loads)
        self.above: list[int] = []

    def steps(self, most: int | None, accepts: Accepts | None) -> list[ReliefStep]:
        kept: list[ReliefStep] = []
        while len(self._order) > 1:
            stage, is_stuck = self._stage(None if most is None else most - len(kept), accepts)
            kept += stage
            self.above.append(self._above())
            if not is_stuck:
                break
            load, _ = self._order.pop()
            self._total -= load
        return kept

    def _above(self) -> int:
        """How far the busiest partition is above the ceiling, in standard deviations."""
        m, total = len(self._order), self._total
        ceiling = (total + self._problem.band.width(total, m) // 4) // m
        return max(0, self._order[-1][0] - ceiling) // max(1, isqrt(total // m))

    def _stage(self, most: int | None, accepts: Accepts | None) -> tuple[list[ReliefStep], bool]:
        """The steps of one stage, and whether the busiest partition must be set aside."""
        m, total = len(self._order), self._total
        width = self._problem.band.width(total, m)
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
        keys = self._keys_of(source)
        ceiling = (total + stop) // m  # no partition is filled above it
        most = min((m * load - total + stop) // m, ceiling - lightest)
        fits = bisect_right(keys, most, key=lambda c: c[0]) - 1
        if fits > 0 and self._chance(self._variant.skips):
            fits -= 1 if fits < 2 or self._chance(67) else 2
        largest = keys[fits][0] if fits >= 0 else 0
        near = _nearest(keys, load - lightest, above=fits)
        if near is not None and 2 * near.gain >= self._variant.near * largest:
            return GreedyStep(near.key, source, lowest, load, lightest)
        if fits < 0:
            return None
        home = self._homeward(source, most, ceiling)
        if home is not None and 2 * home.count >= largest:
            target = self._problem.homes[home.key]
            return GreedyStep(home, source, target, load, self.loads[target])
        at = 0
        if not self._chance(self._variant.lightest):
            # The fullest partition that stays below the ceiling, the lowest of equal ones.
            room = bisect_right(self._order, ceiling - largest, key=lambda c: c[0]) - 1
            at = bisect_left(self._order, (self._order[room][0], -1))
        load_to, target = self._order[at]
        return GreedyStep(keys[fits][2], source, target, load, load_to)

    def _chance(self, of_hundred: int) -> bool:
        return of_hundred > 0 and int(self._random.random() * 100) < of_hundred

    def _homeward(self, source: int, most: int, ceiling: int) -> KeyCount | None:
        """The largest key away from home that fits there."""
        homes = self._problem.homes
        fitting = (
            key
            for count, name, key in self._problem.away.get(source, ())
            if count <= most
            and self.loads[homes[name]] + count <= ceiling
            and name not in self._taken
        )
        return next(fitting, None)

    def _keys_of(self, partition: int) -> Sequence[_Entry]:
        own = self._own.get(partition)
        return self._problem.keys.get(partition, ()) if own is None else own

    def _take(self, key: KeyCount, source: int) -> None:
        """Removes a key from those that may still move."""
        if source not in self._own:
            self._own[source] = list(self._problem.keys[source])
        keys = self._own[source]
        del keys[bisect_left(keys, (key.count, key.key))]
        self._taken.add(key.key)

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


def _nearest(keys: Sequence[_Entry], difference: int, *, above: int) -> _Gain | None:
    """Of the keys after place `above`, the one that lowers the higher of two loads the most."""
    middle = bisect_left(keys, (difference + 1) // 2, key=lambda c: c[0])
    best: _Gain | None = None
    for place in (max(middle - 1, above + 1), max(middle, above + 1)):
        if place < len(keys):
            count, _, key = keys[place]
            gain = min(count, difference - count)
            if gain > 0 and (best is None or gain > best.gain):
                best = _Gain(gain, key)
    return best
