"""Learns what the consumers of a group can handle from the rates that are published of it."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from trimtab.apply.policy import Measured
from trimtab.measure.learned_capacity import Learned, Progress, learned
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

_MICROS = 1_000_000


class _Seen(NamedTuple):
    """A partition at one moment: its time, its end and what the group had committed."""

    ts: int
    end: int
    committed: int


class Learning:
    """What was committed while consumers were behind, over the last `keep_s` seconds.

    What was learned holds until something newer is, also when the readers change: consumers of a
    group are alike.
    """

    def __init__(self, group: str, *, keep_s: float = 60.0) -> None:
        self._group, self._keep_s = group, keep_s
        self._history: deque[dict[TopicPartition, _Seen]] = deque()
        self._readers = Assignment()
        self._known = Learned({}, {})

    def look(self, measured: Measured, readers: Assignment) -> Learned:
        """Takes in the newest rates, and says what is known by now."""
        if readers != self._readers:
            self._readers = readers
            self._history.clear()
        now = {p: seen for p in readers if (seen := self._seen(measured, p)) is not None}
        if not now or (self._history and now == self._history[-1]):
            return self._known
        self._history.append(now)
        while _age_s(self._history[0], now) > self._keep_s and len(self._history) > 2:
            self._history.popleft()
        found = learned(
            self._progress(measured, now), readers, span_s=_age_s(self._history[0], now)
        )
        if found.records_s:
            self._known = found
        return self._known

    def _seen(self, measured: Measured, partition: TopicPartition) -> _Seen | None:
        rate, topic = measured.of(partition), measured.newest.get(partition.topic)
        lag = None if rate is None else rate.lag.get(self._group)
        if rate is None or topic is None or rate.stale or rate.end_offset is None or lag is None:
            return None
        return _Seen(topic.ts, rate.end_offset, rate.end_offset - lag)

    def _progress(
        self, measured: Measured, now: dict[TopicPartition, _Seen]
    ) -> dict[TopicPartition, Progress]:
        found = {}
        for partition, seen in now.items():
            first, rate = self._history[0].get(partition), measured.of(partition)
            if first is None or rate is None or seen.ts <= first.ts:
                continue
            span_s = (seen.ts - first.ts) / _MICROS
            if seen.committed < first.committed or seen.end < first.end:  # reset, or made anew
                continue
            size = rate.bytes_s / rate.records_s if rate.bytes_s and rate.records_s else None
            found[partition] = Progress(
                arrived_s=(seen.end - first.end) / span_s,
                committed_s=(seen.committed - first.committed) / span_s,
                lag=seen.end - seen.committed,
                record_bytes=size,
            )
        return found


def _age_s(then: dict[TopicPartition, _Seen], now: dict[TopicPartition, _Seen]) -> float:
    """How much time the two have between them at least."""
    spans = [now[p].ts - then[p].ts for p in now.keys() & then.keys()]
    return min(spans, default=0) / _MICROS
