"""The benchmarks of the audit, on a small cluster: what is told beside the ratio."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from trimtab_lab.benchmarks import topology
from trimtab_lab.benchmarks.benchmark import BenchContext


def _no_spark() -> NoReturn:
    raise AssertionError("this benchmark does without Spark")


@pytest.fixture
def stage(tmp_path: Path) -> BenchContext:
    return BenchContext(spark=_no_spark, home=tmp_path, cache=tmp_path)


def test_the_time_of_each_scan_is_told(stage: BenchContext) -> None:
    found = topology.full_audit(stage, 200, 1).settings

    assert list(found["rival_s"]) == ["groups", "pairs", "by_broker"]
    assert (found["topics"], found["partitions"], found["brokers"]) == (200, 2400, 10)
    assert "no pair is listed" in found["ours_does"]


def test_the_scans_of_a_few_failures_are_scaled_to_all_and_that_is_told(
    stage: BenchContext,
) -> None:
    sides = topology.all_faults(stage, 200, 2)

    assert sides.settings["faults"] == 10
    assert sides.settings["rival_ran"] == "one failure in each of 2 runs, its time × 10"
    assert "every pair is listed" in sides.settings["rival_does"]
    assert len(sides.ours) == len(sides.rival) == 2


def test_growth_compares_both_sizes_by_partition(stage: BenchContext) -> None:
    found = topology.growth(stage, 500, 1).settings

    assert (found["large"]["topics"], found["large"]["brokers"]) == (500, 15)
    assert (found["small"]["topics"], found["small"]["brokers"]) == (100, 5)
