"""Keeps the recent samples of every partition and computes current rates from them.

Why      A controller needs a rate a fraction of a second after the sample; a streaming window would
         delay it by the length of the window. A few thousand samples fit in memory.
Promise  Adding the same samples again changes nothing. A partition without new samples keeps its
         last rate, marked as stale, for one window, and is then dropped. A tumbling window is
         closed once, when a sample `GRACE_S` after its end has arrived; later ones are late.
Cost     O(samples of one window) per partition and call.
Paper    Landau et al., the monitor's queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from trimtab.measure.windows import (
    MICROS,
    PartitionSample,
    Speed,
    as_micros,
    lag_records,
    lag_seconds,
    speed,
)
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import PartitionLoad, Source

GRACE_S = 2.0
"""Samples of one time are in several partitions of the telemetry topic and arrive separately."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RingRates:
    """All partitions of one topic, as of `ts`, the newest sample used."""

    topic: str
    ts: int
    window_start: int
    partitions: tuple[PartitionLoad, ...]
    stale: frozenset[int]


@dataclass(slots=True)
class _Series:
    samples: list[PartitionSample] = field(default_factory=list)
    last: Speed | None = None


class SampleRing:
    """Keeps two windows of samples: the sliding window, and the open tumbling window."""

    def __init__(self, *, window_s: float, min_span_s: float, closed_until: int = 0) -> None:
        self.window_s = window_s
        self.min_span_s = min_span_s
        self.closed_until = closed_until
        self.newest_ts = 0
        self.late = 0
        self._series: dict[TopicPartition, _Series] = {}

    @property
    def _width(self) -> int:
        return round(self.window_s * MICROS)

    def add(self, name: TopicPartition, sample: PartitionSample, *, past: bool = False) -> bool:
        """Adds a sample; False if it is already known or too late.

        A sample of the `past` may be in a closed window: it is used for the sliding window only.
        """
        if not self.closed_until:
            self.closed_until = self._window_start(sample.ts)
        if sample.ts < self.closed_until and not past:
            self.late += 1
            return False
        series = self._series.setdefault(name, _Series())
        at = bisect_left(series.samples, sample.ts, key=lambda s: s.ts)
        if at < len(series.samples) and series.samples[at].ts == sample.ts:
            return False
        series.samples.insert(at, sample)
        self.newest_ts = max(self.newest_ts, sample.ts)
        return True

    def rates(self) -> Iterator[RingRates]:
        """The rates of every topic over the newest window, if it has enough samples."""
        self._drop_old()
        start = self.newest_ts - self._width
        by_topic: dict[str, list[TopicPartition]] = {}
        for name in sorted(self._series):
            by_topic.setdefault(name.topic, []).append(name)
        for topic, names in by_topic.items():
            recent = {n: [s for s in self._series[n].samples if s.ts >= start] for n in names}
            times = [s.ts for samples in recent.values() for s in samples]
            if not times or max(times) - min(times) < as_micros(self.min_span_s):
                continue
            loads = tuple(self._load(n, recent[n]) for n in names)
            stale = frozenset(n.partition for n in names if self._stale(recent[n], max(times)))
            yield RingRates(
                topic=topic, ts=max(times), window_start=min(times), partitions=loads, stale=stale
            )

    def close(self) -> Iterator[tuple[int, Mapping[TopicPartition, tuple[PartitionSample, ...]]]]:
        """Closes every tumbling window that has ended; yields its start and samples."""
        while self.newest_ts >= self.closed_until + self._width + round(GRACE_S * MICROS):
            start, end = self.closed_until, self.closed_until + self._width
            inside = {
                name: tuple(s for s in series.samples if start <= s.ts < end)
                for name, series in self._series.items()
            }
            if any(inside.values()):
                # The window counts as closed only when the caller asks for the next one.
                yield start, {name: samples for name, samples in inside.items() if samples}
            kept = (s.ts for series in self._series.values() for s in series.samples)
            self.closed_until = self._window_start(min(ts for ts in kept if ts >= end))
            self._drop_old()

    def _window_start(self, ts: int) -> int:
        return ts // self._width * self._width

    def _load(self, name: TopicPartition, samples: list[PartitionSample]) -> PartitionLoad:
        series = self._series[name]
        now = speed(samples, min_span_s=self.min_span_s, max_gap_s=self.window_s / 3)
        if now.bytes_s is not None:
            series.last = now
        shown = series.last or now
        newest = samples[-1] if samples else series.samples[-1]
        return PartitionLoad(
            topic=name.topic,
            partition=name.partition,
            bytes_s=shown.bytes_s,
            records_s=now.records_s if now.records_s is not None else shown.records_s,
            source=Source.LOG_DIRS,
            end_offset=newest.end_offset,
            lag={g: lag_records(newest.end_offset, c) for g, c in newest.committed.items()},
            lag_s={g: lag_seconds(samples, c) for g, c in newest.committed.items()},
            complete=now.complete,
        )

    @staticmethod
    def _stale(samples: list[PartitionSample], newest_ts: int) -> bool:
        """Whether the topic's newest sample has no size for this partition."""
        return not samples or samples[-1].log_bytes is None or samples[-1].ts < newest_ts

    def _drop_old(self) -> None:
        """Drops samples that neither window needs, and partitions without new samples."""
        keep = min(self.newest_ts - self._width, self.closed_until)
        for name, series in list(self._series.items()):
            del series.samples[: bisect_left(series.samples, keep, key=lambda s: s.ts)]
            if not series.samples:
                del self._series[name]
