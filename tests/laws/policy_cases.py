"""Groups, rates and goals for the laws of the controller's judgement."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from trimtab.apply.consumers.controller_state import (
    GroupView,
)
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.plan.consumers.planner import PlannerKind
from trimtab.plan.registry import PLANNERS

CAPACITY, SLA_S = 100, 5.0
CONSUMERS = PLANNERS[Layer.CONSUMERS]
ALL = list(CONSUMERS)
QUICK = [name for name in ALL if name != "exact"]  # that one asks a solver
LOADED = [name for name in ALL if CONSUMERS[name].kind is not PlannerKind.DEALS]
DEALING = [name for name in ALL if "members" in CONSUMERS[name].uses]
NOW = 1_000_000_000
P = [TopicPartition("orders", n) for n in range(12)]


def aim_of(planner: str, options: Any = None, **more: Any) -> DecisionGoals:
    latency = CONSUMERS[planner].kind is PlannerKind.LATENCY
    aim = DecisionGoals(
        group="g",
        planner=CONSUMERS[planner].with_options(**(options or {})),
        unit=Unit.RECORDS_S if latency else Unit.BYTES_S,
        capacity=float(CAPACITY),
        sla_s=SLA_S if latency else None,
    )
    return replace(aim, **more)


def measured(loads: list[float], ts: int = NOW, lags: Sequence[int] = ()) -> NewestRates:
    rates = {
        n: PartitionRate(
            bytes_s=load,
            records_s=load,
            end_offset=None,
            lag={"g": lags[n] if lags else 0},
            complete=True,
            stale=False,
        )
        for n, load in enumerate(loads)
    }
    return NewestRates().updated(TopicRates(topic="orders", ts=ts, partitions=rates))


def seen(owners: list[int | None], *, idle: int = 0, **more: object) -> GroupView:
    assignment = Assignment({P[n]: c for n, c in enumerate(owners) if c is not None})
    partitions = frozenset(P[: len(owners)])
    spare = [c for c in range(99) if c not in assignment.consumers][:idle]
    view = GroupView(
        now=0.0,
        quiet_s=0.0,
        since_scaling_s=math.inf,
        since_decision_s=math.inf,
        assignment=assignment,
        consumers=frozenset((*assignment.consumers, *spare)),
        partitions=partitions,
        orphans=partitions - assignment.keys(),
        max_bytes_s={},
        max_records_s={},
        spares=idle,
    )
    return replace(view, **more)  # type: ignore[arg-type]


def helpable(assignment: Assignment, loads: list[float]) -> set[int]:
    """Consumers above their capacity with two or more partitions with load."""
    held: dict[int, list[float]] = {}
    for p, c in assignment.items():
        held.setdefault(c, []).append(loads[p.partition])
    return {
        c
        for c, mine in held.items()
        if sum(mine) > CAPACITY and sum(1 for load in mine if load > 0) > 1
    }
