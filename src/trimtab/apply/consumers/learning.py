"""Learns the capacity of a group's consumers from published rates."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.measure.learned_capacity import CommitProgress, LearnedCapacity, learned
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

_MICROS = 1_000_000


class _Seen(NamedTuple):
    """A partition at one moment: time, end offset and the group's committed offset."""

    ts: int
    end: int
    committed: int


class CapacityLearner:
    """Learns from commits while consumers had a backlog, over the last `keep_s` seconds.

    What was learned is kept until there is something newer, also when the consumers change: the
    consumers of a group are alike.
    """

    def __init__(self, group: str, *, keep_s: float = 60.0) -> None:
        self._group, self._keep_s = group, keep_s
        self._history: deque[dict[TopicPartition, _Seen]] = deque()
        self._readers = Assignment()
        self._known = LearnedCapacity({}, {})

    def look(self, measured: NewestRates, readers: Assignment) -> LearnedCapacity:
        """Adds the newest rates, and returns what is known now."""
        if readers != self._readers:
            self._readers = readers
            self._history.clear()
        now = {p: seen for p in readers if (seen := self._seen(measured, p)) is not None}
        if not now or (self._history and now == self._history[-1]):
            return self._known
        self._history.append(now)
        while _age_s(self._history[0], now) > self._keep_s and len(self._history) > 2:
            self._history.popleft()
        found = self._found(measured)
        if found.records_s:
            self._known = found
        return self._known

    def _seen(self, measured: NewestRates, partition: TopicPartition) -> _Seen | None:
        rate, topic = measured.of(partition), measured.newest.get(partition.topic)
        lag = None if rate is None else rate.lag.get(self._group)
        if rate is None or topic is None or rate.stale or rate.end_offset is None or lag is None:
            return None
        return _Seen(topic.ts, rate.end_offset, rate.end_offset - lag)

    def _found(self, measured: NewestRates) -> LearnedCapacity:
        """What each consumer handled between its first and its last observed commit."""
        held: dict[int, list[TopicPartition]] = {}
        for partition, consumer in self._readers.items():
            held.setdefault(consumer, []).append(partition)
        found = LearnedCapacity({}, {})
        for consumer, partitions in held.items():
            looks = [then for then in self._history if all(p in then for p in partitions)]
            done = [sum(then[p].committed for p in partitions) for then in looks]
            commits = [n for n in range(1, len(done)) if done[n] > done[n - 1]]
            if len(commits) < 2 or _went_back(looks, partitions):
                continue
            between = looks[commits[0] : commits[-1] + 1]
            alone = learned(
                {p: _progress(measured, p, between) for p in partitions},
                Assignment(dict.fromkeys(partitions, consumer)),
                span_s=min(between[-1][p].ts - between[0][p].ts for p in partitions) / _MICROS,
            )
            found = LearnedCapacity(
                {**found.records_s, **alone.records_s}, {**found.bytes_s, **alone.bytes_s}
            )
        return found


_Looks = Sequence[Mapping[TopicPartition, _Seen]]


def _went_back(looks: _Looks, partitions: Collection[TopicPartition]) -> bool:
    """Whether offsets were reset, or a topic was created again."""
    return any(
        after[p].committed < before[p].committed or after[p].end < before[p].end
        for before, after in pairwise(looks)
        for p in partitions
    )


def _progress(measured: NewestRates, partition: TopicPartition, looks: _Looks) -> CommitProgress:
    """One partition from the first look to the last, whose times differ."""
    seen = [look[partition] for look in looks]
    first, last, rate = seen[0], seen[-1], measured.of(partition)
    span_s = max(last.ts - first.ts, 1) / _MICROS
    record_bytes = None
    if rate is not None and rate.bytes_s and rate.records_s:
        record_bytes = rate.bytes_s / rate.records_s
    return CommitProgress(
        arrived_s=(last.end - first.end) / span_s,
        committed_s=(last.committed - first.committed) / span_s,
        lag=last.end - last.committed,
        least_lag=min(look.end - look.committed for look in seen),
        record_bytes=record_bytes,
    )


def _age_s(then: dict[TopicPartition, _Seen], now: dict[TopicPartition, _Seen]) -> float:
    """The time between two observations."""
    return (max(seen.ts for seen in now.values()) - max(s.ts for s in then.values())) / _MICROS
