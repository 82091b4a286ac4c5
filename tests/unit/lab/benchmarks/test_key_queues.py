"""The benchmarks of the keys layer run, and compare like with like."""

from __future__ import annotations

from pathlib import Path

from trimtab_lab.benchmarks.benchmark import BenchContext
from trimtab_lab.benchmarks.key_queues import DrawnRecords, counted_keys, simulated_keys


def no_spark():
    raise AssertionError("no Spark is needed")


CONTEXT = BenchContext(spark=no_spark, home=Path(), cache=Path())


def test_both_simulations_are_timed():
    sides = simulated_keys(CONTEXT, 3000, 1)

    assert len(sides.ours) == len(sides.rival) == 1
    assert sides.settings["with_drawing_rows_s"] > 0


def test_counting_keeps_fewer_keys():
    sides = counted_keys(CONTEXT, 150_000, 1)

    assert len(sides.ours) == len(sides.rival) == 1
    assert sides.settings["entries"] < sides.settings["distinct_keys"]


def test_drawn_records_do_not_depend_on_blocks():
    records = DrawnRecords(500)
    sizes = [block.keys.size for block in records.blocks(1.0, block_records=200)]

    assert sizes == [200, 200, 100]
