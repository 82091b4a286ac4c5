"""Cells of the latency experiments: the figures of one controller on one workload.

Promise  Pure: equal parameters give equal figures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits, Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.baselines import KeptPartitions
from trimtab.plan.consumers.planner import PackingContext
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.controllers import autoscaler, fixed, packing, scheduled
from trimtab.simulate.fluid import (
    FluidController,
    FluidOrder,
    FluidOutcome,
    FluidView,
    FluidWorld,
    fluid,
    unchanged,
)
from trimtab.workload.rate_streams import RateSchedule, Segment, ezzeddine_workload_1

Parameters = Mapping[str, Any]

WORKLOAD_1 = "workload 1"
CURVE = "curve"
SERVICE_RATE, SLA_S = 100.0, 5.0
SHARES = (0.27, 0.27, 0.46 / 3, 0.46 / 3, 0.46 / 3)
"""As in the paper's second experiment: two partitions with 27 % each, the rest on three others."""

AUTOSCALER, FIXED, LAG_BASED = "ll-ffd", "fixed", "lag-based"
STICKY = {
    "kafka-sticky, keeps lowest": KeptPartitions.LOWEST,
    "kafka-sticky, keeps highest": KeptPartitions.HIGHEST,
}
KEDA = {"keda-lag 10": 10, "keda-lag 100": 100}
HPA_PERIOD_S, HPA_STABILISES_S = 15.0, 300.0
BY_RATE = ("mwf", "bfd", "trim")
_KNOTS_S = 5.0
_EDGES_S = tuple(0.1 * 10 ** (k / 10) for k in range(41))


def scaled(parameters: Parameters) -> dict[str, Any]:
    """Runs a workload and returns SLA share, cost, lag, the scalings, and curves to plot."""
    schedule = schedule_of(parameters["workload"], parameters["seed"])
    world = FluidWorld(
        service_rate=SERVICE_RATE, decision_interval_s=parameters["interval_s"], step_s=0.1
    )
    controller, start = _controller(parameters, schedule, world)
    return _figures(fluid(schedule, controller, world=world, start=start))


def schedule_of(workload: str, seed: int) -> RateSchedule:
    """A workload by name; the curve is different for every seed."""
    return ezzeddine_workload_1() if workload == WORKLOAD_1 else skewed_curve(seed)


