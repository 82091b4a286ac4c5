"""Which offsets a span covers, by a broker that looks for the first record stamped so late."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import pytest
from confluent_kafka import OFFSET_END
from confluent_kafka import TopicPartition as Place

from trimtab.kafka import spans
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition

HOUR_MS = 3_600_000


@dataclass
class FakeLog:
    """A partition: the stamps of its records, of which the first `deleted` are gone."""

    stamps: list[int] = field(default_factory=list)
    deleted: int = 0


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, FakeLog]:
    """Logs that the looked-up offsets come from."""
    known: dict[TopicPartition, FakeLog] = {}

    class FakeConsumer:
        def __init__(self, config: dict[str, Any]) -> None: ...

        def get_watermark_offsets(self, place: Place, timeout: float) -> tuple[int, int]:
            log = known[TopicPartition(place.topic, place.partition)]
            return log.deleted, len(log.stamps)

        def offsets_for_times(self, asked: list[Place], timeout: float) -> list[Place]:
            return [Place(p.topic, p.partition, self._first(p)) for p in asked]

        @staticmethod
        def _first(asked: Place) -> int:
            log = known[TopicPartition(asked.topic, asked.partition)]
            late = (n for n, ts in enumerate(log.stamps) if ts >= asked.offset and n >= log.deleted)
            return next(late, OFFSET_END)

        def close(self) -> None: ...

    monkeypatch.setattr("confluent_kafka.Consumer", FakeConsumer)
    return known


def between(
    logs: dict[TopicPartition, FakeLog], from_ms: int, to_ms: int
) -> dict[str, tuple[int, int]]:
    found = spans.offsets_between(Cluster("h:1"), logs, from_ts=from_ms * 1000, to_ts=to_ms * 1000)
    return {str(p): (found.starts[p], found.ends[p]) for p in sorted(logs)}


def test_a_record_stamped_in_the_future_does_not_end_a_span_of_the_past(
    logs: dict[TopicPartition, FakeLog],
) -> None:
    now = time.time_ns() // 1_000_000
    start = now - 3 * HOUR_MS
    steady = [start + n * 60_000 for n in range(180)]  # one a minute, up to now
    logs[TopicPartition("t", 0)] = FakeLog(steady)
    logs[TopicPartition("t", 1)] = FakeLog([*steady[:10], now + HOUR_MS // 2, *steady[10:]])

    found = between(logs, start, start + 30 * 60_000)

    assert found == {"t-0": (0, 40), "t-1": (0, 181)}  # ten minutes more than asked for; everything


def test_logs_that_begin_in_the_span_are_told_apart_by_whether_anything_was_deleted(
    logs: dict[TopicPartition, FakeLog],
) -> None:
    now = time.time_ns() // 1_000_000
    logs[TopicPartition("old", 0)] = FakeLog([now - HOUR_MS, now - 5000])
    logs[TopicPartition("cut", 0)] = FakeLog([now - HOUR_MS, now - 5000], deleted=1)
    logs[TopicPartition("new", 0)] = FakeLog([now - 5000])
    logs[TopicPartition("empty", 0)] = FakeLog()

    found = spans.offsets_between(
        Cluster("h:1"), logs, from_ts=(now - 60_000) * 1000, to_ts=now * 1000
    )

    assert {p.topic for p in found.cut} == {"cut"}
    assert {p.topic for p in found.born} == {"new"}
