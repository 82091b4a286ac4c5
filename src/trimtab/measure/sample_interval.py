"""The time between two samples: the requested period, or a multiple of it if samples are slow.

Why      A sample of a large cluster may take longer than the period. Sample times would then be
         as irregular as the samples are slow, and nobody would know the interval.
Promise  A whole multiple of the period. Longer as soon as three of the last five samples took
         longer than the interval; shorter again only after five that fit with a fifth to spare.
         The slowest of them does not count, so that one broker that hangs changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from trimtab.measure.windows import as_micros

_RECENT = 5
_SLOW = 3
_SPARE = 0.8
"""The share of a shorter interval that samples may take before it is used again."""

_MISSED = 3
"""A monitor without a sample for so many intervals has ended."""

_GAPS = 3
"""Rates are incomplete if two samples are further apart than this part of their window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleInterval:
    """The interval in use; `took_s` are the durations of the samples since it last changed.

    `window_s` is the window of the rates that are computed from the samples, if it is known.
    """

    period_s: float = 1.0
    window_s: float | None = None
    multiple: int = 1
    took_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not (math.isfinite(self.period_s) and self.period_s > 0):
            raise ValueError(f"the period must be positive, not {self.period_s}")

    @property
    def seconds(self) -> float:
        """The time between two samples."""
        return self.multiple * self.period_s

    @property
    def typical_s(self) -> float:
        """How long recent samples took, without the slowest of several."""
        return sorted(self.took_s)[-2:][0] if self.took_s else 0.0

    def after(self, took_s: float) -> SampleInterval:
        """The interval after one more sample.

        >>> interval = SampleInterval(period_s=1.0)
        >>> for took_s in (1.2, 1.3, 2.1):
        ...     interval = interval.after(took_s)
        >>> interval.seconds
        2.0
        """
        seen = replace(self, took_s=(*self.took_s, took_s)[-_RECENT:])
        if sum(took > self.seconds for took in seen.took_s) >= _SLOW:
            return replace(self, multiple=seen._fitting(1.0), took_s=())
        if len(seen.took_s) == _RECENT and (fewer := seen._fitting(_SPARE)) < self.multiple:
            return replace(self, multiple=fewer, took_s=())
        return seen

    def _fitting(self, share: float) -> int:
        """The least multiple of which samples take at most this share."""
        return max(1, math.ceil(self.typical_s / (share * self.period_s)))

    @property
    def least_window_s(self) -> float:
        """The shortest window over which rates are complete at this interval."""
        return _GAPS * self.seconds

    @property
    def is_too_long(self) -> bool:
        """Whether rates over their window are incomplete at this interval."""
        return self.window_s is not None and self.least_window_s > self.window_s


def is_sampled(times: Sequence[int], now: int, *, period_s: float) -> bool:
    """Whether a monitor runs, from the times of its last three samples, newest first.

    Its interval may have grown to a multiple of the period. The shorter of the last two counts: the
    other may be a pause between two monitors.

    >>> seconds = [1_000_000 * second for second in (100, 92, 84)]
    >>> is_sampled(seconds, 120_000_000, period_s=1), is_sampled(seconds, 125_000_000, period_s=1)
    (True, False)
    """
    if not times:
        return False
    interval_us = min((later - earlier for later, earlier in pairwise(times)), default=0)
    return now - times[0] <= _MISSED * max(interval_us, as_micros(period_s))
