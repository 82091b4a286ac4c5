"""Peak memory of a Python worker while it counts keys with lossy counting."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.measure.spark.hot_keys import CountingMode, counting
from trimtab_lab.benchmarks.benchmark import BenchContext, Sides
from trimtab_lab.benchmarks.spark.batch import EPSILON

if TYPE_CHECKING:
    import pyarrow as pa

WORKERS = 2


def hot_keys_memory(context: BenchContext, rows: int, runs: int) -> Sides:
    """The peak with all keys, compared with the peak with a tenth of the keys."""
    session = context.spark()
    few = max(1, rows // 10)
    peak_mb(session, few)  # warm-up: imports and pools
    small, large = [], []
    for _ in range(runs):
        small.append(peak_mb(session, few))
        large.append(peak_mb(session, rows))
    return Sides(
        ours=tuple(large),
        rival=tuple(small),
        settings={"distinct_keys": [few, rows], "epsilon": EPSILON, "workers": WORKERS},
    )


def peak_mb(session: SparkSession, distinct: int) -> float:
    """The largest peak of any worker while they count `distinct` keys in one window."""
    count = counting(CountingMode.LOSSY, EPSILON)

    def weighed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        _reset_peak()
        for _ in count(batches):
            pass
        yield pa.RecordBatch.from_pydict({"peak": [_peak_bytes()]})

    keyed = session.range(0, distinct, 1, WORKERS).select(
        F.lit(0).cast("long").alias("window"),
        F.lit("t").alias("topic"),
        F.col("id").cast("string").cast("binary").alias("key"),
    )
    found = keyed.mapInArrow(weighed, "peak long").agg(F.max("peak")).collect()[0][0]
    return float(found) / 1e6


def _reset_peak() -> None:
    """Resets the peak of earlier work, because workers are reused; possible on Linux only."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_bytes() -> int:
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
