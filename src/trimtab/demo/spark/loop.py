"""The loop itself, in the demo: a controller runs a group on the skew that was just measured.

Spark measures all the while, the controller decides, consumers are processes of their own, and what
they did is judged from their receipts. Rates are scaled down to what one small machine can play.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trimtab.demo.story import Loop
from trimtab.experiments.live.kafka.conduct import Place, conduct, forget
from trimtab.experiments.live.plan import REPORTED_RATE, LiveRun, Strategy, Workload
from trimtab.experiments.live.spark.judged import judged
from trimtab.measure.kafka.admin import connect
from trimtab.measure.kafka.monitor import Interest, in_background, open_monitor
from trimtab.measure.kafka.publish import open_publisher
from trimtab.measure.spark.continuous import Beat, Results, run_continuously
from trimtab.measure.spark.session import Session
from trimtab.measure.spark.spans import Asked, Target
from trimtab.measure.spark.tables import Warehouse
from trimtab.model.cluster import TopicPartition

_TOPICS = re.compile("live-.*")
_MEASURED_OVER_S, _LEAST_S, _TRIGGER_S, _SAMPLED_EVERY_S = 5.0, 2.0, 0.2, 0.5
_HOTTEST = 0.8
"""Of what one consumer can carry: no group can split a partition."""


def scaled(loads: Mapping[TopicPartition, float], rate_s: float) -> tuple[float, ...]:
    """The same skew at a smaller rate, in the order of the partitions.

    >>> orders = [TopicPartition("orders", n) for n in range(3)]
    >>> scaled(dict(zip(orders, (400.0, 300.0, 100.0))), 80.0)
    (40.0, 30.0, 10.0)
    """
    factor = rate_s / sum(loads.values())
    factor = min(factor, _HOTTEST * REPORTED_RATE / max(loads.values()))
    return tuple(loads[p] * factor for p in sorted(loads))


def keep_level(
    loads: Mapping[TopicPartition, float],
    session: Session,
    place: Place,
    *,
    rate_s: float,
    duration_s: float,
    sla_s: float,
    on_progress: Callable[[float], None],
) -> Loop:
    """Runs a group on these loads, and judges what came of it."""
    run = LiveRun(
        strategy=Strategy.OURS,
        workload=Workload.GIVEN,
        rates=scaled(loads, rate_s),
        duration_s=duration_s,
        sla_s=sla_s,
    )
    with _measuring(session, place):
        conducted = conduct(run, place, on_progress=lambda now: on_progress(now.time_s))
    figures = judged(session, place, conducted)
    forget(place, conducted)
    return Loop(rate_s=sum(run.rates), duration_s=duration_s, sla_s=sla_s, figures=figures)


@contextmanager
def _measuring(session: Session, place: Place) -> Iterator[None]:
    """The continuous pipeline in this process, as `trimtab measure --continuous` runs it."""
    server, nobody, stop = place.bootstrap_server, place.properties, threading.Event()
    target = Target(bootstrap_server=server, properties=nobody, own=place.own)
    with (
        connect(server, nobody) as admin,
        open_publisher(server, nobody) as publisher,
        open_monitor(
            server,
            nobody,
            topic=place.own.telemetry,
            interest=Interest(pattern=_TOPICS, own_prefix=place.own.prefix),
            period_s=_SAMPLED_EVERY_S,
        ) as monitor,
        in_background(monitor),
        ThreadPoolExecutor(1, "measuring") as threads,
    ):
        running = threads.submit(
            run_continuously,
            session,
            admin,
            target,
            Asked(pattern=_TOPICS, from_ts=0, to_ts=0),
            beat=Beat(window_s=_MEASURED_OVER_S, min_span_s=_LEAST_S, trigger_s=_TRIGGER_S),
            keys=None,
            results=_results(publisher, place.folder),
            stop=stop,
        )
        try:
            yield
        finally:
            stop.set()
            running.result()


def _results(publisher: Any, folder: Path) -> Results:
    return Results(
        outlet=publisher,
        warehouse=Warehouse(str(folder / "tables")),
        checkpoint=str(folder / "checkpoints"),
    )
