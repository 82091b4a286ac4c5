"""Counts of keys in a window: exact, for all policies of a simulation at once.

Why      Policies decide on the counts of the window before. Exact counts keep the error of a
         counter out of the comparison; the entries that a real lossy counter would need are
         reported beside them, from that counter.
Promise  `hot` follows `trimtab.measure.counters.hot_keys` on an exact counter, for all three forms
         of threshold. The sketch has `ε = T / (10·N)`, with `N` the records of the window before
         (in the first window: the number expected).
Cost     Some 20 ns per record; the sketch some 350 ns, once for all policies.

>>> counting = WindowCounting()
>>> counting.add(np.array([7, 5, 7, 9, 7, 5]))
>>> window = counting.finish(0)
>>> window.n, window.distinct, window.hot(Count(2)).as_dict()
(6, 3, {5: 2, 7: 3})
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from trimtab.measure.counters import Count, Coverage, Share, Threshold, threshold_records

if TYPE_CHECKING:
    from trimtab.measure.columnar_counting import ArrowLossyCounter

_DENSE = 1 << 20
Ints = NDArray[np.int64]


class CountedKeys(NamedTuple):
    """Some keys with their counts, in ascending order of the keys' numbers."""

    keys: Ints
    counts: Ints

    def as_dict(self) -> dict[int, int]:
        """The counts by key."""
        return dict(zip(self.keys.tolist(), self.counts.tolist(), strict=True))

    def of(self, keys: Ints) -> Ints:
        """The counts of these keys, 0 for a key that has none."""
        if not self.keys.size:
            return np.zeros(keys.size, np.int64)
        at = np.searchsorted(self.keys, keys).clip(0, self.keys.size - 1)
        return np.where(self.keys[at] == keys, self.counts[at], 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowCounts:
    """The exact counts of a finished window."""

    number: int
    n: int
    all_keys: CountedKeys
    sketch_entries: int | None = None

    @property
    def distinct(self) -> int:
        """The number of distinct keys."""
        return self.all_keys.keys.size

    def hot(self, form: Threshold) -> CountedKeys:
        """The hot keys under a threshold of any form."""
        keys, counts = self.all_keys
        match form:
            case Count() | Share():
                kept = counts >= threshold_records(form, self.n)
            case Coverage(share):
                kept = self._covering(share)
            case _:
                assert_never(form)
        return CountedKeys(keys[kept], counts[kept])

    def least_hot(self, form: Threshold) -> int:
        """T: the smallest count of a hot key; for a coverage, that of the last key it needs."""
        match form:
            case Count() | Share():
                return threshold_records(form, self.n)
            case Coverage():
                return int(self.hot(form).counts.min(initial=max(1, self.n)))
            case _:
                assert_never(form)

    def _covering(self, share: float) -> NDArray[np.bool_]:
        keys, counts = self.all_keys
        exact = Fraction(str(share)) * self.n
        wanted = -(-exact.numerator // exact.denominator)
        kept = np.zeros(keys.size, np.bool_)
        # Ties go by key bytes; only the keys that tie for the last place need them.
        order = np.argsort(-counts, kind="stable")
        covered = np.cumsum(counts[order])
        enough = int(np.searchsorted(covered, wanted)) + 1 if wanted else 0
        if not enough:
            return kept
        least = int(counts[order[min(enough, keys.size) - 1]])
        above = counts > least
        kept[above] = True
        missing = -(-(wanted - int(counts[above].sum())) // least)
        ties = sorted(np.flatnonzero(counts == least).tolist(), key=lambda i: b"%d" % keys[i])
        kept[ties[:missing]] = True
        return kept


class WindowCounting:
    """Counts one window after another."""

    def __init__(self, *, sketch_threshold: Threshold | None = None, expected: int = 1) -> None:
        """Counts exactly; with a threshold for the sketch, also by a real lossy counter."""
        self._dense = np.zeros(0, np.int64)  # counts of keys below 2^20, as far as seen
        self._large: list[Ints] = []
        self._n = 0
        self._threshold = sketch_threshold
        self._least = _expected_least(sketch_threshold, expected)
        self._sketch = self._new_sketch(expected)

    def add(self, keys: Ints) -> None:
        """Counts a block of keys."""
        self._n += keys.size
        small = keys < _DENSE
        if small.all():
            counted = np.bincount(keys)
        else:
            self._large.append(keys[~small])
            counted = np.bincount(keys[small])
        if counted.size > self._dense.size:
            counted[: self._dense.size] += self._dense
            self._dense = counted
        else:
            self._dense[: counted.size] += counted
        if self._sketch is not None:
            import pyarrow as pa

            self._sketch.add_keys(pa.array(keys).cast(pa.string()))

    def finish(self, number: int) -> WindowCounts:
        """Ends the window, and starts the next."""
        small = np.flatnonzero(self._dense)
        large, times = np.unique(
            np.concatenate([np.zeros(0, np.int64), *self._large]), return_counts=True
        )
        entries = None if self._sketch is None else self._sketch.summary().entries
        found = WindowCounts(
            number=number,
            n=self._n,
            all_keys=CountedKeys(
                np.concatenate((small, large)), np.concatenate((self._dense[small], times))
            ),
            sketch_entries=entries,
        )
        self._dense[small] = 0
        self._large.clear()
        self._n = 0
        if self._threshold is not None and found.n:
            self._least = found.least_hot(self._threshold)
            self._sketch = self._new_sketch(found.n)
        return found

    def _new_sketch(self, expected: int) -> ArrowLossyCounter | None:
        from trimtab.measure.columnar_counting import ArrowLossyCounter

        if self._threshold is None:
            return None
        # At most a half: with few records, T / (10·N) may be above it.
        return ArrowLossyCounter(min(0.5, self._least / (10 * max(1, expected))))


def _expected_least(form: Threshold | None, expected: int) -> int:
    """T before the first window; a coverage has none yet, and starts at a thousandth."""
    match form:
        case None:
            return 1
        case Count() | Share():
            return threshold_records(form, expected)
        case Coverage():
            return max(1, expected // 1000)
        case _:
            assert_never(form)
