"""What a batch measurement is given, and how it measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from trimtab.errors import ThinData
from trimtab.measure.counters import Share, Threshold
from trimtab.measure.spark.hot_keys import CountingMode
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureInput:
    """The input of a measurement; at least one of `events` and `samples` is given.

    `partitions` are the measured partitions with their end offsets, if known. `counted` are those
    whose events were read: without events such a partition was idle, any other is unknown. `cut`
    are partitions whose log starts after the span, `born` those whose first record ever is in it.
    `strays` are partitions whose records have wrong timestamps: (wrong, checked) of the newest
    records. `sizes` is the number of partitions of each topic, if known. Rates come from samples,
    if given, unless `rates_by_samples` is false: then only lag does. Partitions without samples
    are counted from events, unless `only_samples` is set. `watched_part` is true if samples cover
    only a part of the requested span, and the span is that part.
    """

    from_ts: int
    to_ts: int
    partitions: Mapping[TopicPartition, int | None]
    counted: frozenset[TopicPartition] = frozenset()
    events: DataFrame | None = None
    samples: DataFrame | None = None
    rates_by_samples: bool = True
    only_samples: bool = False
    watched_part: bool = False
    rejects: DataFrame | None = None
    cluster: str | None = None
    cut: frozenset[TopicPartition] = frozenset()
    born: frozenset[TopicPartition] = frozenset()
    strays: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def span(self) -> tuple[int, int]:
        """Start and end, in microseconds."""
        return self.from_ts, self.to_ts

    @property
    def span_s(self) -> float:
        """Length of the span in seconds."""
        return (self.to_ts - self.from_ts) / MICROS


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureMethod:
    """The parameters of a measurement."""

    window_s: float = 30.0
    min_span_s: float = 3.0
    key_window_s: float | None = None
    threshold: Threshold | None = field(default_factory=lambda: Share(0.001))
    mode: CountingMode = CountingMode.TWO_PASS
    epsilon: float | None = None

    @property
    def counting_epsilon(self) -> float:
        """The requested error bound, or the default for the threshold."""
        if self.epsilon is not None:
            return self.epsilon
        return default_epsilon(self.threshold or Share(0.001))

    @property
    def max_gap_s(self) -> float:
        """Samples further apart than this count as a gap."""
        return self.window_s / 3


def check_span(span_s: float, how: MeasureMethod) -> None:
    """Raises an error for a span that is too short for a rate."""
    if span_s < how.min_span_s:
        raise ThinData(
            f"The span is {span_s:.1f} s long; a rate needs at least {how.min_span_s:g} s.",
            hint="Choose a longer span, or wait for more data.",
        )


def default_epsilon(threshold: Threshold) -> float:
    """A tenth of the threshold, so that the uncertain range is at most a tenth of it.

    For a count, which does not depend on the window's size, and for coverage: 1 / 100 000.
    """
    return threshold.of_records / 10 if isinstance(threshold, Share) else 0.00001


def times_of(events: DataFrame) -> tuple[int, int] | None:
    """First and last time in a frame, in microseconds; None if it is empty."""
    first, last = events.agg(F.min(F.unix_micros("ts")), F.max(F.unix_micros("ts"))).collect()[0]
    return None if first is None else (int(first), int(last) + 1)


def as_time(ts: int) -> datetime:
    """Microseconds as a datetime for Spark, exact to the microsecond."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts)
