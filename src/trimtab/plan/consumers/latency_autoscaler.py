"""AutoScaleCG: when a group that must keep a latency is scaled or reassigned.

Promise  As many consumers as LL-FFD needs. During the cooldown the number does not change: an
         overloaded group is reassigned if LL-FFD can do with the present consumers (over all of
         them if possible), else it is not changed until the cooldown ends.
Paper    Ezzeddine et al., section 3.3.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.latency_demand import Demand
from trimtab.plan.consumers.least_loaded_ffd import assigned, ll_ffd, packed, spread
from trimtab.plan.consumers.planner import (
    PackingPlanner,
    PlannerKind,
    ScalingDecision,
    ScalingRequest,
)
from trimtab.plan.consumers.relief import relieves


def decide(
    demand: Demand,
    current: Assignment,
    alive: Collection[int],
    *,
    since_scaling_s: float = math.inf,
    cooldown_s: float = 0.0,
) -> ScalingDecision:
    """AutoScaleCG: as many consumers as LL-FFD needs, and its assignment if one is overloaded.

    `alive` are the consumers that run or are already requested; partitions of other consumers in
    `current` are unread. For `cooldown_s` after a scaling the number does not change: an overloaded
    group is then reassigned if LL-FFD can do with the present consumers (over all of them if
    possible), else it is not changed until the cooldown ends.
    """
    live = frozenset(alive)
    held = Assignment({p: c for p, c in current.only(demand.arrivals).items() if c in live})
    need = packed(demand)
    before, after = len(live), len(need)
    if after != before and since_scaling_s >= cooldown_s:
        return _scaled(demand, held, live, need)
    wrong, sums = _overload_of(demand, held, live)
    numbers: dict[str, float] = {"needed": after, "alive": before, **sums}
    assignment, action = held, Action.NONE
    if wrong is None:
        why = "every consumer keeps up and can read its lag in time"
        if after != before:
            why += f"; {after} would be enough, but the cooldown prevents scaling"
    elif after > before:
        why = f"{wrong}; {after} consumers are needed, but the cooldown prevents scaling"
    else:
        even = spread(demand, before) if after < before else None
        assignment = assigned(need if even is None else even, demand, held, idle=live)
        action, why = Action.REASSIGN, wrong
    return ScalingDecision(
        action=action,
        before=before,
        after=before,
        assignment=assignment,
        reason=why,
        numbers=numbers,
    )


def _scaled(
    demand: Demand,
    held: Assignment,
    live: frozenset[int],
    need: Sequence[Sequence[TopicPartition]],
) -> ScalingDecision:
    """The decision to use as many consumers as are needed."""
    before, after = len(live), len(need)
    assignment = assigned(need, demand, held, idle=live)
    # Without partitions one consumer is kept.
    group = frozenset(assignment.values()) or frozenset({min(live, default=0)})
    return ScalingDecision(
        action=Action.SCALE_UP if after > before else Action.SCALE_DOWN,
        before=before,
        after=after,
        assignment=assignment,
        start=tuple(sorted(group - live)),
        stop=tuple(sorted(live - group)),
        reason=f"{after} consumers are needed instead of {before}",
        numbers={"needed": after, "alive": before},
    )


def _overload_of(
    demand: Demand, held: Assignment, live: frozenset[int]
) -> tuple[str | None, dict[str, float]]:
    """Why the group is overloaded, with uncapped lag, and the worst sums; None if it is not."""
    rates, lags = held.loads(demand.arrivals), held.loads({p: demand.lag(p) for p in held})
    unread = len(demand.arrivals) - len(held)
    sums = {
        "worst_rate": max(rates.values(), default=0),
        "worst_lag": max(lags.values(), default=0),
        "mu": demand.mu,
        "most_lag": demand.most_lag,
        "unread": unread,
    }
    for consumer in sorted(live):
        rate, lag = rates.get(consumer, 0), lags.get(consumer, 0)
        if lag > demand.most_lag:
            return f"consumer {consumer} has lag {lag:g}, above {demand.most_lag:g}", sums
        if rate > demand.mu:
            return f"consumer {consumer} receives {rate:g}/s, above {demand.mu:g}/s", sums
    return (f"{unread} partition(s) have no consumer" if unread else None), sums


class LatencyAutoscaler:
    """AutoScaleCG as an `Autoscaler`."""

    def decide(self, request: ScalingRequest, /) -> ScalingDecision:
        """As many consumers as LL-FFD needs."""
        return decide(
            _demand(request),
            request.current,
            request.alive,
            since_scaling_s=request.since_scaling_s,
            cooldown_s=request.cooldown_s,
        )

    def relieves(self, request: ScalingRequest, after: Assignment, /) -> bool:
        """Whether a consumer with too high a rate or lag gets less of it."""
        demand = _demand(request)
        lags = {p: demand.lag(p) for p in after}
        return relieves(request.current, after, demand.arrivals, request.limits) or relieves(
            request.current, after, lags, GroupLimits(capacity=demand.most_lag)
        )


def _demand(request: ScalingRequest) -> Demand:
    return Demand(
        arrivals=request.loads,
        lags=request.lags,
        mu=request.limits.capacity,
        sla_s=request.sla_s,
    )


LATENCY: tuple[PackingPlanner, ...] = (
    PackingPlanner(
        name="ll-ffd",
        rule=ll_ffd,
        kind=PlannerKind.LATENCY,
        uses=frozenset({"lags", "sla_s"}),
        autoscaler=LatencyAutoscaler(),
    ),
)
