"""Each benchmark on Spark, with few rows: it runs and has the agreed shape. No figure is judged."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from trimtab.errors import MeasurementError
from trimtab.measure.spark.hot_keys import CountingMode
from trimtab_lab.benchmarks.benchmark import BenchContext, compared
from trimtab_lab.benchmarks.registry import BENCHMARKS
from trimtab_lab.benchmarks.spark import data, sweep
from trimtab_lab.benchmarks.spark.batch import our_keys
from trimtab_lab.benchmarks.spark.live_keys import Pace, check_bounds, processed_s
from trimtab_lab.benchmarks.spark.process_usage import memory_mb

ROWS = 4000
FEW = {"cells": 3}


@pytest.fixture(scope="module")
def stage(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BenchContext:
    home: Path = tmp_path_factory.mktemp("home")
    return BenchContext(spark=lambda: spark, home=home, cache=home)


@pytest.mark.parametrize(
    "name", [name for name, b in BENCHMARKS.items() if b.spark and not b.kafka]
)
def test_a_benchmark_runs_and_says_what_was_agreed(
    stage: BenchContext, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = BENCHMARKS[name]
    rows = FEW.get(one.counted, ROWS)
    monkeypatch.setattr(sweep, "ITERATIONS", 2)

    sides = one.run(stage, rows, 1)

    found = compared(one, sides, rows=rows, runs=1, machine="m").to_json()
    assert list(found) == ["name", "ours", "rival", "ratio", "unit", "settings"]
    assert (found["name"], found["unit"]) == (name, str(one.unit))
    assert min(found["ours"], found["rival"], found["ratio"]) > 0


def test_cells_are_every_heuristic_at_every_delta_before_the_next_seed() -> None:
    told = [cell.parameters for cell in sweep.cells(61)]

    assert len({(p["planner"], p["delta"]) for p in told[:60]}) == 60
    assert {p["seed"] for p in told[:60]} == {0}
    assert told[60] == {**told[0], "seed": 1}


def test_test_data_is_made_once(stage: BenchContext) -> None:
    data.samples(stage, 500)
    before = {path: path.stat().st_mtime_ns for path in stage.data.rglob("*.parquet")}

    again = data.samples(stage, 500)

    assert again.count() == 500
    assert {path: path.stat().st_mtime_ns for path in stage.data.rglob("*.parquet")} == before


def test_four_of_five_keys_are_distinct_where_it_says_so(stage: BenchContext) -> None:
    events = data.events_mostly_distinct(stage, ROWS)

    seen = [r["count"] for r in events.groupBy("key").count().collect()]

    assert sum(seen) == ROWS
    assert 0.8 * ROWS <= seen.count(1) < ROWS


def test_both_modes_of_the_benchmark_find_the_same_heavy_keys(stage: BenchContext) -> None:
    events = data.events(stage, ROWS)

    exact, lossy = (
        {(r.window_start, bytes(r.key)): (r.lower, r.upper) for r in our_keys(events, m).collect()}
        for m in (CountingMode.TWO_PASS, CountingMode.LOSSY)
    )

    assert exact
    assert exact.keys() <= lossy.keys()
    assert all(lossy[k][0] <= n <= lossy[k][1] for k, (n, _) in exact.items())


def _batch(second: float, took_s: float) -> dict[str, Any]:
    return {
        "timestamp": f"2026-01-01T00:00:{second:06.3f}Z",
        "durationMs": {"triggerExecution": took_s * 1000},
        "numInputRows": 1000,
    }


def test_a_query_that_is_done_before_each_next_trigger_processes_what_is_offered() -> None:
    batches = [_batch(0, 4), _batch(10, 9), _batch(20, 6)]

    assert processed_s(batches, Pace(records_s=100)) == 100


def test_a_query_that_needs_longer_than_its_interval_falls_behind() -> None:
    #  offered      0 ──── 10 ──── 20 ──── 30
    #  processed    0 ────── 15 ────── 30 ────── 45
    batches = [_batch(0, 15), _batch(15, 15), _batch(30, 15)]

    assert processed_s(batches, Pace(records_s=100)) == pytest.approx(3000 / 45)


@pytest.mark.parametrize(
    ("bounds", "wrong"),
    [
        ([(b"a", 9, 11), (b"b", 5, 5)], None),
        ([(b"a", 11, 12), (b"b", 5, 5)], "has 10 records, not 11 to 12"),
        ([(b"a", 10, 10)], "b'b' was not found"),
        ([(b"a", 10, 10), (b"b", 5, 5), (b"c", 5, 6)], "has few records"),
    ],
)
def test_bounds_are_compared_with_exact_counts(
    spark: SparkSession, bounds: list[tuple[bytes, int, int]], wrong: str | None
) -> None:
    start = datetime(2026, 1, 1)  # noqa: DTZ001 - as Spark returns it
    truth = {(start, b"a"): (10, 5000), (start, b"b"): (5, 5000)}
    found = spark.createDataFrame(
        [(start, *row) for row in bounds],
        "window_start timestamp, key binary, lower long, upper long",
    )
    if wrong is None:
        assert check_bounds(truth, found) == 2
    else:
        with pytest.raises(MeasurementError, match=wrong):
            check_bounds(truth, found)


def test_memory_is_that_of_this_process_the_heap_and_the_python_workers(
    spark: SparkSession,
) -> None:
    spark.range(4).mapInArrow(lambda batches: batches, "id long").collect()  # starts a worker

    found = memory_mb(spark)

    assert set(found) == {"heap", "driver", "workers"}
    assert min(found.values()) > 1
