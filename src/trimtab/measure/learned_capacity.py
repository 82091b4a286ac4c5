"""Learns the capacity of consumers that do not report it, from their commits under backlog.

Why      A consumer that always has a backlog works at full speed; its commits show that speed.
Promise  Only consumers whose lag stayed above `BACKLOG_S` seconds of their own work, at both ends
         of the span and in every sample, get a result, and only over at least `LEAST_SPAN_S`.
         A consumer that commits nothing gets none: it hangs, which does not show its capacity.
Cost     O(n) for n partitions and samples.

Finished work looks like lag until it is committed, which may take from 5 s to a minute. So only the
lag right after a commit counts, and speeds are taken from commit to commit (`commit_speed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Measurement, Unit

BACKLOG_S = 10.0
LEAST_SPAN_S = 20.0

_MICROS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitProgress:
    """One partition over a span: records that arrived and that its group committed, per second.

    `lag` is the lag at the end of the span, `least_lag` the lowest in it (None: unknown),
    `record_bytes` the mean size of a record.
    """

    arrived_s: float
    committed_s: float
    lag: int
    record_bytes: float | None = None
    least_lag: int | None = None

    @property
    def at_least(self) -> int:
        """The lowest known lag."""
        return self.lag if self.least_lag is None else min(self.lag, self.least_lag)


class CommitSample(NamedTuple):
    """A group's partition at one time; `end_offset` is None if unknown."""

    ts: int
    end_offset: int | None
    committed: int


class CommitSpeed(NamedTuple):
    """Records committed per second, and the lowest lag of all samples."""

    committed_s: float
    least_lag: int | None


def commit_speed(samples: Sequence[CommitSample]) -> CommitSpeed | None:
    """How fast offsets are committed, from samples in order of time; None if that is unknown.

    Computed from the first sample after a commit to the last sample after a commit. Unknown if
    offsets go back, as after a reset, or if there is a single commit that leaves a backlog, since
    it is unknown how long its work took.

    >>> def at(second, committed):
    ...     return CommitSample(second * 1_000_000, 5000, committed)
    >>> commit_speed([at(0, 0), at(4, 500), at(30, 500), at(54, 1000), at(60, 1000)])
    CommitSpeed(committed_s=10.0, least_lag=4000)
    """
    if len(samples) < 2 or samples[-1].ts <= samples[0].ts:
        return None
    pairs = list(pairwise(samples))
    if any(after.committed < before.committed for before, after in pairs):
        return None
    lags = [
        max(sample.end_offset - sample.committed, 0)
        for sample in samples
        if sample.end_offset is not None
    ]
    least = min(lags, default=None)
    commits = [after for before, after in pairs if after.committed > before.committed]
    if len(commits) > 1:
        first, last = commits[0], commits[-1]
    else:
        first, last = samples[0], samples[-1]
        if commits and (least is None or least > 0):
            return None
    grown = last.committed - first.committed
    return CommitSpeed(grown * _MICROS / (last.ts - first.ts), least)


class LearnedCapacity(NamedTuple):
    """Learned capacity by consumer, per second; consumers without a backlog are missing."""

    records_s: Mapping[int, float]
    bytes_s: Mapping[int, float]

    def of(self, unit: Unit) -> Mapping[int, float]:
        """The capacities in one unit."""
        return self.bytes_s if unit is Unit.BYTES_S else self.records_s


def learned(
    progress: Mapping[TopicPartition, CommitProgress], readers: Assignment, *, span_s: float
) -> LearnedCapacity:
    """The capacity of each consumer that always had a backlog; `readers` must not have changed.

    >>> hot = TopicPartition("orders", 0)
    >>> behind = {hot: CommitProgress(arrived_s=150.0, committed_s=100.0, lag=9000)}
    >>> learned(behind, Assignment({hot: 0}), span_s=60).records_s
    {0: 100.0}
    """
    records_s: dict[int, float] = {}
    bytes_s: dict[int, float] = {}
    for consumer in readers.consumers if span_s >= LEAST_SPAN_S else ():
        held = [progress.get(p) for p, c in readers.items() if c == consumer]
        known = [p for p in held if p is not None]
        done_s = sum(p.committed_s for p in known)
        lag, least = sum(p.lag for p in known), sum(p.at_least for p in known)
        lag_before = lag - (sum(p.arrived_s for p in known) - done_s) * span_s
        if len(known) < len(held) or done_s <= 0 or min(least, lag_before) < BACKLOG_S * done_s:
            continue
        records_s[consumer] = done_s
        sizes = [(p.committed_s, p.record_bytes) for p in known if p.committed_s > 0]
        if all(size is not None for _, size in sizes):
            bytes_s[consumer] = sum(rate * (size or 0.0) for rate, size in sizes)
    return LearnedCapacity(records_s, {c: size for c, size in bytes_s.items() if size > 0})


def learned_from(measured: Measurement, group: str, readers: Assignment) -> LearnedCapacity:
    """The capacity of a group's consumers, learned from a measurement."""
    progress = {}
    for p in measured.partitions:
        committed_s, lag = p.committed_s.get(group), p.lag.get(group)
        if committed_s is not None and lag is not None and p.records_s is not None:
            sized = p.bytes_s is not None and p.records_s > 0
            progress[p.name] = CommitProgress(
                arrived_s=p.records_s,
                committed_s=committed_s,
                lag=lag,
                record_bytes=(p.bytes_s or 0.0) / p.records_s if sized else None,
                least_lag=p.least_lag.get(group),
            )
    return learned(progress, readers, span_s=(measured.to_ts - measured.from_ts) / _MICROS)
