"""Rates in Spark: counted from events, folded from samples."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

from pyspark.sql import SparkSession

from tests.spark.frames import events_frame, samples_frame
from trimtab.measure.spark.rates import rates_from_events, rates_from_samples
from trimtab.measure.windows import MICROS, PartitionSample, speed
from trimtab.model.cluster import TopicPartition


def test_rates_from_events_equal_a_plain_count(spark: SparkSession) -> None:
    rng = Random(7)
    rows = [(rng.uniform(0, 20), rng.randrange(3), b"k" * rng.randrange(5)) for _ in range(500)]
    found = rates_from_events(
        events_frame(spark, rows), window_s=5, from_ts=0, to_ts=20 * MICROS
    ).collect()
    records = Counter((int(second // 5), p) for second, p, _ in rows)
    sizes: Counter[tuple[int, int]] = Counter()
    for second, p, key in rows:
        sizes[int(second // 5), p] += len(key) + 10
    assert {
        (int(r.window_start.timestamp()) // 5, r.partition): (r.records_s * 5, r.bytes_s * 5)
        for r in found
    } == {place: (records[place], sizes[place]) for place in records}
    assert {(r.source, r.complete) for r in found} == {("events", True)}


def test_a_window_that_sticks_out_of_the_span_is_incomplete_and_divided_by_its_part_inside(
    spark: SparkSession,
) -> None:
    #   span        4 ──────────── 10
    #   windows  0 ────── 5 ────── 10
    frame = events_frame(spark, [(4.5, 0, None), (6, 0, None), (7, 0, None)])
    found = rates_from_events(frame, window_s=5, from_ts=4 * MICROS, to_ts=10 * MICROS)
    rows = sorted((r.window_start.timestamp(), r.records_s, r.complete) for r in found.collect())
    assert rows == [(0.0, 1.0, False), (5.0, 0.4, True)]


def test_rates_from_samples_follow_the_same_rule_as_the_plain_function(
    spark: SparkSession,
) -> None:
    """Drops, new leaders, missing sizes, recreated topics and gaps, at random."""
    rng = Random(11)
    series = {TopicPartition("t", p): _series(rng) for p in range(40)}
    found = rates_from_samples(
        samples_frame(spark, series), window_s=30, min_span_s=3, max_gap_s=10
    ).collect()
    got = {
        (TopicPartition(r.topic, r.partition), int(r.window_start.timestamp()) // 30): (
            r.bytes_s,
            r.records_s,
            r.samples,
            r.complete,
        )
        for r in found
    }
    wanted = {}
    for name, samples in series.items():
        for window in range(3):
            inside = [s for s in samples if s.ts // (30 * MICROS) == window]
            if inside:
                s = speed(inside, min_span_s=3, max_gap_s=10)
                wanted[name, window] = (s.bytes_s, s.records_s, s.samples, s.complete)
    assert got == wanted
    assert {complete for *_, complete in wanted.values()} == {True, False}


def _series(rng: Random) -> list[PartitionSample]:
    samples, size, end, leader = [], 0, 0, 1
    for second in range(0, 90, rng.choice([1, 1, 1, 5, 12])):
        size = rng.randrange(50) if rng.random() < 0.03 else size + rng.randrange(100)
        end = 0 if rng.random() < 0.01 else end + rng.randrange(10)
        leader = rng.choice([1, 2]) if rng.random() < 0.03 else leader
        unknown = rng.random() < 0.05
        samples.append(
            PartitionSample(
                ts=second * MICROS + rng.randrange(1000),
                leader=-1 if unknown else leader,
                log_bytes=None if unknown else size,
                end_offset=None if unknown and rng.random() < 0.5 else end,
            )
        )
    return samples


def test_samples_and_events_of_the_same_stream_agree_within_one_sample_period(
    spark: SparkSession,
) -> None:
    rng = Random(3)
    times = sorted(rng.uniform(0, 30) for _ in range(3000))
    events = rates_from_events(
        events_frame(spark, [(t, 0, None) for t in times]),
        window_s=30,
        from_ts=0,
        to_ts=30 * MICROS,
    ).collect()[0]
    watched = [
        PartitionSample(
            ts=second * MICROS,
            leader=1,
            log_bytes=10 * (count := sum(t < second for t in times)),
            end_offset=count,
        )
        for second in range(30)
    ]
    frame = samples_frame(spark, {TopicPartition("t", 0): watched})
    samples = rates_from_samples(frame, window_s=30, min_span_s=3, max_gap_s=10).collect()[0]
    most_in_a_period = max(
        b.end_offset - a.end_offset  # type: ignore[operator]
        for a, b in pairwise(watched)
    )
    assert abs(samples.records_s - events.records_s) * 30 <= 2 * most_in_a_period
