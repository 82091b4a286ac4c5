"""The benchmarks without Spark, with few partitions: they run and say what was agreed."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from trimtab.evaluate.rscore import TWELVE
from trimtab_lab.benchmarks import latency_model as model
from trimtab_lab.benchmarks import planners
from trimtab_lab.benchmarks.benchmark import BenchContext, compared
from trimtab_lab.benchmarks.registry import BENCHMARKS
from trimtab_lab.reference_scans.packing import SCANS

SMALL = {"partitions": 100, "keys": 400, "samples": 100_000, "records": 2000, "topics": 60}


def _no_spark() -> NoReturn:
    raise AssertionError("this benchmark does without Spark")


@pytest.fixture
def stage(tmp_path: Path) -> BenchContext:
    return BenchContext(spark=_no_spark, home=tmp_path, cache=tmp_path)


@pytest.mark.parametrize(
    "name", [name for name, b in BENCHMARKS.items() if not (b.spark or b.kafka)]
)
def test_a_benchmark_without_spark_runs_and_says_what_was_agreed(
    stage: BenchContext, name: str
) -> None:
    one = BENCHMARKS[name]
    rows = SMALL[one.counted]

    found = compared(one, one.run(stage, rows, 2), rows=rows, runs=2, machine="m").to_json()

    assert list(found) == ["name", "ours", "rival", "ratio", "unit", "settings"]
    assert (found["name"], found["unit"]) == (name, str(one.unit))
    assert min(found["ours"], found["rival"], found["ratio"]) > 0
    assert len(found["settings"]["each"]["ours"]) == 2


@pytest.mark.parametrize("name", planners.SCANNED)
def test_a_scan_is_asked_for_the_very_plan_that_ours_makes(name: str) -> None:
    problem = planners.second_plan(name, 60)

    assert problem.current
    assert problem.plan(SCANS[name]) == problem.plan(planners.CONSUMERS[name])


def test_the_time_of_every_fit_is_told(stage: BenchContext) -> None:
    fits = planners.plan_fits(stage, 50, 1).settings
    growth = planners.plan_growth(stage, 400, 1).settings

    assert list(fits["each_of_twelve_s"]) == list(TWELVE)
    assert list(growth["curve"]) == ["4", "40", "400"]
    assert growth["growth"][growth["worst"]] == max(growth["growth"].values())  # rounded: ties
    assert {n: list(seconds) for n, seconds in growth["seconds"].items()} == {
        "40": list(TWELVE),
        "400": list(TWELVE),
    }


def test_a_stream_of_its_own_for_every_run_of_trim(stage: BenchContext) -> None:
    sides = planners.trim(stage, 60, 2)

    assert len(set(sides.rival)) == 2
    assert sides.settings["consumers"]["trim"] <= sides.settings["consumers"]["bfd"]


def test_lag_binds_in_one_of_the_benchmarks_for_latency(stage: BenchContext) -> None:
    light = planners.ll_ffd(stage, 300, 1).settings
    heavy = planners.ll_ffd_lag(stage, 300, 1).settings

    assert light["consumers"] < heavy["consumers"] < heavy["up_to_1.0"]["consumers"]


def test_both_latency_models_find_the_same_percentiles() -> None:
    loads, assignments = model.packed_for(300_000)

    ours = model.in_closed_form(model.dictionaries(loads), assignments)
    rival = model.sampled(loads, model.owners_of(assignments))

    assert ours == pytest.approx(rival, rel=1e-6)
