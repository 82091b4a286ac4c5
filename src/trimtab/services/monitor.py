"""Samples log sizes and offsets of a cluster into the telemetry topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    import threading

    from trimtab.kafka.cluster import Cluster
    from trimtab.measure.kafka.monitor import Monitor, MonitorReport, MonitorScope


def sample_cluster(
    cluster: Cluster,
    interest: MonitorScope,
    *,
    period_s: float,
    window_s: float | None = None,
    stop: threading.Event,
    for_s: float | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> MonitorReport:
    """Samples every `period_s` until `stop` is set or `for_s` seconds have passed.

    A warning is logged if samples are so slow that rates over `window_s` are incomplete.
    """
    with open_sampling(
        cluster, interest, period_s=period_s, window_s=window_s, listener=listener
    ) as monitor:
        listener.started("Sampling")
        return monitor.run(stop, for_s=for_s)


@contextmanager
def open_sampling(
    cluster: Cluster,
    interest: MonitorScope,
    *,
    period_s: float,
    window_s: float | None = None,
    listener: ProgressListener = NO_LISTENER,
) -> Iterator[Monitor]:
    """A monitor of the cluster; creates Trimtab's topics, and reports missing named topics."""
    from trimtab.kafka.topics import ensure_topics
    from trimtab.measure.kafka.monitor import open_monitor

    with cluster.admin() as admin:
        ensure_topics(admin, cluster.topics)
        there = {p.topic for p in admin.topics(interest.topics)} if interest.topics else set()
    for name in sorted(interest.topics - there):
        listener.warning(f"topic {name} does not exist yet")
    with open_monitor(cluster, interest=interest, period_s=period_s, window_s=window_s) as monitor:
        yield monitor
