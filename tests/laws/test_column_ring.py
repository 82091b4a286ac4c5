"""Rates in columns are those of the plain ring, whatever samples come."""

from __future__ import annotations

import json
from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.measure.column_ring import ColumnRing
from trimtab.measure.rate_text import rates_texts
from trimtab.measure.ring import RingRates, SampleRing
from trimtab.measure.topic_samples import read_sample
from trimtab.measure.windows import PartitionSample
from trimtab.model.cluster import TopicPartition

WINDOW_S, MIN_SPAN_S = 9.0, 3.0
SECOND = 1_000_000
START = 1_000 * SECOND

Row = tuple[int, int | None, int | None, dict[str, int | None]]


def history_of(seed: int) -> list[tuple[int, dict[tuple[str, int], Row]]]:
    """Samples in order of time: a topic has any of its partitions, values rise, fall or lack."""
    rng = Random(seed)
    places = [(topic, number) for topic in ("a", "b") for number in range(3)]
    high = rng.choice((5, 50))

    def value() -> int | None:
        return None if rng.random() < 0.15 else rng.randrange(high)

    def row() -> Row:
        groups = rng.sample(("g", "h"), rng.randrange(3))
        leader = rng.choice((1, 1, 1, 2, -1))
        return leader, value(), value(), {group: rng.randrange(high) for group in groups}

    times = sorted(rng.sample(range(25), rng.randrange(1, 12)))
    present = rng.choice((0.5, 0.9, 1.0))
    return [
        (START + t * SECOND, {p: row() for p in places if rng.random() < present}) for t in times
    ]


def records(ts: int, rows: Mapping[tuple[str, int], Row]) -> dict[str, bytes]:
    """The sample of each topic as a telemetry record."""
    found = {}
    for topic in sorted({topic for topic, _ in rows}):
        mine = {number: rows[topic, number] for t, number in sorted(rows) if t == topic}
        groups = sorted({group for *_, committed in mine.values() for group in committed})
        found[topic] = json.dumps(
            {
                "v": 2,
                "sample_id": "s",
                "ts": ts,
                "topic": topic,
                "partition": list(mine),
                "leader": [leader for leader, *_ in mine.values()],
                "log_bytes": [size for _, size, _, _ in mine.values()],
                "end_offset": [end for _, _, end, _ in mine.values()],
                "committed": {g: [c.get(g) for *_, c in mine.values()] for g in groups},
            }
        ).encode()
    return found


def expected(rates: RingRates) -> dict[str, Any]:
    """What a record of the topic has to say about partitions with a recent sample."""
    return {
        str(p.partition): {
            "bytes_s": p.bytes_s,
            "records_s": p.records_s,
            "end_offset": p.end_offset,
            "lag": dict(p.lag),
            "lag_s": dict(p.lag_s),
            "source": "log_dirs",
            "complete": p.complete,
            "stale": p.partition in rates.stale,
        }
        for p in rates.partitions
    }


@given(seed=st.integers(0, 10**9), most_bytes=st.sampled_from((1, 300, 900_000)))
@settings(max_examples=200)
def test_columns_and_plain_samples_give_the_same_rates(seed: int, most_bytes: int) -> None:
    plain = SampleRing(window_s=WINDOW_S, min_span_s=MIN_SPAN_S)
    ring = ColumnRing(window_s=WINDOW_S, min_span_s=MIN_SPAN_S)
    for ts, rows in history_of(seed):
        for (topic, number), (leader, size, end, committed) in rows.items():
            name = TopicPartition(topic, number)
            known = plain._series.get(name)
            if known is not None and known.samples[-1].ts < ts - 2 * WINDOW_S * SECOND:
                # Its windows are never closed here, and until then it keeps what is older.
                del plain._series[name]
            plain.add(
                name,
                PartitionSample(
                    ts=ts, leader=leader, log_bytes=size, end_offset=end, committed=committed
                ),
                past=True,
            )
        for text in records(ts, rows).values():
            sample = read_sample(text, arrived_ts=ts)
            ring.add(sample)
            ring.add(sample)
        new = {topic for topic, _ in rows}
        wanted = {r.topic: r for r in plain.rates() if r.topic in new}
        # Both are asked for all topics: the last rate of a silent one is that of the last question.
        found = {r.topic: r for r in ring.rates(["a", "b"]) if r.topic in new}
        assert found.keys() == wanted.keys()
        for topic, columns in found.items():
            texts = [json.loads(text) for text in rates_texts(columns, most_bytes=most_bytes)]
            partitions = {k: v for text in texts for k, v in text["partitions"].items()}
            recent = expected(wanted[topic])
            # Both forget silent partitions, at different times in the second window.
            kept = {k for k in recent if k in partitions}
            assert all(recent[k]["stale"] for k in recent.keys() - kept)
            assert all(partitions[k]["stale"] for k in partitions.keys() - kept)
            assert {k: partitions[k] for k in kept} == {k: recent[k] for k in kept}
            assert {t["ts"] for t in texts} == {wanted[topic].ts}
            assert {t["window_start"] for t in texts} == {wanted[topic].window_start}
