"""Who scales the group: each controller on what it sees."""

from __future__ import annotations

import math

import pytest

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.model.plan import Layer
from trimtab.plan.consumers.baselines import KeptPartitions
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    NO_OPTIONS,
    PackingContext,
    PackingPlanner,
)
from trimtab.plan.registry import PLANNERS
from trimtab.simulate.controllers import autoscaler, fixed, packing, scheduled
from trimtab.simulate.fluid import FluidOrder, FluidView

P = [TopicPartition("t", n) for n in range(5)]
CONSUMERS = PLANNERS[Layer.CONSUMERS]
ON_ONE = Assignment(dict.fromkeys(P, 0))


def sight(rates, *, lags=(), assignment=ON_ONE, t_s=1.0, since=math.inf, alive=None, decision=0):
    waiting = dict.fromkeys(P, 0.0) | dict(zip(P, lags, strict=False))
    return FluidView(
        t_s=t_s,
        decision=decision,
        rates=dict(zip(P, rates, strict=True)),
        lags=waiting,
        assignment=assignment,
        consumers=frozenset(assignment.consumers if alive is None else alive),
        since_scaling_s=since,
    )


def test_the_autoscaler_leaves_a_group_that_keeps_up_as_it_is():
    order = autoscaler(service_rate=95, sla_s=5)(sight([15] * 5))
    assert order == FluidOrder.using(ON_ONE)


def test_the_autoscaler_scales_up_for_rates_and_for_lags():
    scaler = autoscaler(service_rate=95, sla_s=5)
    for_rates, for_lags = scaler(sight([30] * 5)), scaler(sight([1] * 5, lags=[400, 400]))
    assert for_rates is not None
    assert for_lags is not None
    assert (len(for_rates.consumers), len(for_lags.consumers)) == (2, 2)


def test_the_autoscaler_stops_what_nobody_needs():
    spread = Assignment(dict(zip(P, (0, 0, 0, 0, 3), strict=True)))
    order = autoscaler(service_rate=95, sla_s=5)(sight([15] * 5, assignment=spread))
    assert order is not None
    assert order.consumers == {0}


def test_within_the_cooldown_the_number_of_consumers_stays():
    scaler = autoscaler(service_rate=95, sla_s=5, cooldown_s=30)
    resting, rested = scaler(sight([30] * 5, since=29)), scaler(sight([30] * 5, since=30))
    assert resting is not None
    assert rested is not None
    assert (len(resting.consumers), len(rested.consumers)) == (1, 2)


def test_any_planner_may_decide_and_hears_the_lags_and_which_decision_it_is():
    told: list[PackingContext] = []

    def rule(loads, current, limits, context=NO_CONTEXT, _options=NO_OPTIONS, /):
        told.append(context)
        return current

    listening = PackingPlanner(name="listening", rule=rule)
    control = packing(listening, limits=GroupLimits(capacity=95), context=PackingContext(seed=3))
    control(sight([10] * 5, lags=[2.6]))
    control(sight([29] * 5, decision=1))
    assert [(o.seed, o.iteration, o.lags[P[0]]) for o in told] == [(3, 0, 3), (3, 1, 0)]


def test_a_planner_may_not_change_the_number_of_consumers_within_the_cooldown():
    control = packing(CONSUMERS["mwf"], limits=GroupLimits(capacity=95), cooldown_s=30)
    assert control(sight([30] * 5, since=10)) is None
    assert control(sight([30] * 5, since=31)) is not None


@pytest.mark.parametrize(
    ("keeps", "kept"),
    [(KeptPartitions.LOWEST, {P[0], P[1], P[2]}), (KeptPartitions.HIGHEST, {P[2], P[3], P[4]})],
)
def test_a_scheduled_group_gets_its_number_and_the_dealing_of_kafka(keeps, kept):
    control = scheduled(
        CONSUMERS["kafka-sticky"].with_options(sticky_keeps=keeps), [(10.0, 2), (20.0, 7)]
    )
    assert control(sight([1] * 5, t_s=9)) is None
    at_10 = control(sight([1] * 5, t_s=10))
    assert at_10 is not None
    assert {p for p in P if at_10.assignment[p] == 0} == kept
    two = Assignment(at_10.assignment)
    assert control(sight([1] * 5, t_s=11, assignment=two)) is None
    at_20 = control(sight([1] * 5, t_s=25, assignment=two))
    assert at_20 is not None
    assert (len(at_20.consumers), len(at_20.assignment.consumers)) == (7, 5)


def test_a_fixed_group_may_be_larger_than_its_partitions():
    group = fixed(P[:2], 3)
    assert group.assignment == Assignment({P[0]: 0, P[1]: 1})
    assert group.consumers == {0, 1, 2}
