"""The continuous job beside a benchmark that watches it."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from trimtab.kafka.cluster import Cluster
from trimtab.kafka.publisher import open_publisher
from trimtab.measure.spark.continuous import JobIntervals, Results, run_continuously
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.model.rates_place import RatesPlace
from trimtab.spark.warehouse import Warehouse
from trimtab_lab.benchmarks.benchmark import BenchContext


@contextmanager
def measuring(
    context: BenchContext,
    cluster: Cluster,
    asked: MeasureQuery,
    *,
    trigger_s: float,
    place: RatesPlace = RatesPlace.AUTO,
) -> Iterator[None]:
    """Runs the continuous job while the block runs."""
    stop = threading.Event()
    with (
        tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder,
        cluster.admin() as admin,
        open_publisher(cluster) as publisher,
        ThreadPoolExecutor(1, thread_name_prefix="bench-live") as thread,
    ):
        running = thread.submit(
            run_continuously,
            context.spark(),
            admin,
            cluster,
            asked,
            beat=JobIntervals(window_s=30.0, min_span_s=3.0, trigger_s=trigger_s, rates_on=place),
            keys=None,
            results=Results(
                outlet=publisher,
                warehouse=Warehouse(f"{folder}/warehouse"),
                checkpoint=f"{folder}/checkpoints",
            ),
            stop=stop,
        )
        try:
            yield
        finally:
            stop.set()
            running.result()
