"""Steers producers away from slow brokers: probes brokers and publishes weights."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trimtab.errors import ConfigError
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    import threading

    from trimtab.apply.records.kafka.steering import SteeringReport, SteeringStep
    from trimtab.kafka.cluster import Cluster

_LEAST_INTERVAL_S = 0.05
_LEAST_VALID = 5
"""Weights are repeated three times while valid, with a margin for late updates."""


def steer_producers(
    cluster: Cluster,
    *,
    execute: bool,
    interval_s: float = 0.2,
    valid_s: float = 10.0,
    stop: threading.Event,
    for_s: float | None = None,
    on_step: Callable[[SteeringStep], None] = lambda _: None,
    listener: ProgressListener = NO_LISTENER,
) -> SteeringReport:
    """Steers until `stop` is set or `for_s` seconds have passed; calls `on_step` per update.

    Without `execute` brokers are probed, but no weights are published.
    """
    if interval_s < _LEAST_INTERVAL_S:
        raise ConfigError(
            f"--interval {interval_s * 1000:g}ms is too short.",
            hint=f"Give --interval {_LEAST_INTERVAL_S * 1000:g}ms or more.",
        )
    if valid_s < _LEAST_VALID * interval_s:
        raise ConfigError(
            f"--valid {valid_s:g}s is too short: weights would expire between two updates.",
            hint=f"Give --valid {_LEAST_VALID * interval_s:g}s or more.",
        )
    from trimtab.apply.records.kafka.steering import open_steering

    with open_steering(
        cluster, interval_s=interval_s, valid_s=valid_s, execute=execute, on_step=on_step
    ) as steering:
        listener.started(
            "Steering" if execute else "Dry run: no weights are published without --execute"
        )
        return steering.run(stop, for_s=for_s)