def skewed_curve(seed: int, *, duration_s: float = 600.0) -> RateSchedule:
    """Two smooth days of five minutes each, on five partitions with the paper's skew.

    The total is linear between points 5 s apart on `190 + 120 sin` of a day, plus three faster
    waves with seeded phases and amplitudes of up to 15. It stays between 40 and 345: a partition
    with 27 % of it never exceeds the rate of a consumer.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(0.0, duration_s + _KNOTS_S / 2, _KNOTS_S) / duration_s
    total = 190 + 120 * np.sin(2 * np.pi * 2 * t - np.pi / 2)
    for wave in (3, 5, 9):
        height, phase = rng.uniform(0, 15), rng.uniform(0, 2 * np.pi)
        total += height * np.sin(2 * np.pi * wave * t + phase)
    total = np.clip(total, 40, 345)
    return RateSchedule(duration_s, tuple(_lines(share * total, _KNOTS_S) for share in SHARES))


def _lines(rates: Any, every_s: float) -> tuple[Segment, ...]:
    points = [float(rate) for rate in rates]
    return tuple(
        Segment(every_s * k, first, last) for k, (first, last) in enumerate(pairwise(points))
    )


def _controller(
    parameters: Parameters, schedule: RateSchedule, world: FluidWorld
) -> tuple[FluidController, FluidOrder | None]:
    name, reported = parameters["controller"], parameters["reported_rate"]
    cooldown_s = parameters["cooldown_s"]
    ours = autoscaler(service_rate=reported, sla_s=SLA_S, cooldown_s=cooldown_s)
    planners = PLANNERS[Layer.CONSUMERS]
    if name == AUTOSCALER:
        return ours, None
    if name.startswith(FIXED):
        partitions = [TopicPartition("workload", n) for n in range(len(schedule.partitions))]
        return unchanged, fixed(partitions, int(name.removeprefix(FIXED)))
    if name in STICKY or name == LAG_BASED:
        # The number of replicas that ours has at the same times, with another assignment.
        replicas = fluid(schedule, ours, world=world).replica_schedule
        if name == LAG_BASED:
            return _by_lag(replicas), None
        sticky = planners["kafka-sticky"].with_options(sticky_keeps=STICKY[name])
        return scheduled(sticky, replicas), None
    if name in KEDA:
        return _by_keda(KEDA[name]), None
    limits = GroupLimits(capacity=reported, unit=Unit.RECORDS_S)
    return packing(planners[name], limits=limits, cooldown_s=cooldown_s), None


def _by_lag(schedule: Sequence[tuple[float, int]]) -> FluidController:
    """Scales at given times, and assigns by the current lags each time."""
    planner = PLANNERS[Layer.CONSUMERS]["lag-based"]
    limits = GroupLimits(capacity=1.0)  # not used by these planners

    def control(seen: FluidView, /) -> FluidOrder | None:
        members = next((n for t_s, n in reversed(schedule) if t_s <= seen.t_s), None)
        if members is None or members == len(seen.consumers):
            return None
        lags = {p: round(lag) for p, lag in seen.lags.items()}
        current = PackingContext(members=members, lags=lags)
        return FluidOrder.of(planner(seen.rates, seen.assignment, limits, current), members)

    return control


def _by_keda(threshold: int) -> FluidController:
    """KEDA's rule with the behaviour of the Kubernetes autoscaler that it drives.

    It checks every 15 s, and never has fewer replicas than requested in the last five minutes.
    """
    keda = PLANNERS[Layer.CONSUMERS]["keda-lag"].with_options(lag_threshold=threshold)
    sticky = PLANNERS[Layer.CONSUMERS]["kafka-sticky"]
    limits = GroupLimits(capacity=1.0)  # not used by these planners
    asked: list[tuple[float, int]] = []

    def control(seen: FluidView, /) -> FluidOrder | None:
        if seen.t_s % HPA_PERIOD_S:
            return None
        lags = {p: round(lag) for p, lag in seen.lags.items()}
        rule = keda(seen.rates, seen.assignment, limits, PackingContext(lags=lags))
        asked.append((seen.t_s, len(rule.consumers)))
        members = max(n for t_s, n in asked if t_s > seen.t_s - HPA_STABILISES_S)
        if members == len(seen.consumers):
            return None
        current = PackingContext(members=members)
        assignment = sticky(seen.rates, seen.assignment, limits, current)
        return FluidOrder.of(assignment, members)

    return control


def _figures(outcome: FluidOutcome) -> dict[str, Any]:
    delays = outcome.delays
    second = round(1 / delays.step_s)
    return {
        "sla_share": _tidy(delays.share_within(SLA_S)),
        "replica_minutes": _tidy(outcome.replica_minutes),
        "max_lag": _tidy(outcome.max_lag),
        "max_s": _tidy(delays.maximum_s),
        **{f"p{p}_s": _percentile(delays.percentile_s(p)) for p in (25, 50, 75, 90, 99)},
        "moves": outcome.moves,
        "changes": [
            [c.t_s, str(c.action), c.replicas_before, c.replicas, c.moves] for c in outcome.changes
        ],
        "within": [_tidy(delays.share_within(edge)) for edge in _EDGES_S],
        "edges_s": [_tidy(edge) for edge in _EDGES_S],
        "replicas": outcome.replicas[second - 1 :: second].tolist(),
        "lag": [round(lag) for lag in outcome.lag[second - 1 :: second].tolist()],
    }


def _percentile(value: float) -> float | None:
    return None if math.isnan(value) else _tidy(value)


def _tidy(value: float) -> float:
    return float(f"{value:.6g}")
