"""A packing planner that is to hold an SLA: backlogs count as load, and what fits is left alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates, urgent
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, PartitionRate, TopicRates
from trimtab.model.load import Unit
from trimtab.model.plan import Layer
from trimtab.plan.registry import planner_of

P = [TopicPartition("orders", n) for n in range(4)]
NOW = 1_000_000_000
INF = float("inf")
AIM = DecisionGoals(
    group="g",
    planner=planner_of(Layer.CONSUMERS, "trim"),
    unit=Unit.RECORDS_S,
    capacity=100.0,
    sla_s=5.0,
)


def measured(rates: list[float], lags: list[int | None]) -> NewestRates:
    partitions = {
        n: PartitionRate(
            bytes_s=1.0, records_s=r, end_offset=None, lag={"g": lag}, complete=True, stale=False
        )
        for n, (r, lag) in enumerate(zip(rates, lags, strict=True))
    }
    return NewestRates().updated(TopicRates(topic="orders", ts=NOW, partitions=partitions))


def seen(*owners: int, quiet_s: float = 0.0) -> GroupView:
    assignment = Assignment(dict(zip(P, owners, strict=True)))
    return GroupView(
        now=100.0,
        quiet_s=quiet_s,
        since_scaling_s=INF,
        since_decision_s=INF,
        assignment=assignment,
        consumers=frozenset(assignment.consumers),
        partitions=frozenset(P),
        orphans=frozenset(),
        max_bytes_s={},
        max_records_s={},
    )


def decided(view: GroupView, known: NewestRates, aim: DecisionGoals = AIM) -> GroupVerdict:
    found = verdict(view, known, aim, ts=NOW)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("records_s", "lag", "load"),
    [(0.0, 0, 0.0), (40.0, 60, 40.0), (40.0, 110, 60.0), (0.0, 250, 100.0)],
)
def test_a_backlog_counts_as_what_clears_it_within_half_the_sla(records_s, lag, load):
    assert urgent(records_s, lag, sla_s=5.0) == pytest.approx(load)


def test_a_second_of_arrivals_is_no_backlog_however_short_the_sla():
    assert urgent(40.0, 40, sla_s=1.0) == 40.0
    assert urgent(40.0, 50, sla_s=1.0) == 60.0


def test_a_group_that_keeps_up_with_arrivals_but_not_with_its_backlog_is_scaled_up():
    behind = measured([20, 20, 20, 20], [100, 100, 100, 100])

    found = decided(seen(0, 0, 0, 0), behind)

    assert found.decision.action is Action.SCALE_UP
    assert "carries 80 records/s and a backlog, together 192, above 100" in found.decision.reason


def test_what_is_under_way_in_a_healthy_group_is_no_reason_to_do_anything():
    assert verdict(seen(0, 0, 0, 0), measured([20] * 4, [20] * 4), AIM, ts=NOW) is None


def test_consumers_are_not_filled_to_the_brim_so_that_the_next_record_moves_nothing():
    full = measured([49, 50, 49, 50], [0] * 4)

    found = decided(seen(0, 0, 1, 1, quiet_s=30.0), full)
    over = decided(seen(0, 0, 0, 1), full)

    assert found.decision.action is Action.NONE  # 99 of 100 is left alone
    assert over.decision.after == 4  # but nobody is given more than 97


def test_fewer_consumers_are_tried_only_after_a_quiet_time():
    idle = measured([10] * 4, [0] * 4)

    assert verdict(seen(0, 0, 1, 1, quiet_s=5.0), idle, AIM, ts=NOW) is None
    assert decided(seen(0, 0, 1, 1, quiet_s=10.0), idle).decision.action is Action.SCALE_DOWN


def test_an_unknown_lag_is_refused_for_it_may_be_any():
    found = decided(seen(0, 0, 0, 1, quiet_s=30.0), measured([60] * 4, [None, 0, 0, 0]))

    assert found.decision.action is Action.REFUSE
    assert "the lag of orders-0 is unknown" in found.decision.reason


@pytest.mark.parametrize("aim", [replace(AIM, sla_s=None), replace(AIM, unit=Unit.BYTES_S)])
def test_without_an_sla_or_by_bytes_a_backlog_is_no_load(aim):
    behind = measured([20, 20, 20, 20], [900, 900, 900, 900])

    assert verdict(seen(0, 0, 0, 0), behind, aim, ts=NOW) is None


@pytest.mark.parametrize(
    ("lags", "until"),
    [
        ([2000, 0, 0, 0], "until its backlog is read"),
        ([2000, 2000, 0, 0], "until their backlogs are read"),
    ],
)
def test_a_partition_too_big_for_its_backlog_alone_is_named_as_such(lags, until):
    found = decided(seen(0, 1, 1, 1, quiet_s=60.0), measured([60, 20, 20, 20], lags), AIM)

    assert "orders-0 alone needs " in found.decision.reason
    assert found.decision.reason.endswith(until)
    assert "split" not in found.decision.reason
