"""When a sample counts as published."""

from __future__ import annotations

import json
from typing import Any

from trimtab_lab.benchmarks.kafka.latency import Arrivals


def _record(ts: int, *stale: bool, topic: str = "t") -> bytes:
    partitions: dict[str, Any] = {str(p): {"stale": s} for p, s in enumerate(stale)}
    return json.dumps({"topic": topic, "ts": ts, "partitions": partitions}).encode()


def test_a_sample_counts_from_the_first_record_that_has_it_for_every_partition() -> None:
    arrivals = Arrivals("t", 2)

    for now_ts, value in (
        (1_100_000, _record(1_000_000, False)),
        (1_200_000, _record(1_000_000, False, True)),
        (1_250_000, _record(1_000_000, False, False, topic="other")),
        (1_300_000, _record(1_000_000, False, False)),
        (1_900_000, _record(1_000_000, False, False)),
    ):
        arrivals.take(value, now_ts=now_ts)

    assert arrivals.seconds == {1_000_000: 0.3}


def test_a_sample_whose_rates_are_split_counts_from_the_last_part() -> None:
    arrivals = Arrivals("t", 2)
    first, second = (
        json.dumps(
            {
                "topic": "t",
                "ts": 1_000_000,
                "part": part,
                "of": 2,
                "partitions": {str(part): {"stale": False}},
            }
        ).encode()
        for part in range(2)
    )

    arrivals.take(first, now_ts=1_100_000)
    assert arrivals.seconds == {}
    arrivals.take(second, now_ts=1_400_000)

    assert arrivals.seconds == {1_000_000: 0.4}
