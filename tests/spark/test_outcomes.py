"""Receipts to outcomes, by numbers that can be added up by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from tests.spark.frames import receipts_frame
from trimtab.evaluate.order import OrderRules, ViolationKind
from trimtab.evaluate.spark.jobs import OutcomeParameters, ReplicasFrom, audit_receipts, judge
from trimtab.evaluate.spark.outcomes import (
    handovers,
    moves,
    replica_minutes,
    replicas_from_timeline,
)
from trimtab.evaluate.spark.receipt_tables import (
    ReceiptQuery,
    ReceiptTables,
    expected_places,
    from_files,
    seq_in_header,
    seq_in_json,
)
from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import Command, ReadingStarted, ReadingStopped, Receipt, Report, Stop
from trimtab.model.control_codec import control_to, receipt_to
from trimtab.spark import sources
from trimtab.spark.warehouse import Warehouse

ASKED = ReceiptQuery(group="g", run="r", from_ts=0, to_ts=10**12)
P0 = TopicPartition("t", 0)


def done(
    offset: int,
    event_s: float,
    started_s: float,
    finished_s: float,
    *,
    by: int = 0,
    partition: int = 0,
) -> Receipt:
    return Receipt(
        run="r",
        group="g",
        topic="t",
        partition=partition,
        offset=offset,
        key=b"k\xff",
        seq=None,
        consumer=by,
        incarnation=f"i{by}",
        event_ts=round(event_s * MICROS),
        started_ts=round(started_s * MICROS),
        finished_ts=round(finished_s * MICROS),
    )


# second   0    1    2    3    4    5    6    7    8    9   10   11
# p0       [0 by 0  ][1 by 0  ]     [1 by 1  ][2 by 1  ]
# p1       [0 by 0  ]  (in one batch with p0's)         [1 by 0]
RUN = [
    done(0, 0, 0, 2),
    done(1, 0, 2, 4),
    done(1, 0, 5, 7, by=1),
    done(2, 6, 7, 9, by=1),
    done(0, 0, 0, 2, partition=1),
    done(1, 10, 10, 11, partition=1),
]


def test_an_outcome_adds_up(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(str(tmp_path))
    given = ReceiptTables(receipts=receipts_frame(spark, [*RUN, RUN[0]]))  # one was sent twice

    found = judge(spark, given, ASKED, OutcomeParameters(sla_s=2, window_s=5), warehouse)

    # Five records took 2, 4, 3, 2 and 1 s.
    latency = found.latency
    assert (latency.events, found.repeats, latency.within_sla) == (5, 1, 0.6)
    assert (latency.p50_ms, latency.p90_ms, latency.max_ms) == (2000, 3600, 4000)
    # Consumer 0 lived 11 s and worked 5, consumer 1 lived 4 s and worked 4.
    assert [(c.consumer, c.busy_s, c.life_s) for c in found.consumers] == [(0, 5, 11), (1, 4, 4)]
    assert found.replicas_from == "receipts"
    assert found.replica_minutes == pytest.approx(15 / 60)
    assert found.busiest_share == pytest.approx(5 / 9)
    assert found.busiest_to_mean == pytest.approx(10 / 9)
    assert (found.moves.moves, found.moves.p50_s) == (1, 1.0)
    assert found.handovers is None
    assert [w.latency.events for w in found.windows] == [3, 1, 1]
    assert [w.replicas for w in found.windows] == [1.0, 9 / 5, 1.0]
    kept = warehouse.read(spark, "outcomes").orderBy("window_start").collect()
    assert [(r.run, r.events, r.p50_ms) for r in kept] == [
        ("r", 3, 2000),
        ("r", 1, 3000),
        ("r", 1, 1000),
    ]


def test_only_the_time_in_which_a_record_waited_counts_as_blocked(spark: SparkSession) -> None:
    idle = [done(0, 0, 0, 1), done(1, 9, 9.5, 10, by=1)]

    found = receipts_frame(spark, idle).transform(moves).collect()

    assert [(r.gap_s, r.blocked_s) for r in found] == [(8.5, 0.5)]


def test_a_timeline_holds_each_row_until_the_next_and_is_cut_to_the_run(
    spark: SparkSession,
) -> None:
    rows: list[tuple[Any, ...]] = [(as_time(0), 1), (as_time(60 * MICROS), 3)]
    timeline = spark.createDataFrame(rows, "ts timestamp, replicas int")

    spans = replicas_from_timeline(timeline, from_ts=30 * MICROS, to_ts=120 * MICROS)

    assert spans.transform(replica_minutes).collect()[0][0] == pytest.approx(0.5 + 3)


def _control(spark: SparkSession) -> Any:
    def stopped(consumer: int) -> ReadingStopped:
        return ReadingStopped(
            consumer=consumer,
            incarnation=f"i{consumer}",
            epoch=1,
            seq=1,
            partitions=(P0,),
            committed={P0: 2},
        )

    started = ReadingStarted(consumer=1, incarnation="i1", epoch=1, seq=1, partitions=(P0,))
    said: list[tuple[int, Command | Report]] = [
        (1, Stop(epoch=1, seq=1, partitions=(P0,))),
        (2, Stop(epoch=1, seq=1, partitions=(P0,))),  # sent again
        (3, stopped(0)),
        (4, started),
        (9, Stop(epoch=1, seq=2, partitions=(P0,))),  # nobody has started since
    ]
    values: list[tuple[Any, ...]] = [
        (dumps(control_to(m, ts=s * MICROS)).encode(),) for s, m in said
    ]
    raw = spark.createDataFrame([*values, (b"{nonsense",), (None,)], "value binary")
    return raw.transform(sources.control)


def test_a_hand_over_lasts_from_the_stop_until_somebody_has_started(spark: SparkSession) -> None:
    assert [r.blocked_s for r in _control(spark).transform(handovers).collect()] == [3.0]


def test_control_tells_who_lived_how_long_and_what_was_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    given = ReceiptTables(receipts=receipts_frame(spark, RUN), control=_control(spark))
    warehouse = Warehouse(str(tmp_path))

    found = judge(
        spark, given, ASKED, OutcomeParameters(sla_s=2, replicas_from=ReplicasFrom.AUTO), warehouse
    )
    audited = audit_receipts(spark, given, ASKED, rules=OrderRules(), warehouse=warehouse)

    assert found.replicas_from == "control"
    assert found.handovers is not None
    assert found.handovers.moves == 1
    # Offset 1 was processed again at 5 s, though all below 2 had been committed at 3 s.
    assert audited.counts == {ViolationKind.REPEAT: 1, ViolationKind.REWIND: 1}
    assert audited.findings(no_repeats=False) == 1
    assert {r.kind for r in warehouse.read(spark, "violations").collect()} == {"repeat", "rewind"}
    assert [(v.kind, v.at) for v in audited.first] == [
        (ViolationKind.REPEAT, 1),
        (ViolationKind.REWIND, 1),
    ]

    warehouse.forget(spark, "violations", run="r")
    assert warehouse.read(spark, "violations").count() == 0, "the next audit begins anew"


def test_receipts_in_files_and_topics_are_read_alike_and_bad_ones_kept_aside(
    spark: SparkSession, tmp_path: Path
) -> None:
    good = receipt_to(RUN[0])
    lines = [dumps(good), dumps(good | {"offset": "x"}), "{broken"]
    lines += [json.dumps({k: v for k, v in good.items() if k != "incarnation"})]
    path = tmp_path / "receipts.json"
    path.write_text("\n".join(lines))
    raw = spark.createDataFrame([(line.encode(),) for line in lines], "value binary")
    stamped = raw.withColumn("timestamp", F.timestamp_seconds(F.lit(100)))

    parsed = stamped.transform(sources.receipt_records)
    given = from_files(spark, path, ASKED)

    wanted = receipts_frame(spark, RUN[:1]).collect()
    assert given.rejects is not None
    assert given.receipts.collect() == parsed.transform(sources.receipts).collect() == wanted
    reasons = [r.reason for r in parsed.transform(sources.rejects, source="x").collect()]
    assert sorted(reasons) == ["no incarnation", *["not JSON, or a field of another type"] * 2]
    assert given.rejects.count() == 3


def test_what_is_expected_comes_from_a_recording_and_from_ranges(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "sent"
    spark.createDataFrame([(0, 7), (1, -1)], "partition int, offset long").write.parquet(str(path))

    found = expected_places(spark, acknowledged=path, topic="t", offsets={P0: (6, 8)})

    assert found is not None
    assert sorted(map(tuple, found.collect())) == [("t", 0, 6), ("t", 0, 7)]


def test_a_sequence_number_is_read_as_digits_as_bytes_or_from_json(spark: SparkSession) -> None:
    values = [b"17", (17).to_bytes(8, "big"), b"20260131", b"word", None]
    rows: list[tuple[Any, ...]] = [([("n", v)], b'{"a":{"n":5}}') for v in values]
    rows.append(([("n", b"1"), ("n", b"2")], b"no JSON"))
    rows.append((None, None))
    frame = spark.createDataFrame(
        rows, "headers array<struct<key string, value binary>>, value binary"
    )

    found = frame.select(seq_in_header("n"), seq_in_json("a.n")).collect()

    assert [r[0] for r in found] == [17, 17, 20260131, None, None, 2, None]
    assert [r[1] for r in found] == [5, 5, 5, 5, 5, None, None]
