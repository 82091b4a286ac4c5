"""Test data: seeded, written to Parquet once, and reused for the same parameters."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from trimtab.measure.windows import MICROS
from trimtab.model.codec import short_hash
from trimtab.workload.key_streams import ZipfMandelbrot
from trimtab_lab.benchmarks.benchmark import BenchContext
from trimtab_lab.benchmarks.spark.generated import generated_events

SEED = 7
TOPIC = "generated"
PARTITIONS = 12
EVENTS_S = 100_000
"""Events per second of generated time."""

WATCHED = 1000
"""Number of partitions in the generated samples, with one sample per second each."""


def events(context: BenchContext, rows: int) -> DataFrame:
    """Events with Zipf–Mandelbrot keys."""
    keys = ZipfMandelbrot()
    return _kept(
        context,
        f"events-{rows}",
        repr((keys, PARTITIONS, EVENTS_S)),
        lambda session: generated_events(
            session, rows, seed=SEED, keys=keys, partitions=PARTITIONS, rate=float(EVENTS_S)
        ),
    )


def events_mostly_distinct(context: BenchContext, rows: int) -> DataFrame:
    """The same events, but four out of five have a unique key."""

    def made(_: SparkSession) -> DataFrame:
        own = F.concat(F.lit("u"), F.col("offset")).cast("binary")
        key = F.when(F.col("offset") % 5 == 0, F.col("key")).otherwise(own)
        return events(context, rows).withColumns({"key": key, "key_bytes": F.octet_length(key)})

    return _kept(context, f"events-distinct-{rows}", "4/5", made)


def samples(context: BenchContext, rows: int) -> DataFrame:
    """Samples as a monitor would take them: growing logs, with retention and leader changes.

    Retention truncates each log every 977 s and leaders change every 600 s, at different times for
    each partition: one window in ten is restarted.
    """

    def made(session: SparkSession) -> DataFrame:
        p, second = f"(id % {WATCHED})", f"(id div {WATCHED})"
        return session.range(0, rows, 1, 8).selectExpr(
            f"timestamp_micros({second} * {MICROS} + pmod(xxhash64(id), 1000)) as ts",
            "'c' as cluster",
            f"concat('topic-', {p} div 50) as topic",
            f"cast({p} % 50 as int) as partition",
            f"cast(1 + ({p} + ({second} + {p}) div 600) % 3 as int) as leader",
            "array(1, 2, 3) as replicas",
            "array(1, 2, 3) as isr",
            f"(({second} + 7 * {p}) % 977) * (1000 + {p}) as log_bytes",
            "0L as begin_offset",
            f"{second} * (10 + {p}) as end_offset",
            f"map('g', {second} * (10 + {p})) as committed",
            f"cast({second} as string) as sample_id",
        )

    return _kept(context, f"samples-{rows}", repr((WATCHED, 977, 600)), made)


def _kept(
    context: BenchContext, name: str, parameters: str, make: Callable[[SparkSession], DataFrame]
) -> DataFrame:
    """Reads the table; creates it first if it does not exist or is incomplete."""
    session = context.spark()
    folder = context.data / f"{name}-{short_hash({'parameters': parameters, 'seed': SEED})[:6]}"
    if not folder.exists():
        context.say(f"generating test data: {name}")
        half = Path(f"{folder}.{os.getpid()}.part").absolute()
        try:
            make(session).write.mode("overwrite").parquet(str(half))
            half.rename(folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)
    return session.read.parquet(str(folder.absolute()))
