"""Over which part of a span a topic had records: that part is what its rate is divided by.

Why      A topic that is a minute old has no rate "of the last hour", and a load that has ended has
         none of the time after it. Averaged over the whole span, both look far too light.
Promise  An end of the span is left out only where it was silent for longer than the topic was
         anywhere in between, for longer than ten of its mean pauses, and for longer than a second.
         So steady, sparse and bursty topics keep the whole span, and so does one without records:
         it was idle. The answer is per topic: a partition that is silent while others flow had a
         rate of 0.
Cost     O(words), a word being the activity of 60 slots of time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from trimtab.measure.windows import MICROS

SLOTS = 60
"""Slots per word: the bits of a signed 64-bit number, and a round number of a minute."""

_FEW_RECORDS = 10
_SILENT_S = 1.0
_PAUSES = 10.0
_MOST_OF_IT = 0.9
"""A rate over this share of the span asked for is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """When a topic had records within a span; times are microseconds."""

    first_ts: int
    last_ts: int
    records: int
    longest_pause_us: float

    @property
    def mean_pause_us(self) -> float:
        """The mean time between two records; infinite where there is only one."""
        if self.records < 2:
            return float("inf")
        return (self.last_ts - self.first_ts) / (self.records - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The part of a span that a rate is over; `thin` where records span too little for a rate."""

    asked: tuple[int, int]
    from_ts: int
    to_ts: int
    thin: bool = False

    @property
    def seconds(self) -> float:
        """Length of the part."""
        return (self.to_ts - self.from_ts) / MICROS

    @property
    def complete(self) -> bool:
        """Whether it is nearly all that was asked for."""
        asked_us = self.asked[1] - self.asked[0]
        return not self.thin and self.to_ts - self.from_ts >= _MOST_OF_IT * asked_us


def longest_pause(words: Iterable[tuple[int, int]], slot_us: float) -> float:
    """The longest time between two slots with records; words are (number, bits).

    >>> longest_pause([(0, 0b1011), (1, 0b1)], slot_us=1.0)
    57.0
    """
    longest, last = 0, None
    for number, bits in sorted(words):
        if not bits:
            continue
        slots = f"{bits:0{SLOTS}b}"[::-1]  # the first slot is the lowest bit
        first, end = slots.index("1"), slots.rindex("1")
        if last is not None:
            longest = max(longest, number * SLOTS + first - last)
        if end > first:
            longest = max(longest, max(map(len, slots[first:end].split("1"))) + 1)
        last = number * SLOTS + end
    return longest * slot_us


def used(asked: tuple[int, int], found: Activity | None, *, min_span_s: float) -> Used:
    """The part of a span that a topic's rate is over.

    An hour of which the last minute has 6000 records, one every 10 ms:

    >>> minute = Activity(
    ...     first_ts=3540 * MICROS, last_ts=3599_990_000, records=6000, longest_pause_us=500_000
    ... )
    >>> used((0, 3600 * MICROS), minute, min_span_s=3.0).seconds
    60.0
    """
    start, end = asked
    whole = Used(asked=asked, from_ts=start, to_ts=end)
    if found is None or found.records < _FEW_RECORDS:
        return whole
    silent_us = max(found.longest_pause_us, _PAUSES * found.mean_pause_us, _SILENT_S * MICROS)
    if found.first_ts - start > silent_us:
        start = found.first_ts
    if end - found.last_ts > silent_us:
        # Each record stands for the pause that follows it.
        end = min(end, found.last_ts + max(1, round(found.mean_pause_us)))
    if end - start < min_span_s * MICROS:
        return Used(asked=asked, from_ts=whole.from_ts, to_ts=whole.to_ts, thin=True)
    return Used(asked=asked, from_ts=start, to_ts=end)


def said(name: str, found: Used) -> str | None:
    """What a person must know of the part that was used; None where it is the whole span."""
    asked_s = (found.asked[1] - found.asked[0]) / MICROS
    if found.thin:
        return (
            f"{name}: all records lie within too short a time for a rate; "
            f"they are averaged over the whole {asked_s:.0f} s"
        )
    if (found.from_ts, found.to_ts) == found.asked:
        return None
    return (
        f"{name}: records only from {_clock(found.from_ts)} to {_clock(found.to_ts)} UTC; "
        f"its rates are over these {found.seconds:.1f} s, not over the {asked_s:.0f} s asked for"
    )


def _clock(ts: int) -> str:
    return f"{datetime.fromtimestamp(ts / MICROS, UTC):%H:%M:%S}"
