"""The part of a span in which a topic had records; its rate is computed over that part.

Why      A topic that is a minute old, or whose load has ended, would get a rate far too low if it
         were averaged over the whole span.
Promise  The start or end of the span is left out if it has no records for longer than a second,
         ten mean pauses, and any pause that occurred twice: one pause is an outage, two are a
         rhythm. So steady, sparse and bursty topics keep the whole span; a rhythm's silent end is
         noted if it is more than a tenth of the span. Before a topic's first record ever, rhythm
         is ignored. Per topic: a partition without records while others have some has a rate of 0.
Cost     O(words); a word is the activity of 60 time slots.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from trimtab.measure.windows import MICROS

SLOTS = 60
"""Slots per word: they fit a signed 64-bit number, and divide a minute evenly."""

_FEW_RECORDS = 10
_SILENT_S = 1.0
_PAUSES = 10.0
_COMPLETE_SHARE = 0.9
"""A rate over this share of the requested span is complete."""
_NOTED_SHARE = 0.1
"""A silent start or end of this share is noted if it is included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """When a topic had records within a span; times are microseconds.

    `rhythm_us` is the longest pause that occurred at least twice; `born` is true if its first
    record is the first that the topic ever had.
    """

    first_ts: int
    last_ts: int
    records: int
    rhythm_us: float
    born: bool = False

    @property
    def mean_pause_us(self) -> float:
        """The mean time between two records; infinite if there is only one."""
        if self.records < 2:
            return float("inf")
        return (self.last_ts - self.first_ts) / (self.records - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedSpan:
    """The part of a span that a rate is computed over; `thin` if it is too short for a rate.

    `quiet_us` are the silent start and end that are included and long enough to be noted.
    """

    asked: tuple[int, int]
    from_ts: int
    to_ts: int
    thin: bool = False
    quiet_us: tuple[int, int] = (0, 0)

    @property
    def seconds(self) -> float:
        """Length of the part."""
        return (self.to_ts - self.from_ts) / MICROS

    @property
    def complete(self) -> bool:
        """Whether it is nearly the whole requested span."""
        asked_us = self.asked[1] - self.asked[0]
        return not self.thin and self.to_ts - self.from_ts >= _COMPLETE_SHARE * asked_us


def recurring_pause(words: Iterable[tuple[int, int]], slot_us: float) -> float:
    """The second longest time between two slots with records; a word is (number, bits).

    >>> recurring_pause([(0, 0b1011), (1, 0b1)], slot_us=1.0)
    2.0
    """
    longest, last = [0, 0], None
    for number, bits in sorted(words):
        if not bits:
            continue
        slots = f"{bits:0{SLOTS}b}"[::-1]  # the first slot is the lowest bit
        first, end = slots.index("1"), slots.rindex("1")
        pauses = [] if last is None else [number * SLOTS + first - last]
        if end > first:
            pauses += [len(gap) + 1 for gap in slots[first + 1 : end + 1].split("1")[:-1]]
        longest = sorted(longest + pauses)[-2:]
        last = number * SLOTS + end
    return longest[0] * slot_us


def used(asked: tuple[int, int], found: Activity | None, *, min_span_s: float) -> UsedSpan:
    """The part of a span that a topic's rate is computed over.

    For example, an hour whose last minute has 6000 records, one every 10 ms:

    >>> minute = Activity(
    ...     first_ts=3540 * MICROS, last_ts=3599_990_000, records=6000, rhythm_us=500_000
    ... )
    >>> used((0, 3600 * MICROS), minute, min_span_s=3.0).seconds
    60.0
    """
    start, end = asked
    whole = UsedSpan(asked=asked, from_ts=start, to_ts=end)
    if found is None or (found.records < _FEW_RECORDS and not found.born):
        return whole
    silent_us = max(_PAUSES * found.mean_pause_us, _SILENT_S * MICROS)
    rhythm_us = max(silent_us, found.rhythm_us)
    before, after = found.first_ts - start, end - found.last_ts
    if before > (silent_us if found.born else rhythm_us):
        start = found.first_ts
    if after > rhythm_us and found.records >= _FEW_RECORDS:
        # Each record counts with the pause that follows it.
        end = min(end, found.last_ts + max(1, round(found.mean_pause_us)))
    if end - start < min_span_s * MICROS:
        return UsedSpan(asked=asked, from_ts=whole.from_ts, to_ts=whole.to_ts, thin=True)
    noted_us = max(silent_us, _NOTED_SHARE * (asked[1] - asked[0]))
    quiet_us = (
        before if start == asked[0] and before > noted_us else 0,
        after if end == asked[1] and after > noted_us else 0,
    )
    return UsedSpan(asked=asked, from_ts=start, to_ts=end, quiet_us=quiet_us)


def note_on(name: str, found: UsedSpan) -> str | None:
    """A note for the user about the used part; None if there is nothing to note."""
    asked_s = (found.asked[1] - found.asked[0]) / MICROS
    if found.thin:
        return (
            f"{name}: the time between its first and last record is too short for a rate; "
            f"records are averaged over the whole {asked_s:.0f} s"
        )
    texts = []
    if (found.from_ts, found.to_ts) != found.asked:
        texts.append(
            f"records only from {_clock(found.from_ts)} to {_clock(found.to_ts)} UTC; its rates "
            f"are over these {found.seconds:.1f} s, not over the requested {asked_s:.0f} s"
        )
    quiet = [
        f"the {which} {us / MICROS:.0f} s"
        for which, us in zip(("first", "last"), found.quiet_us, strict=True)
        if us
    ]
    if quiet:
        texts.append(
            f"no records in {' and '.join(quiet)} of the span; its rates include this time, "
            "because there was more than one pause of that length"
        )
    return f"{name}: {'; '.join(texts)}" if texts else None


def _clock(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts / MICROS, UTC):%H:%M:%S}"
