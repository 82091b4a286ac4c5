"""The control loop in the demo: a controller runs a group on the skew that was just measured.

Spark measures continuously, the controller decides, each consumer is a process, and the result is
evaluated from the consumers' receipts. Rates are scaled down to what one small machine can handle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trimtab.model.cluster import TopicPartition
from trimtab.spark.session import Session
from trimtab_lab.demo.outcome import Loop
from trimtab_lab.papers.live.kafka.live_run import conduct
from trimtab_lab.papers.live.kafka.live_site import LiveSite, delete_topics
from trimtab_lab.papers.live.plan import REPORTED_RATE, LiveRun, LiveWorkload, Strategy
from trimtab_lab.papers.live.spark.measuring import measured_here
from trimtab_lab.papers.live.spark.run_figures import run_figures

_HOTTEST = 0.8
"""Largest rate of a partition, relative to a consumer's capacity: partitions cannot be split."""


def scaled(loads: Mapping[TopicPartition, float], rate_s: float) -> tuple[float, ...]:
    """Rates with the same skew and a smaller total, ordered by partition.

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
    place: LiveSite,
    *,
    rate_s: float,
    duration_s: float,
    sla_s: float,
    on_progress: Callable[[float], None],
) -> Loop:
    """Runs a group on these loads, and evaluates the result."""
    run = LiveRun(
        strategy=Strategy.OURS,
        workload=LiveWorkload.GIVEN,
        rates=scaled(loads, rate_s),
        duration_s=duration_s,
        sla_s=sla_s,
    )
    with measured_here(session, place):
        conducted = conduct(run, place, on_progress=lambda now: on_progress(now.time_s))
    figures = run_figures(session, place, conducted)
    delete_topics(place, conducted)
    return Loop(rate_s=sum(run.rates), duration_s=duration_s, sla_s=sla_s, figures=figures)
