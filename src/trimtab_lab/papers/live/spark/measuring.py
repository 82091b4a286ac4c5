"""Runs the continuous pipeline in this process, if there is a Spark session already.

Why      Another driver needs half a minute to start, and a gigabyte of memory.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from trimtab.kafka.publisher import open_publisher
from trimtab.measure.kafka.monitor import MonitorScope, in_background
from trimtab.measure.spark.continuous import JobIntervals, Results, run_continuously
from trimtab.measure.spark.spans import MeasureQuery
from trimtab.services.monitor import open_sampling
from trimtab.spark.session import Session
from trimtab.spark.warehouse import Warehouse
from trimtab_lab.papers.live.kafka.live_site import LiveSite

_TOPICS = re.compile("live-.*")
_MEASURED_OVER_S, _LEAST_S, _TRIGGER_S, _SAMPLED_EVERY_S = 5.0, 2.0, 1.0, 0.5


@contextmanager
def measured_here(session: Session, place: LiveSite) -> Iterator[None]:
    """Measures the topics of live runs while the block runs."""
    cluster, stop = place.cluster, threading.Event()
    with (
        cluster.admin() as admin,
        open_publisher(cluster) as publisher,
        ThreadPoolExecutor(1, "measuring") as threads,
    ):
        interest = MonitorScope(pattern=_TOPICS, own_prefix=cluster.topics.prefix)
        with (
            open_sampling(cluster, interest, period_s=_SAMPLED_EVERY_S) as monitor,
            in_background(monitor),
        ):
            running = threads.submit(
                run_continuously,
                session,
                admin,
                cluster,
                MeasureQuery(pattern=_TOPICS, from_ts=0, to_ts=0),
                beat=JobIntervals(
                    window_s=_MEASURED_OVER_S, min_span_s=_LEAST_S, trigger_s=_TRIGGER_S
                ),
                keys=None,
                results=Results(
                    outlet=publisher,
                    warehouse=Warehouse(str(place.folder / "tables")),
                    checkpoint=str(place.folder / "checkpoints"),
                ),
                stop=stop,
            )
            try:
                yield
            finally:
                stop.set()
                running.result()
