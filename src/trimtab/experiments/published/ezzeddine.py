"""Ezzeddine et al.: the published figures, and what a fluid model of the same system gives.

Source: "Cost-Efficient and Latency-Aware Event Consuming in Workload-Skewed Distributed Event
Queues", sections 4.1 and 4.2. The paper's cluster cannot be had, so the figures of a fluid model
stand beside its own, with the band in which another implementation of that model is accepted. The
rate curve of section 4.2 exists only as a picture: its figures are for information.
"""

from __future__ import annotations

SERVICE_RATE = 100.0
REPORTED_RATE = 95.0
SLA_S = 5.0

SLA_SHARE = 1.0
SLA_SHARE_AT_LEAST = 0.999
REPLICA_MINUTES = 18.0
"""Cannot be reached: even ceil(total rate / 100) replicas at every instant cost 19.2."""

REPLICA_MINUTES_OF_THE_MODEL = 21.2
REPLICA_MINUTES_BAND = (20.5, 21.8)
MOST_BACKLOG_OF_THE_MODEL = 150.0
"""The paper says "few tens"."""

ACTIONS: tuple[tuple[float, str, int], ...] = (
    (131.0, "scale_up", 2),
    (246.0, "reassign", 2),
    (261.0, "scale_up", 3),
    (366.0, "reassign", 3),
    (381.0, "scale_up", 4),
    (481.0, "scale_down", 1),
)
"""When, what, and to how many replicas, in the fluid model; the paper has a picture."""

ACTION_WITHIN_S = 3.0

STICKY_SLA_SHARE = 0.44
STICKY_SLA_BAND = (0.40, 0.75)
STICKY_MAX_LAG = 6000.0
STICKY_LAG_TIMES = 20.0
"""At least so many times the load-aware run's greatest backlog."""

SECOND_REPLICA_MINUTES = 26.1
SECOND_OVERPROVISIONED_MINUTES = 50.0
SECOND_REDUCTION = 0.478
"""The paper says 52.2 %, which is what remains."""

SECOND_STICKY_SLA_SHARE = 0.77
SECOND_30_S_INTERVAL_SLA_SHARE = 0.86
