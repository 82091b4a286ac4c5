"""Scores over a Spark table are those of the plain functions; what Spark wrote can be replayed."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from trimtab.errors import SchemaMismatch
from trimtab.evaluate.rscore import cbs
from trimtab.evaluate.spark.packing_scores import COLUMNS, packing_scores
from trimtab.measure.spark.measure_input import as_time
from trimtab.measure.windows import MICROS
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import Loads, LoadStep
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.packing import PackingRun, simulate, summary
from trimtab.simulate.replay import LagRow, RateRow
from trimtab.simulate.tables import read_history
from trimtab.spark.schemas import LAG, PARTITION_RATES
from trimtab.spark.warehouse import Warehouse
from trimtab.workload.rate_streams import landau_stream

NAMES = ("bfd", "mwf", "kafka-sticky")
REFERENCE = ("bfd", "mwf")
P = [TopicPartition("t", n) for n in range(12)]


def _runs(seed: int, delta: float) -> tuple[Loads, dict[str, PackingRun]]:
    rows = landau_stream(seed=seed, partitions=12, iterations=8, delta=delta, integer=True)
    steps = tuple(LoadStep(loads=dict(zip(P, row, strict=True))) for row in rows.tolist())
    stream = Loads(capacity=100, steps=steps)
    planners = PLANNERS[Layer.CONSUMERS]
    return stream, {name: simulate(stream, planners[name]) for name in NAMES}


def _table(spark: SparkSession, worlds: dict[tuple[str, int], tuple[Loads, dict[str, PackingRun]]]):
    rows = [
        (run, delta, name, k, p.partition, float(asked.loads[p]), step.assignment[p])
        for (run, delta), (stream, runs) in worlds.items()
        for name, found in runs.items()
        for k, (asked, step) in enumerate(zip(stream.steps, found.steps, strict=True))
        for p in P
    ]
    kinds = "run string, delta int, algorithm string, iteration int, partition int, load double"
    return spark.createDataFrame(rows, f"{kinds}, consumer int").repartition(3)


def test_scores_over_a_table_equal_those_of_plain_python(spark: SparkSession) -> None:
    worlds = {(f"s{seed}", delta): _runs(seed, delta) for seed in (1, 2) for delta in (5, 25)}

    found = packing_scores(_table(spark, worlds), capacity=100, reference=REFERENCE).collect()

    assert len(found) == 4 * len(NAMES)
    for row in found:
        runs = worlds[row.run, row.delta][1]
        counts = {name: [step.consumers for step in run.steps] for name, run in runs.items()}
        score = cbs(counts, reference=REFERENCE)[row.algorithm]
        expected = summary(runs[row.algorithm])
        assert (row.cbs, row.skipped) == (pytest.approx(score.value), 0)
        for figure in ("e_rscore", "moved_fraction", "moves", "mean_consumers", "utilisation"):
            assert row[figure] == pytest.approx(expected[figure])


def test_a_table_without_a_column_is_refused(spark: SparkSession) -> None:
    table: DataFrame = spark.createDataFrame([("r", 1)], "run string, delta int")
    with pytest.raises(SchemaMismatch, match=f"no column {COLUMNS[2]}"):
        packing_scores(table, capacity=100)


def test_the_history_that_spark_wrote_is_read_without_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    start, end = as_time(30 * MICROS), as_time(60 * MICROS)
    rates = [(start, end, "t", n, 10.0 * n, None, "log_dirs", 30, True) for n in range(2)]
    warehouse = Warehouse(str(tmp_path))
    for run, row in zip(("r1", "42"), rates, strict=True):
        frame = spark.createDataFrame([row], PARTITION_RATES)
        warehouse.write(frame, "partition_rates", run=run)
    lags = spark.createDataFrame([(start, "g", "t", 0, 7, None, "ok", True)], LAG)
    warehouse.write(lags, "lag", run="r1")

    found, behind = read_history(tmp_path)

    assert sorted(found) == [
        RateRow(30 * MICROS, 60 * MICROS, P[n], 10.0 * n, None, "log_dirs", 30, True)
        for n in range(2)
    ]
    assert behind == [LagRow(30 * MICROS, "g", P[0], 7)]
