import math
import random

import pytest

from trimtab.errors import PlanningError
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.latency_autoscaler import LATENCY, decide
from trimtab.plan.consumers.latency_demand import Demand, lower_bound
from trimtab.plan.consumers.least_loaded_ffd import ll_ffd, packed, spread
from trimtab.plan.consumers.planner import PackingContext, PlannerKind

LIMITS = GroupLimits(capacity=100)


def p(number):
    return TopicPartition("t", number)


def demand(rates, lags=(), mu=100, sla_s=5):
    return Demand(
        arrivals={p(n): rate for n, rate in enumerate(rates)},
        lags={p(n): lag for n, lag in enumerate(lags)},
        mu=mu,
        sla_s=sla_s,
    )


def numbers(bins):
    return [[q.partition for q in b] for b in bins]


def on(*owners):
    """The consumer of partition 0, of 1, …; None for one that nobody reads."""
    return Assignment({p(n): c for n, c in enumerate(owners) if c is not None})


def test_each_partition_goes_to_the_least_loaded_bin():
    assert numbers(packed(demand([50, 40, 30, 20]))) == [[0, 3], [1, 2]]


def test_bins_of_equal_rate_are_tried_by_lag_and_then_by_number():
    assert numbers(spread(demand([30, 30, 10], [200, 100, 0]), 2)) == [[0], [1, 2]]
    assert numbers(spread(demand([30, 30, 10], [100, 100, 0]), 2)) == [[0, 2], [1]]


def test_partitions_of_equal_rate_are_taken_by_lag_and_then_by_name():
    assert numbers(packed(demand([60, 60, 60], [0, 7, 7]))) == [[1], [2], [0]]


def test_lag_sends_a_partition_past_the_least_loaded_bin():
    # The bin of partition 1 has the lower rate, but no room for another 200 records.
    assert numbers(packed(demand([60, 40, 30], [100, 400, 200]))) == [[0, 2], [1]]


def test_room_that_is_filled_to_the_last_record_is_room():
    assert numbers(packed(demand([60, 40], [300, 200]))) == [[0, 1]]
    assert len(packed(demand([60, 41], [300, 200]))) == 2
    assert len(packed(demand([60, 40], [300, 201]))) == 2


def test_a_new_bin_spreads_everything_anew():
    # Worst fit that appends bins as it needs them would have left 0 and 1 together.
    assert numbers(packed(demand([50, 45, 40, 30, 30, 10]))) == [[0, 5], [1, 4], [2, 3]]


def test_more_bins_may_fail_where_fewer_do_not():
    """Feasibility is not monotone in n, so no number may be skipped for its neighbours' sake."""
    odd = non_monotone()
    n = len(packed(odd))
    assert spread(odd, n) is not None
    assert spread(odd, n + 1) is None


def non_monotone():
    rng = random.Random(0)
    while True:
        some = demand(
            [rng.randint(1, 100) for _ in range(12)], [rng.randint(0, 500) for _ in range(12)]
        )
        if spread(some, len(packed(some)) + 1) is None:
            return some


def test_zero_partitions_all_join_the_least_loaded_bin():
    assert numbers(packed(demand([70, 60, 0, 0, 0]))) == [[0], [1, 2, 3, 4]]


def test_partitions_without_arrivals_are_spread_by_their_lag():
    assert numbers(packed(demand([0, 0, 0], [300, 200, 300]))) == [[0, 1], [2]]


def test_without_partitions_there_is_one_empty_bin_and_an_empty_assignment():
    assert packed(demand([])) == [[]]
    assert lower_bound(demand([])) == 0
    assert ll_ffd({}, on(3), LIMITS, PackingContext(sla_s=5)) == Assignment()


def test_one_partition_takes_one_consumer_its_own():
    assert ll_ffd({p(0): 5}, on(3), LIMITS, PackingContext(sla_s=5)) == on(3)


def test_what_no_consumer_can_serve_counts_as_a_full_one_and_is_named():
    context = PackingContext(sla_s=5, lags={p(1): 501, p(2): 500})
    plan = ll_ffd({p(0): 101, p(1): 100, p(2): 0, p(3): 0}, Assignment(), LIMITS, context)
    assert plan.notes == {"unsatisfiable": ["t-0"], "late": ["t-1"]}
    assert plan == on(1, 0, 1, 0)


def test_bins_keep_the_names_of_those_who_have_their_partitions():
    context = PackingContext(sla_s=5)
    plan = ll_ffd({p(0): 60, p(1): 50, p(2): 40}, on(7, 3, 3), LIMITS, context)
    assert plan == on(7, 3, 3)


def test_the_lower_bound_is_what_rates_and_lags_add_up_to():
    assert lower_bound(demand([0, 0])) == 1
    assert lower_bound(demand([60, 60, 80])) == 2
    assert lower_bound(demand([60, 60, 81])) == 3
    assert lower_bound(demand([1, 1, 1], [500, 500, 9000])) == 3


def test_the_planner_is_registered_with_what_it_reads():
    (planner,) = LATENCY
    assert (planner.name, planner.kind) == ("ll-ffd", PlannerKind.LATENCY)
    assert planner.reads == {"lags", "sla_s"}


def test_without_an_sla_it_says_where_to_give_one():
    with pytest.raises(PlanningError, match="needs an SLA") as caught:
        ll_ffd({p(0): 1}, Assignment(), LIMITS)
    assert caught.value.hint == 'Give "sla_s" in the loads file, or --sla.'


