"""Which keys are hot, which stay in the routing table, and which have cooled down.

Promise  A key is hot if its upper bound reaches the threshold, so none is missed. A key of the
         routing table stays tracked until its upper bound is below the cool-down threshold.
         The result is in a fixed order and does not depend on that of the input.
Paper    Bhattacharya & Wood. Differs: by default a key cools down at half the threshold.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple, assert_never

from trimtab.measure.counters import (
    Count,
    Coverage,
    ExactCounter,
    Share,
    Threshold,
    hot_keys,
    threshold_records,
)
from trimtab.measure.lossy_counting import check_threshold
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import homes
from trimtab.plan.keys.planner import CoolBelow, KeyOptions


class KeyHome(NamedTuple):
    """A key, and the partition that Kafka's default partitioner gives it."""

    key: KeyCount
    home: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackedKeys:
    """The keys of a window by what happens to them; each tuple is sorted by key.

    Attributes:
        threshold: Records per window from which a key is hot.
        cool_below: Twice the count below which a routed key cools down, so that it is an integer.
        known: Keys of the routing table that stay in it.
        fresh: Hot keys that are not in the routing table.
        cooled: Keys of the routing table that are no longer hot.
    """

    threshold: int
    cool_below: int
    known: tuple[KeyCount, ...]
    fresh: tuple[KeyCount, ...]
    cooled: tuple[KeyHome, ...]

    @property
    def tracked(self) -> tuple[KeyCount, ...]:
        """All keys that count as hot load: those that stay in the table, and the new ones."""
        return self.known + self.fresh


def tracked_keys(counts: KeyCounts, options: KeyOptions) -> TrackedKeys:
    """Sorts the keys of a window; raises if the threshold is not above the error of counting."""
    threshold, chosen = _hot(counts, options.threshold)
    check_threshold(counts.max_error, threshold)
    twice = 2 * threshold if options.cool_below is CoolBelow.THRESHOLD else threshold
    known, fresh, cooled = [], [], []
    for key in sorted(counts.keys, key=attrgetter("key")):
        most = key.count if key.upper is None else key.upper
        is_hot = most >= threshold if chosen is None else key.key in chosen
        if not key.routed:
            if is_hot:
                fresh.append(key)
        elif is_hot or 2 * most >= twice:
            known.append(key)
        else:
            cooled.append(key)
    at_home = homes([key.key for key in cooled], counts.partitions).tolist() if cooled else []
    return TrackedKeys(
        threshold=threshold,
        cool_below=twice,
        known=tuple(known),
        fresh=tuple(fresh),
        cooled=tuple(map(KeyHome, cooled, at_home)),
    )


def _hot(counts: KeyCounts, form: Threshold | None) -> tuple[int, set[bytes] | None]:
    """The threshold in records, and the hot keys if they are not just all that reach it."""
    match form:
        case None:
            return counts.threshold, None
        case Count() | Share():
            return threshold_records(form, counts.records), None
        case Coverage():
            return _covering(counts, form)
        case _:
            assert_never(form)


def _covering(counts: KeyCounts, form: Coverage) -> tuple[int, set[bytes]]:
    """The fewest keys that have this share of all records, and the smallest of their counts."""
    listed = {key.key: key.count for key in counts.keys}
    hot = set(hot_keys(form, _Listed(listed, counts.records)))
    most = [key.most for key in counts.keys if key.key in hot]
    return max(1, min(most, default=counts.threshold)), hot


class _Listed(ExactCounter):
    """Counts of the listed keys, among all records of the window."""

    __slots__ = ("_records",)

    def __init__(self, counts: dict[bytes, int], records: int) -> None:
        super().__init__(counts)
        self._records = records

    @property
    def n(self) -> int:
        """The number of records of the window."""
        return self._records
