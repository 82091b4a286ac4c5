"""Write rate, arrival rate and lag from timestamped samples.

Why      Two log sizes or end offsets, some time apart, show how fast a log grows.
Promise  Never negative. A drop in size (retention, compaction, truncation) or a new leader restarts
         the series: the rate is that of the samples after it. `complete` is false if the restarted
         series is shorter than `min_span_s`, or if sizes are more than `max_gap_s` apart.
Cost     One pass over the samples.
Paper    Landau et al., the monitor's queue; the restart rule is ours.

>>> def at(second, size):
...     return PartitionSample(ts=second * 1_000_000, leader=1, log_bytes=size, end_offset=size)
>>> speed([at(0, 100), at(10, 600)], min_span_s=3, max_gap_s=10).bytes_s
50.0
>>> speed([at(0, 900), at(5, 100), at(10, 600)], min_span_s=3, max_gap_s=10).bytes_s
100.0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

MICROS = 1_000_000


def as_micros(seconds: float) -> int:
    """Seconds in whole microseconds, the nearest number of them.

    >>> as_micros(1.001), int(1.001 * MICROS)
    (1001000, 1000999)
    """
    return round(seconds * MICROS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSample:
    """A sample of one partition; None means unknown."""

    ts: int
    leader: int
    log_bytes: int | None
    end_offset: int | None
    committed: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a partition grows; None means unknown."""

    bytes_s: float | None
    records_s: float | None
    samples: int
    complete: bool


def speed(samples: Sequence[PartitionSample], *, min_span_s: float, max_gap_s: float) -> Speed:
    """Rates over samples in order of time; the Spark step `rates` gives the same figures."""
    sizes = [(s.ts, s.log_bytes, s.leader) for s in samples if s.log_bytes is not None]
    ends = [(s.ts, s.end_offset, 0) for s in samples if s.end_offset is not None]
    size_start, end_start = _restart(sizes), _restart(ends)
    span_us = sizes[-1][0] - sizes[size_start][0] if sizes else 0
    widest_us = max((b[0] - a[0] for a, b in pairwise(sizes)), default=0)
    return Speed(
        bytes_s=_slope(sizes[size_start:]),
        records_s=_slope(ends[end_start:]),
        samples=len(samples),
        complete=span_us >= max(as_micros(min_span_s), 1) and widest_us <= as_micros(max_gap_s),
    )


def _restart(series: Sequence[tuple[int, int, int]]) -> int:
    """Index of the start of the last unbroken run: after the last drop or change of leader."""
    for i in range(len(series) - 1, 0, -1):
        (_, before, old), (_, after, new) = series[i - 1], series[i]
        if after < before or old != new:
            return i
    return 0


def _slope(series: Sequence[tuple[int, int, int]]) -> float | None:
    if len(series) < 2 or series[-1][0] == series[0][0]:
        return None
    (first_ts, first, _), (last_ts, last, _) = series[0], series[-1]
    return (last - first) / ((last_ts - first_ts) / MICROS)


def lag_records(end_offset: int | None, committed: int | None) -> int | None:
    """Records not yet read, never below 0; None if an offset is missing.

    >>> lag_records(100, 90), lag_records(90, 100), lag_records(100, None)
    (10, 0, None)
    """
    if end_offset is None or committed is None:
        return None
    return max(end_offset - committed, 0)


def lag_seconds(samples: Sequence[PartitionSample], committed: int | None) -> float | None:
    """How long ago the end of the log was at the committed offset.

    Interpolates between the two samples around that time; None if the samples do not reach back
    far enough.
    """
    ends = [(s.ts, s.end_offset) for s in samples if s.end_offset is not None]
    if not ends or committed is None:
        return None
    now, newest = ends[-1]
    if committed >= newest:
        return 0.0
    for (early_ts, early), (late_ts, late) in reversed(list(pairwise(ends))):
        if early <= committed < late:
            when = early_ts + (late_ts - early_ts) * (committed - early) / (late - early)
            return (now - when) / MICROS
        if late < early:
            return None
    return None
