"""Rates in Spark: counted from events, folded from samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from tests.spark.frames import events_frame, samples_frame
from trimtab.measure.spark.rates import rates_from_events, rates_from_samples
from trimtab.measure.windows import MICROS, PartitionSample, speed
from trimtab.model.cluster import TopicPartition
from trimtab.spark.schemas import SAMPLES


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
    wanted = _plain_rates(series)
    assert _by_place(found) == wanted
    assert {complete for *_, complete in wanted.values()} == {True, False}


def test_it_does_not_matter_where_and_in_which_order_spark_reads_the_samples(
    spark: SparkSession,
) -> None:
    """Several topics; the samples of a window are in many Spark partitions, some at equal times."""
    rng = Random(13)
    series = {TopicPartition(f"t{p % 3}", p): _series(rng) for p in range(30)}
    for samples in series.values():
        samples += [replace(s, log_bytes=rng.randrange(500)) for s in samples[::7]]
    frame = samples_frame(spark, series).repartition(7).orderBy(F.rand(seed=1))
    found = rates_from_samples(frame, window_s=30, min_span_s=2.3, max_gap_s=5).collect()
    wanted = _plain_rates(series, min_span_s=2.3, max_gap_s=5)
    assert _by_place(found) == wanted


def test_a_span_that_is_a_microsecond_too_short_is_incomplete(spark: SparkSession) -> None:
    """1.001 s times a million is a little less than 1 001 000 as a floating-point number."""

    def grown(micros: int) -> list[PartitionSample]:
        return [PartitionSample(ts=ts, leader=1, log_bytes=ts, end_offset=0) for ts in (1, micros)]

    series = {TopicPartition("t", 0): grown(1_001_000), TopicPartition("t", 1): grown(1_001_001)}
    found = rates_from_samples(
        samples_frame(spark, series), window_s=30, min_span_s=1.001, max_gap_s=1.001
    ).collect()
    assert {r.partition: r.complete for r in found} == {0: False, 1: True}
    assert _by_place(found) == _plain_rates(series, min_span_s=1.001, max_gap_s=1.001)


def test_rates_of_a_stream_of_samples_are_those_of_the_batch(
    spark: SparkSession, tmp_path: Path
) -> None:
    rng = Random(17)
    series = {TopicPartition("t", p): _series(rng) for p in range(5)}
    samples_frame(spark, series).repartition(3).write.parquet(str(tmp_path / "samples"))
    stream = (
        spark.readStream.schema(SAMPLES)
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "samples"))
    )
    rated = rates_from_samples(stream, window_s=30, min_span_s=3, max_gap_s=10)
    query = (
        rated.writeStream.format("memory")
        .queryName("rates_of_a_stream")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert _by_place(spark.table("rates_of_a_stream").collect()) == _plain_rates(series)


Rates = dict[tuple[TopicPartition, int], tuple[float | None, float | None, int, bool]]


def _by_place(rows: list[Row]) -> Rates:
    """What Spark found, by partition and window of 30 s."""
    return {
        (TopicPartition(r.topic, r.partition), int(r.window_start.timestamp()) // 30): (
            r.bytes_s,
            r.records_s,
            r.samples,
            r.complete,
        )
        for r in rows
    }


def _plain_rates(
    series: Mapping[TopicPartition, list[PartitionSample]],
    *,
    min_span_s: float = 3,
    max_gap_s: float = 10,
) -> Rates:
    """What the plain function finds."""
    wanted = {}
    for name, samples in series.items():
        for window in range(3):
            inside = [s for s in samples if s.ts // (30 * MICROS) == window]
            if inside:
                s = speed(sorted(inside, key=_order), min_span_s=min_span_s, max_gap_s=max_gap_s)
                wanted[name, window] = (s.bytes_s, s.records_s, s.samples, s.complete)
    return wanted


def _order(s: PartitionSample) -> tuple[int, int, int, int]:
    size = -1 if s.log_bytes is None else s.log_bytes
    return s.ts, s.leader, size, -1 if s.end_offset is None else s.end_offset


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
