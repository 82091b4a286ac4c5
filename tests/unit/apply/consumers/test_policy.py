"""What is decided about a group, and why."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.apply.consumers.policy_cases import (
    ALL_ON_0,
    BYTES,
    CONSUMERS,
    HELD,
    LATENCY,
    NOW,
    WITHIN_TWO,
    P,
    decided,
    measured,
    rates,
    seen,
)
from trimtab.apply.consumers.decision_goals import DecisionGoals
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import Unit


def test_a_group_that_cannot_keep_up_is_scaled_up_with_the_need_as_reason():
    found = decided(seen(ALL_ON_0), measured(rates([60, 60, 60, 60])), LATENCY)

    assert found.decision.action is Action.SCALE_UP
    assert (found.decision.before, found.decision.after) == (1, 4)
    assert "4 consumers are needed" in found.decision.reason
    assert found.target is not None
    assert set(found.target) == set(P)


def test_the_arrival_rate_is_the_growth_of_the_end_offsets_between_two_samples():
    known = measured(
        rates([10, 10, 10, 10], ts=NOW - 2_000_000, ends=[0, 0, 0, 0]),
        rates([10, 10, 10, 10], ends=[180, 0, 0, 0]),
    )

    assert known.arrivals_s(P[0]) == 90.0
    assert known.arrivals_s(P[1]) == 0.0


def test_an_older_record_and_one_of_the_same_sample_do_not_disturb_the_arrival_rate():
    first = rates([1, 1, 1, 1], ts=NOW - 2_000_000, ends=[0, 0, 0, 0])
    second = rates([1, 1, 1, 1], ends=[200, 0, 0, 0])

    known = measured(first, second, second, first)

    assert known.arrivals_s(P[0]) == 100.0


def test_an_end_offset_that_went_back_gives_no_negative_rate():
    known = measured(
        rates([7, 7, 7, 7], ts=NOW - 1_000_000, ends=[500, 0, 0, 0]),
        rates([7, 7, 7, 7], ends=[3, 0, 0, 0]),
    )

    assert known.arrivals_s(P[0]) == 7


def test_a_group_that_keeps_up_is_left_alone_and_the_decision_says_so():
    found = decided(seen(ALL_ON_0), measured(rates([10, 10, 10, 10])), LATENCY)

    assert found.decision.action is Action.NONE
    assert found.target is None


@pytest.mark.parametrize(
    ("known", "why"),
    [
        (NewestRates(), "no rates have been published"),
        (measured(rates([1, 1, 1, 1], ts=NOW - 60_000_000)), "60.0 s old"),
        (measured(rates([1, 1, 1, 1], ts=NOW + 60_000_000)), "60.0 s in the future"),
        (measured(rates([1, 1, 1, 1], complete=False)), "too little is known of orders-0"),
        (measured(rates([1, 1, 1])), "too little is known of orders-3"),
        (
            measured(rates([1] * 4, ts=NOW - 20_000_000), rates([1] * 4, stale=frozenset({2}))),
            "the rate of orders-2 is stale: older than 10 s",
        ),
        (measured(rates([1] * 4, stale=frozenset({2}))), "the rate of orders-2 is stale"),
        (measured(rates([1, 1, 1, 1], lags=[None, 0, 0, 0])), "the lag of orders-0 is unknown"),
    ],
)
def test_thin_or_old_figures_are_refused_with_the_reason(known, why):
    found = decided(seen(ALL_ON_0), known, LATENCY)

    assert found.decision.action is Action.REFUSE
    assert why in found.decision.reason
    assert found.target is None


def test_a_partition_that_missed_a_sample_or_two_is_still_known():
    # orders-2   fresh · stale · stale, within 10 s of now
    known = measured(
        rates([60] * 4, ts=NOW - 2_000_000, ends=[0, 0, 0, 0]),
        rates([60] * 4, ts=NOW - 1_000_000, ends=[60, 60, 0, 60], stale=frozenset({2})),
        rates([60] * 4, ends=[120, 120, 0, 120], stale=frozenset({2})),
    )

    found = decided(seen(ALL_ON_0), known, LATENCY)

    assert found.decision.action is Action.SCALE_UP
    assert known.arrivals_s(P[2]) == 60.0  # as published: its offset is not of now


def test_the_offset_of_a_stale_record_is_no_base_for_an_arrival_rate():
    known = measured(
        rates([60] * 4, ts=NOW - 1_000_000, ends=[0, 0, 0, 0], stale=frozenset({2})),
        rates([60] * 4, ends=[60, 60, 120, 60]),
    )

    assert known.arrivals_s(P[2]) == 60.0


def test_partitions_that_nobody_reads_are_given_out_even_on_old_figures():
    old = measured(rates([10, 10, 10, 10], ts=NOW - 60_000_000))

    found = decided(seen({0: 0, 1: 0}), old, LATENCY)

    assert found.target is not None
    assert set(found.target) == set(P)
    assert "60.0 s old" in found.decision.reason


def test_no_decision_is_made_before_its_time():
    known = measured(rates([60, 60, 60, 60]))

    assert verdict(seen(ALL_ON_0, since_decision_s=0.5), known, LATENCY, ts=NOW) is None


def test_bytes_are_decided_on_overload_of_more_than_one_partition_only():
    lone = seen({0: 0, 1: 1, 2: 1, 3: 1})

    overloaded = verdict(seen(ALL_ON_0), measured(rates([60, 60, 0, 0])), BYTES, ts=NOW)
    helpless = verdict(lone, measured(rates([500, 10, 10, 10])), BYTES, ts=NOW)

    assert overloaded is not None
    assert overloaded.decision.action is Action.SCALE_UP
    assert "consumer 0 carries 120 bytes/s, above 100" in overloaded.decision.reason
    assert overloaded.decision.plan is not None
    assert helpless is None


def test_after_a_quiet_time_fewer_consumers_are_tried():
    spread = seen({0: 0, 1: 1, 2: 2, 3: 3}, quiet_s=30.0)

    found = decided(spread, measured(rates([10, 10, 10, 10])), BYTES)

    assert found.decision.action is Action.SCALE_DOWN
    assert found.decision.after == 1


def test_a_quiet_time_without_anything_to_gain_changes_nothing():
    found = decided(seen(ALL_ON_0, quiet_s=30.0), measured(rates([10, 10, 10, 10])), BYTES)

    assert found.decision.action is Action.NONE
    assert found.target is None


def test_within_the_cooldown_the_number_of_consumers_stays_unless_somebody_died():
    aim = replace(BYTES, cooldown_s=30.0)
    known = measured(rates([60, 60, 0, 0]))

    resting = decided(seen(ALL_ON_0, since_scaling_s=5.0), known, aim)
    bereaved = decided(seen({0: 0, 1: 0}, since_scaling_s=5.0), known, aim)

    assert resting.decision.action is Action.NONE
    assert "cooldown lasts 25.0 s more" in resting.decision.reason
    assert bereaved.decision.action is Action.SCALE_UP


@pytest.mark.parametrize("aim", WITHIN_TWO, ids=lambda aim: aim.planner.name)
class TestAGroupThatMayNotGrow:
    def test_shares_what_is_too_much_for_it(self, aim: DecisionGoals) -> None:
        found = decided(seen(ALL_ON_0), measured(rates([60, 60, 60, 60])), aim)

        assert found.decision.action is Action.SCALE_UP
        assert found.target is not None
        assert sorted(found.target.loads(dict.fromkeys(P, 60.0)).values()) == [120, 120]
        assert "--max-consumers is 2" in found.decision.reason

    def test_reads_what_a_dead_consumer_left(self, aim: DecisionGoals) -> None:
        found = decided(seen({0: 0, 1: 1}), measured(rates([90, 90, 90, 90])), aim)

        assert found.target is not None
        assert found.target.keys() == set(P)
        assert len(found.target.consumers) == 2

    def test_stays_as_it_is_where_moving_gains_little(self, aim: DecisionGoals) -> None:
        found = decided(seen({0: 0, 1: 0, 2: 1, 3: 1}), measured(rates([62, 60, 60, 60])), aim)

        assert found.decision.action is Action.NONE
        assert "--max-consumers is 2" in found.decision.reason

    def test_shrinks_to_what_it_may_be(self, aim: DecisionGoals) -> None:
        spread = seen({0: 0, 1: 1, 2: 2, 3: 3}, quiet_s=30.0)

        found = decided(spread, measured(rates([90, 90, 90, 90])), aim)

        assert found.decision.action is Action.SCALE_DOWN
        assert found.decision.after == 2


@pytest.mark.parametrize("planner", ["ll-ffd", "trim", "mwf", "bfd"])
def test_all_there_may_be_are_used_and_the_next_look_changes_nothing(
    planner: str,
) -> None:
    aim = replace(LATENCY if planner == "ll-ffd" else BYTES, planner=CONSUMERS[planner], most=3)
    known = measured(rates([60, 60, 60, 60]))

    first = decided(seen(ALL_ON_0), known, aim)
    assert first.target is not None
    again = decided(seen({p.partition: c for p, c in first.target.items()}), known, aim)

    assert sorted(first.target.loads(dict.fromkeys(P, 60.0)).values()) == [60, 60, 120]
    assert again.decision.action is Action.NONE


def test_backlogs_are_shared_too_where_there_may_be_no_more():
    aim = replace(LATENCY, most=2)
    known = measured(rates([60, 60, 60, 60], lags=[4000, 4000, 0, 0]))

    found = decided(seen({0: 0, 1: 0, 2: 1, 3: 1}), known, aim)

    assert found.target is not None
    assert found.target[P[0]] != found.target[P[1]]


def test_a_plan_under_a_maximum_speaks_of_the_real_capacity():
    found = decided(seen(ALL_ON_0), measured(rates([60, 60, 60, 60])), replace(BYTES, most=2))

    assert found.plan is not None
    assert found.plan.params["capacity"] == 100
    assert (found.plan.bound, found.plan.after.consumers, found.plan.gap) == (4, 2, 0.0)


def test_also_a_rule_that_only_counts_keeps_to_the_maximum():
    aim = DecisionGoals(
        group="g", planner=CONSUMERS["keda-lag"], unit=Unit.RECORDS_S, capacity=100.0, most=2
    )
    known = measured(rates([10, 10, 10, 10], lags=[900, 900, 900, 900]))

    found = decided(seen({0: 0, 1: 0}), known, aim)

    assert found.target is not None
    assert found.target.keys() == set(P)
    assert len(found.target.consumers) == 2


def test_at_the_maximum_the_cooldown_holds_too():
    aim = replace(BYTES, most=2, cooldown_s=30.0)

    found = decided(seen(ALL_ON_0, since_scaling_s=5.0), measured(rates([60, 60, 60, 60])), aim)

    assert found.decision.action is Action.NONE
    assert "cooldown lasts 25.0 s more" in found.decision.reason


def test_without_a_capacity_one_consumer_works_first_and_then_its_report_counts():
    aim = replace(LATENCY, capacity=None)
    known = measured(rates([60, 60, 60, 60]))

    first = decided(seen({}), known, aim)
    waiting = decided(seen(ALL_ON_0), known, aim)
    reported = decided(replace(seen(ALL_ON_0), max_records_s={0: 144.0}), known, aim)

    assert first.target == Assignment(dict.fromkeys(P, 0))
    assert waiting.decision.action is Action.NONE
    assert "set --capacity" in waiting.decision.reason
    assert reported.decision.after == 2


def test_without_a_capacity_what_has_no_consumer_is_shared_among_those_that_are_there():
    aim = replace(BYTES, capacity=None)

    found = decided(seen({0: 0}, consumers={0, 1, 2}), measured(rates([50, 60, 40, 30])), aim)

    assert found.target is not None
    assert found.target.loads(dict(zip(P, [50, 60, 40, 30], strict=True))) == {
        0: 50,
        1: 60,
        2: 70,
    }


def test_headroom_is_left_free():
    aim = replace(BYTES, headroom=0.5)

    found = decided(seen(ALL_ON_0), measured(rates([20, 20, 20, 0])), aim)

    assert found.decision.action is Action.SCALE_UP


@pytest.mark.parametrize(
    ("capacity", "headroom", "most"),
    [(None, None, 100.0), (None, 0.0, 120.0), (None, 0.5, 60.0), (120.0, None, 120.0)],
)
def test_a_sixth_of_a_measured_capacity_is_left_free_and_a_given_one_is_used_as_it_is(
    capacity, headroom, most
):
    aim = replace(BYTES, capacity=capacity, headroom=headroom)
    view = replace(seen(ALL_ON_0), max_bytes_s={0: 120.0})

    def acts(load: float) -> bool:
        found = verdict(view, measured(rates([load / 2, load / 2, 0, 0])), aim, ts=NOW)
        return found is not None and found.decision.action is Action.SCALE_UP

    assert not acts(most)
    assert acts(most + 2)


def test_a_planner_that_finds_no_plan_is_a_refusal():
    aim = replace(BYTES, planner=CONSUMERS["trim"].with_options(max_moves=0))

    found = decided(seen(ALL_ON_0), measured(rates([60, 60, 60, 60])), aim)

    assert found.decision.action is Action.REFUSE
    assert "moves" in found.decision.reason


def test_without_partitions_there_is_nothing_to_decide():
    empty = replace(seen({}), partitions=frozenset(), orphans=frozenset())

    assert verdict(empty, NewestRates(), BYTES, ts=NOW) is None


def test_subscribed_members_are_named_and_nothing_is_done():
    view = replace(seen({0: 0}), subscribed=("shop at /10.0.0.7", "web at /10.0.0.8"))

    found = decided(view, measured(rates([60, 60, 60, 60])), BYTES)

    assert found.decision.action is Action.REFUSE
    assert found.target is None
    assert "shop at /10.0.0.7, web at /10.0.0.8" in found.decision.reason
    assert "--mode group" in found.decision.reason


def test_what_a_dead_consumer_said_last_is_in_the_decision():
    view = replace(seen({0: 0, 1: 0}), lost="consumer 1 ended: error: no space left")

    found = decided(view, measured(rates([10, 10, 10, 10])), BYTES)

    assert found.decision.reason.startswith(
        "no consumer reads orders-2, orders-3: consumer 1 ended: error: no space left"
    )


@pytest.mark.parametrize(
    "planner", ["kafka-range", "kafka-round-robin", "kafka-sticky", "lag-based"]
)
def test_no_busy_consumer_is_made_a_spare(planner):
    aim = replace(BYTES, planner=CONSUMERS[planner])
    view = seen({0: 0, 1: 0, 2: 1, 3: 1}, quiet_s=100.0, spares=1)

    found = decided(view, measured(rates([80, 0, 80, 0])), aim)

    assert found.decision.action is Action.NONE


@pytest.mark.parametrize(
    ("most", "action", "after"),
    [(1, Action.NONE, 1), (2, Action.SCALE_UP, 2), (4, Action.SCALE_UP, 4)],
)
def test_keda_lag_starts_no_more_consumers_than_allowed(most, action, after):
    aim = replace(BYTES, planner=CONSUMERS["keda-lag"], most=most)
    known = measured(rates([10, 10, 10, 10], lags=[30, 30, 30, 30]))

    found = decided(seen(ALL_ON_0, quiet_s=100.0), known, aim)

    assert (found.decision.action, found.decision.after) == (action, after)
    if found.target is not None:
        again = seen({p.partition: c for p, c in found.target.items()}, quiet_s=100.0)
        assert decided(again, known, aim).decision.action is Action.NONE


# ------------------------------------------------------------ before capacities are known


@pytest.mark.parametrize(
    ("there", "most", "spares", "readers"),
    [
        ({0, 1, 2, 3}, 2, 0, (0, 1)),
        ({0, 1, 2, 3}, None, 1, (0, 1, 2)),
        ({5}, None, 1, (5,)),
        (set(), 2, 1, (0,)),
    ],
)
def test_before_capacities_are_known_no_more_are_used_than_may_be(there, most, spares, readers):
    aim = replace(BYTES, capacity=None, most=most)

    found = decided(seen({}, consumers=there, spares=spares), NewestRates(), aim)

    assert found.target is not None
    assert found.target.consumers == readers


def test_before_capacities_are_known_a_spare_takes_over_from_one_that_ended():
    view = seen({0: 0, 1: 0}, consumers={0, 1}, spares=1)
    aim = replace(BYTES, capacity=None)

    new = decided(view, NewestRates(), aim)
    ended = decided(replace(view, lost="consumer 2 ended", ended=1), NewestRates(), aim)

    assert new.target == Assignment(dict.fromkeys(P, 0))
    assert ended.target is not None
    assert ended.target.consumers == (0, 1)


def test_the_topic_that_has_no_rates_is_named():
    other = TopicPartition("returns", 0)
    view = seen({0: 0, 1: 0, 2: 1, 3: 1}, quiet_s=100.0)
    view = replace(view, partitions=view.partitions | {other})

    found = decided(view, measured(rates([10, 10, 10, 10])), BYTES)

    assert found.decision.action is Action.REFUSE
    assert found.decision.reason == "no rates of topic returns have been published yet"


def test_a_plan_that_was_ordered_is_not_undone_for_the_controller_s_own_reasons():
    spread = seen({0: 0, 1: 1, 2: 2, 3: 3}, quiet_s=30.0)
    known = measured(rates([10, 10, 10, 10]))
    assert decided(spread, known, BYTES).target is not None

    held = decided(replace(spread, hold=HELD), known, BYTES)

    assert (held.decision.action, held.target) == (Action.NONE, None)
    assert "plan 7f3a9c01d2e4 is held for 120 s more" in held.decision.reason


def test_an_overload_or_a_partition_without_a_reader_is_seen_to_while_a_plan_is_held():
    overloaded = replace(seen(ALL_ON_0), hold=HELD)
    orphaned = replace(seen({0: 0, 1: 0, 2: 0}), hold=HELD)

    relieved = decided(overloaded, measured(rates([60, 60, 10, 10])), BYTES)
    given_out = decided(orphaned, measured(rates([10, 10, 10, 10])), BYTES)

    assert relieved.decision.action is Action.SCALE_UP
    assert given_out.target is not None
    assert set(given_out.target) == set(P)


def test_a_planner_by_latency_holds_too_unless_somebody_has_too_much():
    spread = replace(seen({0: 0, 1: 1, 2: 2, 3: 3}), hold=HELD)
    crowded = replace(seen(ALL_ON_0), hold=HELD)

    idle = decided(spread, measured(rates([10, 10, 10, 10])), LATENCY)
    busy = decided(crowded, measured(rates([60, 60, 60, 60])), LATENCY)

    assert idle.target is None
    assert busy.decision.action is Action.SCALE_UP
