"""Controllers of the fluid simulation: planners, autoscalers, schedules, or none."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.latency_autoscaler import decide
from trimtab.plan.consumers.latency_demand import Demand
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PackingPlanner
from trimtab.simulate.consumers import kafka_default
from trimtab.simulate.fluid import FluidController, FluidOrder, FluidView


def fixed(partitions: Collection[TopicPartition], consumers: int) -> FluidOrder:
    """A fixed number of consumers, with the partitions assigned in turn; some may have none."""
    return FluidOrder.of(kafka_default(partitions, consumers), consumers)


def autoscaler(*, service_rate: float, sla_s: float, cooldown_s: float = 0.0) -> FluidController:
    """Ezzeddine's AutoScaleCG, with the service rate that consumers report."""

    def control(seen: FluidView, /) -> FluidOrder | None:
        demand = Demand(arrivals=seen.rates, lags=seen.lags, mu=service_rate, sla_s=sla_s)
        decision = decide(
            demand,
            seen.assignment,
            seen.consumers,
            since_scaling_s=seen.since_scaling_s,
            cooldown_s=cooldown_s,
        )
        living = seen.consumers.union(decision.start).difference(decision.stop)
        return FluidOrder(decision.assignment, living)

    return control


def packing(
    planner: PackingPlanner,
    *,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    cooldown_s: float = 0.0,
) -> FluidController:
    """A planner that is called at every decision, with the present lags.

    Within `cooldown_s` of a scaling it may move partitions, but not change the number of consumers:
    a plan that would is ignored.
    """

    def control(seen: FluidView, /) -> FluidOrder | None:
        lags = {p: round(lag) for p, lag in seen.lags.items()}
        told = replace(context, iteration=seen.decision, lags=lags)
        order = FluidOrder.using(planner(seen.rates, seen.assignment, limits, told))
        scales = len(order.consumers) != len(seen.consumers)
        return None if scales and seen.since_scaling_s < cooldown_s else order

    return control


def scheduled(
    planner: PackingPlanner,
    schedule: Sequence[tuple[float, int]],
    context: PackingContext = NO_CONTEXT,
) -> FluidController:
    """Scales the group at given times to given numbers; `planner` assigns the partitions.

    With `kafka-sticky` this is an ideal autoscaler that leaves the assignment to Kafka.
    """
    due = sorted(schedule)
    limits = GroupLimits(capacity=1.0)  # the planner needs no loads

    def control(seen: FluidView, /) -> FluidOrder | None:
        members = next((n for t_s, n in reversed(due) if t_s <= seen.t_s), None)
        if members is None or members == len(seen.consumers):
            return None
        told = replace(context, members=members)
        assignment = planner(seen.rates, seen.assignment, limits, told)
        return FluidOrder.of(assignment, members)

    return control
