"""Groups, rates and goals for tests of the policy."""

from __future__ import annotations

from dataclasses import replace

from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView, PlanHold
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS

P = [TopicPartition("orders", n) for n in range(4)]
NOW = 1_000_000_000
INF = float("inf")
CONSUMERS = PLANNERS[Layer.CONSUMERS]
LATENCY = DecisionGoals(
    group="g", planner=CONSUMERS["ll-ffd"], unit=Unit.RECORDS_S, capacity=100.0, sla_s=5.0
)
BYTES = DecisionGoals(group="g", planner=CONSUMERS["mwf"], unit=Unit.BYTES_S, capacity=100.0)
WITHIN_TWO = [
    replace(LATENCY, most=2),
    replace(BYTES, most=2),
    replace(BYTES, planner=CONSUMERS["trim"], most=2),
]
HELD = PlanHold(plan="7f3a9c01d2e4", left_s=120.0)


def rates(
    loads: list[float],
    *,
    ts: int = NOW,
    lags: list[int | None] | None = None,
    ends: list[int] | None = None,
    complete: bool = True,
    stale: frozenset[int] = frozenset(),
) -> TopicRates:
    return TopicRates(
        topic="orders",
        ts=ts,
        partitions={
            n: PartitionRate(
                bytes_s=load,
                records_s=load,
                end_offset=ends[n] if ends else None,
                lag={"g": lags[n] if lags else 0},
                complete=complete,
                stale=n in stale,
            )
            for n, load in enumerate(loads)
        },
    )


def measured(*records: TopicRates) -> NewestRates:
    known = NewestRates()
    for record in records:
        known = known.updated(record)
    return known


def seen(owners: dict[int, int], *, consumers: set[int] | None = None, **more: float) -> GroupView:
    assignment = Assignment({P[n]: c for n, c in owners.items()})
    partitions = frozenset(P)
    view = GroupView(
        now=100.0,
        quiet_s=0.0,
        since_scaling_s=INF,
        since_decision_s=INF,
        assignment=assignment,
        consumers=frozenset(assignment.consumers if consumers is None else consumers),
        partitions=partitions,
        orphans=partitions - assignment.keys(),
        max_bytes_s={},
        max_records_s={},
    )
    return replace(view, **more)  # type: ignore[arg-type]


def decided(
    view: GroupView, known: NewestRates, aim: DecisionGoals, *, ts: int = NOW
) -> GroupVerdict:
    found = verdict(view, known, aim, ts=ts)
    assert found is not None
    return found


ALL_ON_0 = {0: 0, 1: 0, 2: 0, 3: 0}
