"""Smoothed counts: an exponential average over windows, for loads that vary by chance.

Promise  `c' = round(α·c + (1 − α)·c'_before)`, in exact arithmetic, halves up; the records of
         other keys are averaged by partition. A key without an earlier count is taken as counted.
         The distance of the bounds stays.
Cost     O(keys + partitions).

>>> from dataclasses import replace
>>> key = KeyCount(key=b"a", count=10, partition=0)
>>> earlier = KeyCounts(
...     partitions=2, window_s=1, threshold=5, keys=(key,), partition_totals=(20, 10)
... )
>>> now = replace(earlier, keys=(replace(key, count=20),), partition_totals=(30, 30))
>>> after = smoothed(now, earlier, 0.5)
>>> after.keys[0].count, after.partition_totals
(15, (25, 20))
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from trimtab.model.key_counts import KeyCount, KeyCounts


def smoothed(counts: KeyCounts, earlier: KeyCounts | None, alpha: float) -> KeyCounts:
    """The counts averaged with the smoothed ones of the window before, if there are any."""
    if not 0 < alpha <= 1:
        raise ValueError(f"a share of the new counts must be above 0 and at most 1, not {alpha}")
    if earlier is None or earlier.partitions != counts.partitions:
        return counts
    share = Fraction(str(alpha))

    def averaged(new: int, old: int) -> int:
        return int(share * new + (1 - share) * old + Fraction(1, 2))

    before = {key.key: key.count for key in earlier.keys}
    keys = tuple(
        _with_count(key, averaged(key.count, before.get(key.key, key.count))) for key in counts.keys
    )
    others = [
        total - own for total, own in zip(counts.partition_totals, counts.listed, strict=True)
    ]
    old = [total - own for total, own in zip(earlier.partition_totals, earlier.listed, strict=True)]
    made = [0] * counts.partitions
    for key in keys:
        made[key.partition] += key.count
    totals = [own + averaged(a, b) for own, a, b in zip(made, others, old, strict=True)]
    return replace(counts, keys=keys, partition_totals=tuple(totals))


def _with_count(key: KeyCount, count: int) -> KeyCount:
    upper = None if key.upper is None else count + key.upper - key.count
    return replace(key, count=count, upper=upper)
