"""What a rate is divided by: the time in which the topic had records."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.spark.frames import events_frame, samples_frame
from trimtab.measure.spark.jobs import measure
from trimtab.measure.spark.measure_input import MeasureInput, MeasureMethod
from trimtab.measure.spark.spans import misstamped
from trimtab.measure.windows import MICROS, PartitionSample
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Source

HOUR_S = 3600
PLAIN = MeasureMethod(threshold=None)


def test_records_of_a_part_of_the_span_are_counted_over_that_part(spark: SparkSession) -> None:
    #   asked   0 ─────────────────────────────────────────────── 3600
    #   young                                           3540 ──── 3600   10/s on p0, p1 is silent
    #   ended   0 ──── 60                                                 5/s
    #   bursty  ▌     ▌     ▌   …   every 600 s 100 records within 1 s
    #   logged                                                3580 ─ 3600 2/s; older ones deleted
    #   idle    nothing
    rows = {
        "young": [(3540 + i / 10, 0, None) for i in range(600)],
        "ended": [(i / 5, 0, None) for i in range(300)],
        "bursty": [
            (300 + burst * 600 + i / 100, 0, None) for burst in range(6) for i in range(100)
        ],
        "logged": [(i / 2, 1, None) for i in range(2 * HOUR_S)]
        + [(3580 + i / 2, 0, None) for i in range(40)],
    }
    frames = [events_frame(spark, some, topic=topic) for topic, some in rows.items()]
    events = frames[0]
    for frame in frames[1:]:
        events = events.unionByName(frame)
    names = [TopicPartition(t, p) for t in (*rows, "idle") for p in (0, 1)]
    given = MeasureInput(
        from_ts=0,
        to_ts=HOUR_S * MICROS,
        partitions=dict.fromkeys(names),
        counted=frozenset(names),
        cut=frozenset({TopicPartition("logged", 0)}),
        events=events,
    )

    found = measure(given, PLAIN)

    rates = {str(p.name): (p.records_s, p.complete) for p in found.measurement.partitions}
    assert rates == {
        "young-0": (pytest.approx(10.0, rel=0.001), False),
        "young-1": (0.0, False),
        "ended-0": (pytest.approx(5.0, rel=0.001), False),
        "ended-1": (0.0, False),
        "bursty-0": (pytest.approx(600 / HOUR_S), True),
        "bursty-1": (0.0, True),
        "logged-0": (pytest.approx(2.0, rel=0.001), False),
        "logged-1": (pytest.approx(2.0), True),
        "idle-0": (0.0, True),
        "idle-1": (0.0, True),
    }
    assert [note.partition(":")[0] for note in found.notes] == ["ended", "young", "logged-0"]
    assert "over these 60.0 s, not over the requested 3600 s" in found.notes[1]
    assert "older records were deleted" in found.notes[2]
    assert (found.measurement.from_ts, found.measurement.to_ts) == (0, HOUR_S * MICROS)


def test_the_span_told_is_the_one_used(spark: SparkSession) -> None:
    name = TopicPartition("t", 0)
    given = MeasureInput(
        from_ts=0,
        to_ts=HOUR_S * MICROS,
        partitions={name: None},
        counted=frozenset({name}),
        events=events_frame(spark, [(3000 + i / 10, 0, b"k") for i in range(1000)]),
    )

    found = measure(given, PLAIN).measurement

    assert (found.from_ts, found.to_ts) == (3000 * MICROS, 3100 * MICROS)
    assert found.partitions[0].records_s == pytest.approx(10.0)
    assert found.partitions[0].bytes_s == pytest.approx(110.0)


def test_days_are_looked_at_as_well_as_minutes(spark: SparkSession) -> None:
    day_us, name = 86_400 * MICROS, TopicPartition("t", 0)
    given = MeasureInput(
        from_ts=0,
        to_ts=2 * day_us,
        partitions={name: None},
        counted=frozenset({name}),
        events=events_frame(spark, [(86_400 + i * 60, 0, None) for i in range(1440)]),
    )

    found = measure(given, PLAIN).measurement

    assert (found.from_ts, found.to_ts) == (day_us, 2 * day_us)
    assert found.partitions[0].records_s == pytest.approx(1 / 60)


def test_samples_of_a_time_without_records_are_left_out_as_well(spark: SparkSession) -> None:
    #   watched   0 ────────────────── 120, a sample a second
    #   records             60 ──────── 120, 10/s
    name = TopicPartition("t", 0)
    series = [
        PartitionSample(
            ts=second * MICROS,
            leader=1,
            log_bytes=max(0, second - 60) * 1000,
            end_offset=max(0, second - 60) * 10,
            committed={},
        )
        for second in range(121)
    ]
    given = MeasureInput(
        from_ts=0,
        to_ts=120 * MICROS,
        partitions={name: None},
        counted=frozenset({name}),
        events=events_frame(spark, [(60 + i / 10, 0, None) for i in range(600)]),
        samples=samples_frame(spark, {name: series}),
    )

    found = measure(given, PLAIN)

    (only,) = found.measurement.partitions
    assert only.bytes_s == pytest.approx(1000.0)
    assert only.records_s == pytest.approx(10.0)
    assert not only.complete
    assert len(found.notes) == 1


def test_samples_of_a_part_of_the_span_tell_the_lag_and_not_the_rate(spark: SparkSession) -> None:
    #   records   0 ────────────────── 60, 10/s
    #   watched   0 ─── 6
    name = TopicPartition("t", 0)
    series = [
        PartitionSample(ts=s * MICROS, leader=1, log_bytes=s, end_offset=s * 10, committed={"g": 0})
        for s in range(7)
    ]
    given = MeasureInput(
        from_ts=0,
        to_ts=60 * MICROS,
        partitions={name: None},
        counted=frozenset({name}),
        events=events_frame(spark, [(i / 10, 0, None) for i in range(600)]),
        samples=samples_frame(spark, {name: series}),
        rates_by_samples=False,
    )

    found = measure(given, PLAIN)

    (only,) = found.measurement.partitions
    assert (only.source, only.complete, only.lag) == (Source.EVENTS, True, {"g": 60})
    assert only.records_s == pytest.approx(10.0)
    assert found.notes == ()


def test_records_whose_stamps_do_not_tell_when_they_came_are_counted(spark: SparkSession) -> None:
    #   written from second 10 000 to 10 060
    #   off     every second one carries a clock that is three hours behind
    #   ahead   every one carries a clock that is half an hour ahead
    #   late    one in 300 comes from long ago, and others a few seconds late: that is usual
    at, behind, ahead = 10_000, -3 * HOUR_S, HOUR_S / 2
    rows = {
        "off": [(at + i / 10 + behind * (i % 2), 0, None) for i in range(600)],
        "ahead": [(at + i / 10 + ahead, 0, None) for i in range(600)],
        "late": [(at + i / 10 - 5 + behind * (i % 300 == 7), 0, None) for i in range(600)],
    }
    frames = [events_frame(spark, some, topic=topic) for topic, some in rows.items()]
    written = frames[0].unionByName(frames[1]).unionByName(frames[2])

    found = misstamped(written, at * MICROS, (at + 60) * MICROS)

    assert found == {
        TopicPartition("off", 0): (300, 600),
        TopicPartition("ahead", 0): (600, 600),
    }


def test_a_rate_by_stamps_that_do_not_tell_it_is_incomplete_and_said(spark: SparkSession) -> None:
    name = TopicPartition("t", 0)
    given = MeasureInput(
        from_ts=0,
        to_ts=60 * MICROS,
        partitions={name: None},
        counted=frozenset({name}),
        events=events_frame(spark, [(i / 10, 0, None) for i in range(600)]),
        strays={name: (300, 1000)},
    )

    found = measure(given, PLAIN)

    assert [p.complete for p in found.measurement.partitions] == [False]
    assert [note.partition(" records")[0] for note in found.notes] == ["t-0: 300 of 1000"]


def test_a_partition_first_written_within_the_span_counts_from_its_first_record(
    spark: SparkSession,
) -> None:
    #   t-0   0 ───────────────────────────── 300   10/s
    #   t-1                           240 ─── 300   10/s: added just now
    #   t-2                        150 . . .  300   5 records in all: too few to tell
    #   t-3   silent until 240 and then 10/s, but not for the first time
    #   t-4      90 ─ 91    192 ─ 193     299 ─ 300   100 records each: its pauses are longer than
    #                                                 the time before its first record
    late = [(240 + i / 10, p, None) for p in (1, 3) for i in range(600)]
    late += [(at + i / 100, 4, None) for at in (90, 192, 299) for i in range(100)]
    few = [(150.0 + i * 30, 2, None) for i in range(5)]
    names = [TopicPartition("t", p) for p in range(5)]
    given = MeasureInput(
        from_ts=0,
        to_ts=300 * MICROS,
        partitions=dict.fromkeys(names),
        counted=frozenset(names),
        born=frozenset({*names[1:3], names[4]}),
        events=events_frame(spark, [(i / 10, 0, None) for i in range(3000)] + late + few),
    )

    found = measure(given, PLAIN)

    rates = [p.records_s for p in found.measurement.partitions]
    assert rates == pytest.approx([10.0, 10.0, 5 / 300, 2.0, 300 / 210], rel=0.001)
    complete = [p.complete for p in found.measurement.partitions]
    assert complete == [True, False, True, True, False]
    assert [note.partition(";")[0] for note in found.notes] == [
        "t-1: it had no earlier records",
        "t-4: it had no earlier records",
    ]


def test_a_topic_first_written_within_the_span_counts_from_its_first_record(
    spark: SparkSession,
) -> None:
    #   asked   0 ──────────────────────────── 300
    #   t-0          90 ─ 91    192 ─ 193     299 ─ 300   100 records each: its pauses are longer
    #   t-1     empty                                     than the time before its first record
    rows = [(at + i / 100, 0, None) for at in (90, 192, 299) for i in range(100)]
    names = [TopicPartition("t", p) for p in range(2)]
    given = MeasureInput(
        from_ts=0,
        to_ts=300 * MICROS,
        partitions={names[0]: 300, names[1]: 0},
        counted=frozenset(names),
        born=frozenset(names[:1]),
        events=events_frame(spark, rows),
    )

    born = measure(given, PLAIN)
    older = measure(replace(given, born=frozenset()), PLAIN)

    assert [p.records_s for p in born.measurement.partitions] == pytest.approx([300 / 210, 0.0])
    assert not any(p.complete for p in born.measurement.partitions)
    assert [note.partition(";")[0] for note in born.notes] == [
        "t: records only from 00:01:30 to 00:05:00 UTC"
    ]
    assert [p.records_s for p in older.measurement.partitions] == pytest.approx([1.0, 0.0])


def test_topics_that_the_monitor_does_not_watch_are_counted(spark: SparkSession) -> None:
    watched, other, idle = (TopicPartition(topic, 0) for topic in ("a", "b", "c"))
    series = [
        PartitionSample(
            ts=second * MICROS, leader=1, log_bytes=second * 500, end_offset=second * 10
        )
        for second in range(61)
    ]
    events = events_frame(spark, [(i / 10, 0, None) for i in range(600)], topic="a").unionByName(
        events_frame(spark, [(i / 5, 0, None) for i in range(300)], topic="b")
    )
    given = MeasureInput(
        from_ts=0,
        to_ts=60 * MICROS,
        partitions=dict.fromkeys((watched, other, idle)),
        counted=frozenset((watched, other, idle)),
        events=events,
        samples=samples_frame(spark, {watched: series}),
    )

    found = measure(given, PLAIN)

    rates = [(p.bytes_s, p.records_s, p.source) for p in found.measurement.partitions]
    assert rates == [
        (pytest.approx(500.0), pytest.approx(10.0), Source.LOG_DIRS),
        (pytest.approx(50.0), pytest.approx(5.0), Source.EVENTS),
        (0.0, 0.0, Source.EVENTS),
    ]
    assert [note.partition(":")[0] for note in found.notes] == ["b, c"]
    assert found.stored_ratio == pytest.approx(5.0)
    sampled = measure(replace(given, only_samples=True), PLAIN)
    assert [p.bytes_s for p in sampled.measurement.partitions][1:] == [None, None]
    assert sampled.notes == ()
