"""Keeps the recent samples of many partitions as columns, and computes the rates of whole topics.

Why      `SampleRing` needs 0.1 ms of Python per partition and look; columns need about a
         microsecond, so that one core can follow tens of thousands of partitions.
Promise  The same rates as `SampleRing` for the same samples. Adding a sample again changes nothing.
         A partition without new samples keeps its last rate, marked as stale, for one window after
         its last sample has left the window, and is then dropped.
Cost     Vector operations over the samples of one window, for the topics asked for only.
Paper    Landau et al., the monitor's queue.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from trimtab.measure.topic_samples import NO_OFFSET, UNKNOWN, Integers, TopicSample
from trimtab.measure.windows import MICROS, as_micros

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

_NOT_SAMPLED = -9
"""In the column of leaders: the partition is not in this sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RateColumns:
    """The rates of one topic as of `ts`, in order of the partitions; NaN and -1 mean unknown.

    `lag` has `NO_OFFSET` where a group has none; `lag_s` is NaN there.
    """

    topic: str
    ts: int
    window_start: int
    partition: Integers
    bytes_s: Floats
    records_s: Floats
    end_offset: Integers
    lag: Mapping[str, Integers]
    lag_s: Mapping[str, Floats]
    complete: Flags
    stale: Flags


@dataclass(slots=True)
class SampleRow:
    """All samples of one time; a column of the ring is one partition."""

    ts: int
    leader: Integers
    log_bytes: Integers
    end_offset: Integers

    @classmethod
    def empty(cls, ts: int, width: int) -> SampleRow:
        """A row without samples."""
        return cls(ts, _full(width, _NOT_SAMPLED), _full(width, UNKNOWN), _full(width, UNKNOWN))

    def widen(self, width: int) -> None:
        """Adds columns without samples."""
        more = width - len(self.leader)
        self.leader = np.concatenate([self.leader, _full(more, _NOT_SAMPLED)])
        self.log_bytes = np.concatenate([self.log_bytes, _full(more, UNKNOWN)])
        self.end_offset = np.concatenate([self.end_offset, _full(more, UNKNOWN)])


@dataclass(slots=True)
class TopicColumns:
    """One topic: the ring's column of each partition number, and what is kept per partition."""

    columns: Integers = field(default_factory=lambda: _full(0, 0))
    newest_ts: Integers = field(default_factory=lambda: _full(0, 0))
    end_offset: Integers = field(default_factory=lambda: _full(0, UNKNOWN))
    last_bytes_s: Floats = field(default_factory=lambda: np.empty(0))
    last_records_s: Floats = field(default_factory=lambda: np.empty(0))
    committed: dict[str, Integers] = field(default_factory=dict)

    def grow(self, size: int, first_column: int) -> None:
        """Adds partitions, with columns from `first_column` on."""
        more = size - len(self.columns)
        added = np.arange(first_column, first_column + more, dtype=np.int64)
        self.columns = np.concatenate([self.columns, added])
        self.newest_ts = np.concatenate([self.newest_ts, _full(more, 0)])
        self.end_offset = np.concatenate([self.end_offset, _full(more, UNKNOWN)])
        self.last_bytes_s = np.concatenate([self.last_bytes_s, np.full(more, np.nan)])
        self.last_records_s = np.concatenate([self.last_records_s, np.full(more, np.nan)])
        for group, offsets in self.committed.items():
            self.committed[group] = np.concatenate([offsets, _full(more, NO_OFFSET)])

    def forget(self, before: int) -> None:
        """Forgets the values of partitions without a sample since then: they are not shown."""
        gone = (self.newest_ts > 0) & (self.newest_ts < before)
        if gone.any():
            self.newest_ts[gone] = 0
            self.last_bytes_s[gone] = np.nan
            self.last_records_s[gone] = np.nan
            for offsets in self.committed.values():
                offsets[gone] = NO_OFFSET

    def take(self, sample: TopicSample) -> None:
        """Stores what is kept of the newest sample of each partition."""
        newer = sample.ts > self.newest_ts[sample.partition]
        which = sample.partition[newer]
        self.newest_ts[which] = sample.ts
        self.end_offset[which] = sample.end_offset[newer]
        for group in self.committed.keys() | sample.committed.keys():
            values = sample.committed.get(group)
            mine = self.committed.setdefault(group, _full(len(self.columns), NO_OFFSET))
            mine[which] = NO_OFFSET if values is None else values[newer]
        gone = [group for group, mine in self.committed.items() if (mine == NO_OFFSET).all()]
        for group in gone:
            del self.committed[group]


