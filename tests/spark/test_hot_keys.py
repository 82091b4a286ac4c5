"""Heavy keys in Spark: every way finds the same, within its bounds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.frames import events_frame
from trimtab.errors import MeasurementError
from trimtab.measure.counters import Count, Coverage, Share, Threshold
from trimtab.measure.spark.hot_keys import CountingMode, heavy_keys
from trimtab.measure.spark.jobs import measure
from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.murmur2 import home

Truth = dict[int, Counter[bytes]]


@pytest.fixture(scope="module")
def stream(spark: SparkSession) -> tuple[DataFrame, Truth]:
    """Two windows of skewed keys, some records without one, and what is in them."""
    rng = Random(5)
    rows: list[tuple[float, int, bytes | None]] = []
    truth: Truth = {0: Counter(), 1: Counter()}
    for i in range(6000):
        second = 20 * i / 6000
        key = None if rng.random() < 0.1 else str(int(rng.paretovariate(0.7))).encode()
        rows.append((second, i % 4, key))
        if key is not None:
            truth[int(second // 10)][key] += 1
    return events_frame(spark, rows).repartition(3).cache(), truth


def _found(
    stream: DataFrame, mode: CountingMode, threshold: Threshold, epsilon: float = 0.001
) -> dict[tuple[int, bytes], tuple[int, int]]:
    frame = heavy_keys(
        stream, window_s=10, threshold=threshold, mode=mode, epsilon=epsilon, partitions={"t": 4}
    )
    rows = frame.collect()
    assert all(r.partition_home == home(bytes(r.key), 4) for r in rows)
    return {(int(r.window_start.timestamp()) // 10, bytes(r.key)): (r.lower, r.upper) for r in rows}


@pytest.mark.parametrize("mode", [CountingMode.TWO_PASS, CountingMode.GROUP_BY])
@pytest.mark.parametrize("threshold", [Count(30), Share(0.02)])
def test_exact_ways_find_every_heavy_key_and_no_other(
    stream: tuple[DataFrame, Truth], mode: CountingMode, threshold: Count | Share
) -> None:
    frame, truth = stream
    wanted = {
        (window, key): (count, count)
        for window, counts in truth.items()
        for key, count in counts.items()
        if count
        >= (
            threshold.records
            if isinstance(threshold, Count)
            else threshold.of_records * counts.total()
        )
    }
    assert _found(frame, mode, threshold) == wanted


@pytest.mark.parametrize("mode", [CountingMode.LOSSY, CountingMode.ITEMS])
def test_sketches_miss_no_heavy_key_and_keep_their_bounds(
    stream: tuple[DataFrame, Truth], mode: CountingMode
) -> None:
    frame, truth = stream
    found = _found(frame, mode, Count(30), epsilon=0.005)
    for (window, key), (lower, upper) in found.items():
        assert lower <= truth[window][key] <= upper
        assert upper >= 30
    heavy = {(w, k) for w, counts in truth.items() for k, n in counts.items() if n >= 30}
    assert heavy <= found.keys()


@pytest.mark.parametrize("mode", list(CountingMode))
def test_coverage_is_the_smallest_set_of_top_keys(
    stream: tuple[DataFrame, Truth], mode: CountingMode
) -> None:
    frame, truth = stream
    found = _found(frame, mode, Coverage(0.3), epsilon=0.0001)
    for window, counts in truth.items():
        covered, wanted = 0, set()
        for key, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
            if covered >= 0.3 * counts.total():
                break
            covered += count
            wanted.add((window, key))
        assert {place for place in found if place[0] == window} == wanted


def test_an_epsilon_too_coarse_for_the_threshold_is_refused_with_the_reason(
    stream: tuple[DataFrame, Truth],
) -> None:
    given = MeasureInput(
        from_ts=0,
        to_ts=20 * MICROS,
        partitions={TopicPartition("t", p): None for p in range(4)},
        events=stream[0],
    )
    how = MeasureMethod(threshold=Count(3), mode=CountingMode.LOSSY, epsilon=0.05)
    with pytest.raises(MeasurementError, match=r"threshold|too coarse"):
        measure(given, how)
