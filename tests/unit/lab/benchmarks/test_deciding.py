"""The benchmark of decisions: a group in which nothing is to be done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab_lab.benchmarks.benchmark import BenchContext
from trimtab_lab.benchmarks.deciding import decide_growth, scene


@pytest.mark.parametrize("partitions", [100, 1200])
def test_both_sides_see_the_same_loads_and_nothing_is_to_be_done(partitions: int) -> None:
    of = scene(partitions)

    decision = json.loads(of.whole())

    carried = of.sums()
    assert (decision["action"], decision["to"]) == ("none", partitions // 100)
    assert decision["forecast"]["moves"] == 0
    assert decision["forecast"]["max_load"] == pytest.approx(max(carried.values()))
    assert len(carried) == partitions // 100


def test_the_cost_per_partition_is_shown_for_three_sizes(tmp_path: Path) -> None:
    def no_spark() -> None:
        raise AssertionError("this benchmark needs no Spark")

    context = BenchContext(spark=no_spark, home=tmp_path, cache=tmp_path)  # type: ignore[arg-type]

    sides = decide_growth(context, 5000, 2)

    assert list(sides.settings["us_per_partition"]) == ["100", "1000", "5000"]
    assert (len(sides.ours), len(sides.rival)) == (2, 2)