class ColumnRing:
    """Keeps the samples of one window; rows are times, columns are partitions of all topics."""

    def __init__(self, *, window_s: float, min_span_s: float) -> None:
        self.window_s = window_s
        self.min_span_s = min_span_s
        self.newest_ts = 0
        self.rows: list[SampleRow] = []
        self.topics: dict[str, TopicColumns] = {}
        self.width = 0

    @property
    def _window_us(self) -> int:
        return round(self.window_s * MICROS)

    def add(self, sample: TopicSample) -> None:
        """Adds a sample; partitions that have one of the same time already are left out."""
        if sample.ts < self.newest_ts - self._window_us or not len(sample.partition):
            return
        if sample.ts > self.newest_ts:
            self.newest_ts = sample.ts
            self._drop_old()
        topic = self._topic(sample)
        row = self._row(sample.ts)
        columns = topic.columns[sample.partition]
        new = row.leader[columns] == _NOT_SAMPLED
        topic.take(sample)
        row.leader[columns[new]] = sample.leader[new]
        row.log_bytes[columns[new]] = sample.log_bytes[new]
        row.end_offset[columns[new]] = sample.end_offset[new]

    def rates(self, topics: Collection[str]) -> Iterator[RateColumns]:
        """The rates of these topics over the newest window, if they have enough samples."""
        found = [(name, self.topics[name]) for name in topics if name in self.topics]
        if not found:
            return
        columns = np.concatenate([topic.columns for _, topic in found])
        computed = _Rates(self, columns)
        start = 0
        for name, topic in found:
            part = slice(start, start + len(topic.columns))
            start = part.stop
            rates = computed.of(name, topic, part)
            if rates is not None:
                yield rates

    def _topic(self, sample: TopicSample) -> TopicColumns:
        topic = self.topics.setdefault(sample.topic, TopicColumns())
        size = int(sample.partition.max()) + 1
        if size > len(topic.columns):
            more = size - len(topic.columns)
            topic.grow(size, self.width)
            self.width += more
            for row in self.rows:
                row.widen(self.width)
        return topic

    def _row(self, ts: int) -> SampleRow:
        at = bisect_left(self.rows, ts, key=lambda row: row.ts)
        if at == len(self.rows) or self.rows[at].ts != ts:
            self.rows.insert(at, SampleRow.empty(ts, self.width))
        return self.rows[at]

    def _drop_old(self) -> None:
        """Drops rows older than the window, and topics without a sample in two windows."""
        start = self.newest_ts - self._window_us
        del self.rows[: bisect_left(self.rows, start, key=lambda row: row.ts)]
        for topic in self.topics.values():
            topic.forget(start - self._window_us)
        gone = [name for name, topic in self.topics.items() if not topic.newest_ts.any()]
        for name in gone:
            del self.topics[name]
        if gone:
            self._renumber()

    def _renumber(self) -> None:
        """Removes the columns of topics that are gone."""
        kept = [topic.columns for topic in self.topics.values()]
        order = np.concatenate(kept) if kept else _full(0, 0)
        for row in self.rows:
            row.leader = row.leader[order]
            row.log_bytes = row.log_bytes[order]
            row.end_offset = row.end_offset[order]
        first = 0
        for topic in self.topics.values():
            size = len(topic.columns)
            topic.columns = np.arange(first, first + size, dtype=np.int64)
            first += size
        self.width = first