def test_unequal_consumers_are_refused():
    context = PackingContext(sla_s=5)
    with pytest.raises(PlanningError, match="their own capacity"):
        ll_ffd({p(0): 1}, Assignment(), GroupLimits(capacity=9, capacities={1: 8}), context)
    same = GroupLimits(capacity=9, capacities={1: 9})
    assert ll_ffd({p(0): 1}, Assignment(), same, context) == on(0)


@pytest.mark.parametrize("wrong", [-1, math.nan, math.inf])
def test_unsound_figures_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match="t-1 has load"):
        demand([1, wrong])
    with pytest.raises(ValueError, match="t-1 has lag"):
        demand([1, 1], [0, wrong])
    with pytest.raises(ValueError, match="SLA"):
        demand([1], sla_s=wrong)
    with pytest.raises(ValueError, match="service rate"):
        demand([1], mu=wrong)


# The decision: rates of 60 and 60 need two consumers of 100.
TWO = demand([60, 60])


def test_too_few_consumers_scale_up():
    decision = decide(TWO, on(4, 4), {4})
    assert decision.action is Action.SCALE_UP
    assert (decision.before, decision.after) == (1, 2)
    assert decision.assignment == on(4, 0)
    assert (decision.start, decision.stop) == ((0,), ())


def test_a_consumer_that_is_alive_without_partitions_is_used_before_a_new_one():
    decision = decide(demand([60, 60, 60]), on(4, 4, 4), {4, 9})
    assert decision.assignment == on(4, 9, 0)
    assert decision.start == (0,)


def test_too_many_consumers_scale_down_and_those_stop_whose_going_moves_least():
    decision = decide(demand([40, 30, 10]), on(1, 2, 3), {1, 2, 3})
    assert decision.action is Action.SCALE_DOWN
    assert (decision.before, decision.after) == (3, 1)
    assert decision.assignment == on(1, 1, 1)
    assert (decision.start, decision.stop) == ((), (2, 3))


def test_nothing_is_done_while_every_consumer_keeps_up():
    decision = decide(TWO, on(1, 0), {0, 1})
    assert decision.action is Action.NONE
    assert decision.assignment == on(1, 0)
    assert decision.numbers["worst_rate"] == 60


def test_an_overloaded_consumer_is_helped_without_scaling():
    decision = decide(TWO, on(0, 0), {0, 1})
    assert decision.action is Action.REASSIGN
    assert decision.assignment == on(0, 1)
    assert decision.reason == "consumer 0 receives 120/s, above 100/s"


def test_lag_is_not_capped_when_the_present_assignment_is_judged():
    # Capped, the lag of 0 would be 500 and just allowed.
    late = demand([60, 60], [501, 0])
    decision = decide(late, on(0, 1), {0, 1})
    assert decision.action is Action.REASSIGN
    assert decision.reason == "consumer 0 has lag 501, above 500"


def test_partitions_that_nobody_reads_are_assigned():
    decision = decide(TWO, on(0, None), {0, 1})
    assert decision.action is Action.REASSIGN
    assert decision.assignment == on(0, 1)
    orphaned = decide(TWO, on(0, 5), {0, 1})
    assert orphaned.assignment == on(0, 1)
    assert orphaned.numbers["unread"] == 1


def test_the_number_of_consumers_rests_during_the_cooldown():
    resting = {"since_scaling_s": 29.9, "cooldown_s": 30}
    up = decide(TWO, on(0, 0), {0}, **resting)
    assert (up.action, up.after, up.assignment) == (Action.NONE, 1, on(0, 0))
    assert "2 consumers are needed" in up.reason
    down = decide(demand([10, 10]), on(0, 1), {0, 1}, **resting)
    assert (down.action, down.after, down.assignment) == (Action.NONE, 2, on(0, 1))
    assert "1 would be enough" in down.reason


def test_the_cooldown_is_over_when_its_time_has_passed():
    assert decide(TWO, on(0, 0), {0}, since_scaling_s=30, cooldown_s=30).action is Action.SCALE_UP


def test_a_reassignment_does_not_wait_for_the_cooldown():
    decision = decide(TWO, on(0, 0), {0, 1}, since_scaling_s=0, cooldown_s=30)
    assert decision.action is Action.REASSIGN
    assert decision.assignment == on(0, 1)


def test_during_the_cooldown_an_overload_is_spread_over_all_who_are_alive():
    # Two consumers would do for 120, three are there, and one of them has it all.
    decision = decide(demand([40, 40, 40]), on(0, 0, 0), {0, 1, 2}, since_scaling_s=1, cooldown_s=9)
    assert decision.action is Action.REASSIGN
    assert (decision.before, decision.after) == (3, 3)
    assert decision.assignment == on(0, 1, 2)


def test_during_the_cooldown_a_number_that_fails_is_not_forced():
    odd = non_monotone()
    n = len(packed(odd))
    everything = Assignment(dict.fromkeys(odd.arrivals, 0))
    decision = decide(odd, everything, range(n + 1), since_scaling_s=1, cooldown_s=9)
    assert decision.action is Action.REASSIGN
    assert len(decision.assignment.consumers) == n


def test_a_group_without_partitions_keeps_one_consumer():
    nothing = demand([])
    assert decide(nothing, Assignment(), {3}).action is Action.NONE
    down = decide(nothing, on(5), {3, 5})
    assert (down.action, down.stop) == (Action.SCALE_DOWN, (5,))
    up = decide(nothing, Assignment(), ())
    assert (up.action, up.start) == (Action.SCALE_UP, (0,))
