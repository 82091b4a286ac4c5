"""A ring in columns forgets what is gone; its rates are in `tests/laws/test_column_ring.py`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np

from trimtab.measure.column_ring import ColumnRing
from trimtab.measure.topic_samples import UNKNOWN, TopicSample, read_sample

SECOND = 1_000_000


def sample(second: int, partitions: int, *, groups: tuple[str, ...] = ("g",)) -> TopicSample:
    value = {
        "v": 2,
        "sample_id": "s",
        "ts": second * SECOND,
        "topic": "t",
        "partition": list(range(partitions)),
        "leader": [1] * partitions,
        "log_bytes": [second * 100] * partitions,
        "end_offset": [second] * partitions,
        "committed": {group: [0] * partitions for group in groups},
    }
    return read_sample(json.dumps(value).encode(), arrived_ts=second * SECOND)


def test_a_partition_that_comes_back_after_a_long_time_does_not_have_its_old_rate() -> None:
    """A topic was deleted and made again with fewer partitions; later it has more."""
    ring = ColumnRing(window_s=10, min_span_s=3)
    for second in range(100, 110):
        ring.add(sample(second, 3))
        list(ring.rates(["t"]))
    for second in range(110, 140):
        ring.add(sample(second, 1, groups=()))
        list(ring.rates(["t"]))
    ring.add(sample(140, 3, groups=()))
    (rates,) = ring.rates(["t"])
    assert rates.partition.tolist() == [0, 1, 2]
    assert rates.bytes_s[0] == 100.0
    assert np.isnan(rates.bytes_s[1:]).all()
    assert np.isnan(rates.records_s[1:]).all()
    assert dict(rates.lag) == {}


def test_nothing_of_a_topic_is_left_after_a_long_time_without_any_sample() -> None:
    """The monitor was stopped for a while; sizes are unknown since."""
    ring = ColumnRing(window_s=10, min_span_s=3)
    for second in range(100, 110):
        ring.add(sample(second, 3))
        list(ring.rates(["t"]))
    for second in range(3700, 3705):
        ring.add(replace(sample(second, 3), log_bytes=np.full(3, UNKNOWN)))
    (rates,) = ring.rates(["t"])
    assert np.isnan(rates.bytes_s).all()
    assert rates.records_s.tolist() == [1.0, 1.0, 1.0]
