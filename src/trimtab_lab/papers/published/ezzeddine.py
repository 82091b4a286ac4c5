"""Ezzeddine et al.: the paper's figures, those of a fluid model, and our bars.

Source: "Cost-Efficient and Latency-Aware Event Consuming in Workload-Skewed Distributed Event
Queues", sections 4.1 and 4.2. The paper's cluster is not available, so its system was also modelled
as a fluid (packing.md, 9.2): names ending in `_MODEL` are results of another implementation of that
model, with which ours is compared; names ending in `_BAR` are limits that we set. The rate curve of
section 4.2 is published only as a picture: its figures are for information.
"""

from __future__ import annotations

from collections.abc import Mapping

SERVICE_RATE = 100.0
REPORTED_RATE = 95.0
SLA_S = 5.0

SLA_SHARE = 1.0
SLA_SHARE_BAR = 0.999
REPLICA_MINUTES = 18.0
"""Cannot be reached: even ceil(total rate / 100) replicas at every instant cost 19.2."""

REPLICA_MINUTES_MODEL: Mapping[float, float] = {REPORTED_RATE: 21.2, SERVICE_RATE: 21.0}
"""By the rate that consumers report."""

REPLICA_MINUTES_TOLERANCE = 0.6
MAX_LAG_BAR = 150.0
"""The model's maximum is 90 to 150; the paper says "few tens"."""

ACTIONS_MODEL: tuple[tuple[float, str, int], ...] = (
    (131.0, "scale_up", 2),
    (246.0, "reassign", 2),
    (261.0, "scale_up", 3),
    (366.0, "reassign", 3),
    (381.0, "scale_up", 4),
    (481.0, "scale_down", 1),
)
"""Time, action and number of replicas in the fluid model; the paper only has a picture."""

ACTION_TOLERANCE_S = 3.0

STICKY_SLA_SHARE = 0.44
STICKY_SLA_SHARE_MODEL: Mapping[str, float] = {"lowest": 0.54, "highest": 0.68}
"""By which of its partitions a member keeps; the paper does not state it."""

STICKY_SLA_SHARE_TOLERANCE = 0.02
STICKY_MAX_LAG = 6000.0
STICKY_MAX_LAG_MODEL: Mapping[str, float] = {"lowest": 8300.0, "highest": 4400.0}
STICKY_MAX_LAG_TOLERANCE = 0.02
"""As a fraction: the model's figures are given to two digits."""

STICKY_LAG_TIMES_BAR = 20.0
"""At least this many times the largest backlog of the load-aware run."""

BLOCKED_P90_S = 1.0
"""Section 4.1: in all experiments, the 90th percentile of the time in which a reassigned partition
was not read "was less than 1 second"."""

SECOND_REPLICA_MINUTES = 26.1
SECOND_REMAINING = 0.522
"""26.1 of 50; the paper gives this as the reduction, which is in fact 47.8 %."""

SECOND_STICKY_SLA_SHARE = 0.77
SECOND_30_S_INTERVAL_SLA_SHARE = 0.86
