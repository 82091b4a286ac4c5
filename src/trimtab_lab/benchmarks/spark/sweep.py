"""A sweep on Spark, compared with the same cells in plain Python processes, both warmed up.

A cell runs one heuristic on one of Landau's streams. Spark writes every result to Parquet when its
task ends, the plain processes only return theirs: the difference is the cost of being resumable.
"""

from __future__ import annotations

import tempfile
from functools import partial
from itertools import islice, product
from multiprocessing import get_context

from pyspark.sql import SparkSession

from trimtab.errors import MeasurementError
from trimtab.evaluate.rscore import TWELVE
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides, alternating, rows_per_second
from trimtab_lab.papers.grid import CellResult, GridCell, finished
from trimtab_lab.papers.landau import packing_runs
from trimtab_lab.papers.landau.design import CELLS_PER_TASK
from trimtab_lab.papers.spark import sweep as on_spark

DELTAS = (5, 10, 15, 20, 25)
PARTITIONS = 200
ITERATIONS = 500


def sweep(context: BenchContext, rows: int, runs: int) -> Sides:
    """Cells per second; `rows` is the number of cells."""
    session = context.spark()
    workers = session.sparkContext.defaultParallelism
    todo = cells(rows)
    with get_context("spawn").Pool(workers) as pool:
        one = partial(finished, work=packing_runs.packed)
        seconds = alternating(
            lambda: _spark(session, todo),
            lambda: _complete(list(pool.imap_unordered(one, todo)), todo),
            runs=runs,
        )
    return rows_per_second(
        rows,
        seconds,
        cells=f"{len(TWELVE)} heuristics × {len(DELTAS)} deltas × seeds",
        partitions=PARTITIONS,
        iterations=ITERATIONS,
        cells_per_task=CELLS_PER_TASK,
        master=session.sparkContext.master,
        processes=workers,
    )


def cells(count: int) -> list[GridCell]:
    """`count` cells: every heuristic at every delta, with as many seeds as needed."""
    every = product(range(count), DELTAS, TWELVE)
    return [
        GridCell(
            {
                "planner": planner,
                "delta": delta,
                "start": "uniform",
                "seed": seed,
                "partitions": PARTITIONS,
                "iterations": ITERATIONS,
            },
            "bench",
        )
        for seed, delta, planner in islice(every, count)
    ]


def _spark(session: SparkSession, todo: list[GridCell]) -> None:
    # A new folder each time: cells kept by an earlier run would be skipped.
    with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
        found = on_spark.sweep(
            session, todo, packing_runs.packed, into=folder, per_task=CELLS_PER_TASK
        )
    _complete(list(found.values()), todo)


def _complete(found: list[CellResult], todo: list[GridCell]) -> None:
    """Raises if cells are missing or failed: a side that skips work would look faster."""
    errors = [done.error for done in found if done.error is not None]
    if errors or len(found) != len(todo):
        raise MeasurementError(
            f"{len(found)} of {len(todo)} cells ran, {len(errors)} failed"
            + (f", one of them with: {errors[0]}" if errors else "."),
            hint="Fix the cause, then run the benchmark again: a partial run cannot be compared.",
        )