class _Rates:
    """The rates of some columns of a ring, computed together."""

    def __init__(self, ring: ColumnRing, columns: Integers) -> None:
        self._ring = ring
        self._columns = columns
        width = len(columns)
        sizes, ends = _Runs(width), _Runs(width)
        self._first_ts, self._last_ts = _full(width, 0), _full(width, 0)
        self._last_has_size = np.zeros(width, dtype=bool)
        for row in ring.rows:
            leader = row.leader[columns]
            log_bytes = row.log_bytes[columns]
            sampled = leader != _NOT_SAMPLED
            sizes.add(row.ts, log_bytes, leader)
            ends.add(row.ts, row.end_offset[columns])
            self._first_ts[sampled & (self._last_ts == 0)] = row.ts
            self._last_ts[sampled] = row.ts
            np.copyto(self._last_has_size, log_bytes != UNKNOWN, where=sampled)
        self._bytes_s, self._records_s = sizes.slopes(), ends.slopes()
        self._complete = sizes.complete(
            min_span_us=as_micros(ring.min_span_s), max_gap_us=as_micros(ring.window_s / 3)
        )

    def of(self, name: str, topic: TopicColumns, part: slice) -> RateColumns | None:
        """The rates of the topic whose partitions are this part of the columns."""
        ring = self._ring
        first_ts, last_ts = self._first_ts[part], self._last_ts[part]
        if not last_ts.any():
            return None
        ts, window_start = int(last_ts.max()), int(first_ts[first_ts > 0].min())
        if ts - window_start < as_micros(ring.min_span_s):
            return None
        bytes_s, records_s = self._bytes_s[part], self._records_s[part]
        known = ~np.isnan(bytes_s)
        np.copyto(topic.last_bytes_s, bytes_s, where=known)
        np.copyto(topic.last_records_s, records_s, where=known)
        stale = (last_ts < ts) | ~self._last_has_size[part]
        kept = ring.newest_ts - 2 * round(ring.window_s * MICROS)
        shown = np.flatnonzero(topic.newest_ts >= max(kept, 1))
        lag, lag_s = self._lags(topic, part, shown)
        return RateColumns(
            topic=name,
            ts=ts,
            window_start=window_start,
            partition=shown,
            bytes_s=topic.last_bytes_s[shown],
            records_s=np.where(np.isnan(records_s), topic.last_records_s, records_s)[shown],
            end_offset=topic.end_offset[shown],
            lag=lag,
            lag_s=lag_s,
            complete=self._complete[part][shown],
            stale=stale[shown],
        )

    def _lags(
        self, topic: TopicColumns, part: slice, shown: Integers
    ) -> tuple[dict[str, Integers], dict[str, Floats]]:
        """Lag of each group in records and in seconds."""
        columns = self._columns[part][shown]
        ends = topic.end_offset[shown]
        lag: dict[str, Integers] = {}
        lag_s: dict[str, Floats] = {}
        for group, offsets in topic.committed.items():
            committed = offsets[shown]
            lag[group] = np.where(
                (committed < 0) | (ends < 0),
                np.where(committed == NO_OFFSET, NO_OFFSET, UNKNOWN),
                np.maximum(ends - committed, 0),
            )
            lag_s[group] = _lag_seconds(self._ring.rows, columns, committed)
        return lag, lag_s


class _Runs:
    """The last unbroken run of each series: since its last drop or change of leader."""

    def __init__(self, width: int) -> None:
        self._first_ts, self._first = _full(width, 0), _full(width, 0)
        self._last_ts, self._last = _full(width, 0), _full(width, UNKNOWN)
        self._leader = _full(width, 0)
        self._widest_us = _full(width, 0)
        self._seen = np.zeros(width, dtype=bool)

    def add(self, ts: int, values: Integers, leaders: Integers | None = None) -> None:
        """Adds the next value of each series; -1 means that it has none."""
        known = values >= 0
        broken = (values < self._last) | ~self._seen
        if leaders is not None:
            broken |= leaders != self._leader
            np.copyto(self._leader, leaders, where=known)
        np.maximum(
            self._widest_us, ts - self._last_ts, out=self._widest_us, where=known & self._seen
        )
        starts = known & broken
        self._first_ts[starts] = ts
        np.copyto(self._first, values, where=starts)
        self._last_ts[known] = ts
        np.copyto(self._last, values, where=known)
        self._seen |= known

    def slopes(self) -> Floats:
        """Growth per second; NaN for runs of one value."""
        seconds = (self._last_ts - self._first_ts) / MICROS
        seconds[seconds == 0] = np.nan
        slopes: Floats = (self._last - self._first) / seconds
        return slopes

    def complete(self, *, min_span_us: int, max_gap_us: int) -> Flags:
        """Whether the run is long enough and the series has no gap."""
        span = self._last_ts - self._first_ts
        complete: Flags = (span >= max(min_span_us, 1)) & (self._widest_us <= max_gap_us)
        return complete


def _lag_seconds(rows: list[SampleRow], columns: Integers, committed: Integers) -> Floats:
    """How long ago the end of each log was at the committed offset; NaN if that is unknown."""
    width = len(columns)
    seconds = np.full(width, np.nan)
    undecided = committed >= 0
    now, late_ts, late = _full(width, 0), _full(width, 0), _full(width, UNKNOWN)
    for row in reversed(rows):
        if not undecided.any():
            break
        end = row.end_offset[columns]
        known = undecided & (end >= 0)
        first, later = known & (late < 0), known & (late >= 0)
        now[first] = row.ts
        at_end = first & (committed >= end)
        seconds[at_end] = 0.0
        inside = np.flatnonzero(later & (end <= committed) & (committed < late))
        steps, grown = committed[inside] - end[inside], late[inside] - end[inside]
        when = row.ts + (late_ts[inside] - row.ts) * steps / grown
        seconds[inside] = (now[inside] - when) / MICROS
        undecided &= ~(at_end | (later & (late < end)))
        undecided[inside] = False
        late_ts[known] = row.ts
        np.copyto(late, end, where=known)
    return seconds


def _full(width: int, value: int) -> Integers:
    return np.full(width, value, dtype=np.int64)
