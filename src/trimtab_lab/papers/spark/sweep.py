"""Sweeps on Spark: one row per cell, a few rows per task, one file per finished task.

Promise  A finished cell is never run again: results are in Parquet as soon as their task has ended,
         before the sweep ends, so an interrupted sweep continues where it stopped. Failed cells are
         kept with their error, and tried again. Several sweeps may share a folder.
Cost     A few milliseconds per cell, plus the cells themselves; Python workers are reused.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from trimtab.model.codec import dumps
from trimtab.spark.session import spark_errors, storage_path, watched
from trimtab_lab.papers.grid import CellResult, GridCell, Work, run

if TYPE_CHECKING:
    import pandas as pd

CELLS = StructType(
    [StructField("key", StringType(), False), StructField("parameters", StringType(), False)]
)
RESULTS = StructType(
    [
        *CELLS.fields,
        StructField("figures", StringType()),
        StructField("error", StringType()),
        StructField("seconds", DoubleType()),
    ]
)


def sweep(
    session: SparkSession,
    cells: Sequence[GridCell],
    work: Work,
    *,
    into: str,
    per_task: int = 1,
    again: bool = False,
    on_cells: Callable[[int], None] | None = None,
) -> dict[str, CellResult]:
    """Runs the cells that have no result yet; returns the results of all cells by key.

    Raise `per_task` for cells that take less than about 0.1 s. With `again`, all cells are run.
    `on_cells` is called with the number of cells that are done, including kept ones.
    """
    wanted = {cell.key: cell for cell in cells}
    folder = storage_path(into)
    with spark_errors("reading the results of earlier sweeps"):
        found = {} if again else kept(session, folder, list(wanted))
    missing = [cell for key, cell in wanted.items() if key not in found]

    def report(tasks: int, _: int) -> None:
        if on_cells is not None:
            on_cells(len(found) + min(tasks * per_task, len(missing)))

    report(0, 0)
    if missing:
        with spark_errors("running a sweep"), watched(session, report):
            written = f"{folder}/sweep={uuid.uuid4().hex}"
            table = results(_frame(session, missing, per_task), work)
            _interruptibly(session, lambda: _write(table, written))
        with spark_errors("reading the results of a sweep"):
            found |= _read(session.read.schema(RESULTS).parquet(written))
    if on_cells is not None:
        on_cells(len(found))
    return {key: found[key] for key in wanted}


def results(cells: DataFrame, work: Work) -> DataFrame:
    """Runs each cell of a table; returns a table of results."""

    def each(batches: Iterable[pd.DataFrame]) -> Iterable[pd.DataFrame]:
        import pandas as pd

        for batch in batches:
            for key, parameters in zip(batch["key"], batch["parameters"], strict=True):
                done = run(key, json.loads(parameters), work)
                figures = None if done.figures is None else dumps(dict(done.figures))
                row = (key, parameters, figures, done.error, done.seconds)
                yield pd.DataFrame([row], columns=RESULTS.names)

    return cells.select(*CELLS.names).mapInPandas(each, RESULTS)


def kept(session: SparkSession, folder: str, keys: Sequence[str]) -> dict[str, CellResult]:
    """The results of earlier sweeps for these keys, without failed ones."""
    try:
        table = session.read.schema(RESULTS).parquet(folder)
    except AnalysisException:  # there are no results yet
        return {}
    return _read(table.where(F.col("key").isin(list(keys)) & F.col("error").isNull()))


def _frame(session: SparkSession, cells: Sequence[GridCell], per_task: int) -> DataFrame:
    """One row per cell, `per_task` rows per partition, in the order of the cells."""
    import pandas as pd

    rows = [(n // per_task, c.key, dumps(dict(c.parameters))) for n, c in enumerate(cells)]
    named = StructType([StructField("task", LongType(), False), *CELLS.fields])
    # With Arrow: rows created in Python would need a second Python worker in every task.
    table = session.createDataFrame(pd.DataFrame(rows, columns=named.names), named)
    tasks = rows[-1][0] + 1
    # A range has exactly the requested number of partitions, and a broadcast join keeps them.
    partitions = session.range(0, tasks, 1, tasks).withColumnRenamed("id", "task")
    return partitions.join(F.broadcast(table), "task").select(*CELLS.names)


def _write(table: DataFrame, folder: str) -> None:
    """Writes so that the output of a finished task stays, even if other tasks fail."""
    (
        table.write.mode("append")
        .option("mapreduce.fileoutputcommitter.algorithm.version", "2")
        .parquet(folder)
    )


def _interruptibly(session: SparkSession, action: Callable[[], None]) -> None:
    """Runs a Spark action in another thread, so that Ctrl-C can cancel the job."""
    with ThreadPoolExecutor(1, thread_name_prefix="sweep") as thread:
        running = thread.submit(action)
        try:
            running.result()
        except KeyboardInterrupt:
            session.sparkContext.cancelAllJobs()
            raise


def _read(table: DataFrame) -> dict[str, CellResult]:
    found = {}
    for row in table.collect():
        figures = None if row["figures"] is None else json.loads(row["figures"])
        found[row["key"]] = CellResult(
            key=row["key"],
            parameters=json.loads(row["parameters"]),
            figures=figures,
            error=row["error"],
            seconds=row["seconds"],
        )
    return found
