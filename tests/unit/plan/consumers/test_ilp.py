import random

import pytest

from trimtab.errors import NoFeasiblePlan, PlanningError
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers import bin_model
from trimtab.plan.consumers.any_fit import ANY_FIT, fit_decreasing
from trimtab.plan.consumers.bins import Rule
from trimtab.plan.consumers.ilp import EXACT, ExactOptions, exact
from trimtab.plan.consumers.least_loaded_ffd import ll_ffd
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext, PlannerKind

LIMITS = GroupLimits(capacity=100)
OPTIMAL = {"status": "optimal"}


def p(number):
    return TopicPartition("t", number)


def of(*loads):
    return {p(n): load for n, load in enumerate(loads)}


def on(*owners):
    """The consumer of partition 0, of 1, …; None for one that nobody reads."""
    return Assignment({p(n): c for n, c in enumerate(owners) if c is not None})


def test_the_fewest_consumers_come_before_the_least_load_moved():
    plan = exact(of(60, 50, 40), on(0, 1, 2), LIMITS)
    assert plan == on(0, 1, 0)
    assert plan.notes == OPTIMAL


def test_it_finds_what_best_fit_decreasing_misses():
    # It puts 44 beside 44, which leaves a gap of 12 that nothing fits.
    loads = of(44, 44, 33, 33, 22, 22)
    (bfd,) = (planner for planner in ANY_FIT if planner.name == "bfd")
    assert len(bfd(loads, Assignment(), LIMITS).consumers) == 3
    plan = exact(loads, Assignment(), LIMITS)
    assert len(plan.consumers) == 2
    assert plan.notes == OPTIMAL


def test_the_least_load_moves_and_not_the_fewest_partitions():
    # One of the two consumers must go: 60 moves, or 20 and 20.
    plan = exact(of(60, 20, 20), on(0, 1, 1), LIMITS)
    assert plan == on(0, 0, 0)


def test_a_group_that_needs_nothing_keeps_everything():
    now = on(3, 3, 9)
    assert exact(of(50, 50, 30), now, LIMITS) == now


def test_new_consumers_take_the_lowest_indexes_that_nobody_has():
    plan = exact(of(80, 80, 80), on(1, 1, 1), LIMITS)
    assert sorted(plan.consumers) == [0, 1, 2]
    assert len(moved(on(1, 1, 1), plan)) == 2


def test_none_one_and_only_empty_partitions():
    assert exact({}, on(4), LIMITS) == Assignment()
    assert exact({}, on(4), LIMITS).notes == OPTIMAL
    assert exact(of(7), on(4), LIMITS) == on(4)
    assert exact(of(0, 0, 0), on(None, 5, 5), LIMITS) == on(5, 5, 5)
    assert exact(of(0, 0), Assignment(), LIMITS) == on(0, 0)


def test_empty_partitions_stay_at_home_where_somebody_reads_and_open_no_consumer():
    plan = exact(of(100, 100, 0, 0, 0), on(3, 4, 4, 9, None), LIMITS)
    assert plan == on(3, 4, 4, 3, 3)


def test_a_partition_that_no_consumer_can_carry_stands_alone_at_home():
    plan = exact(of(150, 10, 120, 0), on(2, 2, 2, 2), LIMITS)
    assert plan[p(0)] == 2
    assert len({plan[p(0)], plan[p(1)], plan[p(2)]}) == 3
    assert plan[p(3)] == plan[p(1)]
    assert plan.notes == OPTIMAL


def test_a_full_oversize_consumer_takes_not_even_an_empty_partition():
    plan = exact(of(150, 0), on(0, 0), LIMITS)
    assert plan == on(0, 1)


def test_consumers_of_their_own_capacity_are_used_for_what_they_are():
    limits = GroupLimits(capacity=100, capacities={2: 300})
    plan = exact(of(90, 90, 90), on(0, 1, None), limits)
    assert plan == on(2, 2, 2)
    small = GroupLimits(capacity=100, capacities={0: 10})
    assert exact(of(90, 20), on(0, 0), small).consumers == (1, 2)


def test_a_large_partition_goes_to_the_one_consumer_that_can_carry_it():
    limits = GroupLimits(capacity=100, capacities={5: 200})
    plan = exact(of(150, 60, 60), on(0, 5, 5), limits)
    assert plan[p(0)] == 5
    assert len(plan.consumers) == 3


def test_an_oversize_partition_does_not_hold_the_only_large_consumer():
    limits = GroupLimits(capacity=100, capacities={5: 200})
    plan = exact(of(250, 150), on(5, 0), limits)
    assert plan == on(0, 5)


def test_a_large_partition_without_room_stands_alone_and_as_few_as_possible_do():
    limits = GroupLimits(capacity=100, capacities={5: 300})
    plan = exact(of(200, 150, 150, 50), Assignment(), limits)
    carried = plan.loads(of(200, 150, 150, 50))
    assert carried[5] == 300
    assert plan[p(1)] == plan[p(2)] == 5
    assert len({plan[p(0)], plan[p(3)]}) == 2


def test_a_sum_that_is_above_the_room_by_one_part_in_a_thousand_million_does_not_fit():
    """The solver's tolerance is about a millionth of the room."""
    # All even, and just as much as two consumers of an odd capacity can carry: three are needed.
    loads = of(*[333_333_334] * 5, 333_333_332)
    limits = GroupLimits(capacity=1_000_000_001)
    plan = exact(loads, on(0, 0, 0, 1, 1, 1), limits)
    assert max(plan.loads(loads).values()) <= limits.capacity
    assert len(plan.consumers) == 3
    assert plan.notes == OPTIMAL


def test_loads_that_are_not_whole_are_packed_too():
    loads = of(0.3, 0.3, 0.4, 0.7, 0.25)
    plan = exact(loads, on(0, 0, 0, 1, 2), GroupLimits(capacity=1.0))
    assert len(plan.consumers) == 2
    assert plan == on(0, 0, 0, 1, 1)


def test_with_an_sla_it_packs_rate_and_lag_and_says_what_cannot_be_served():
    context = PackingContext(sla_s=5, lags={p(0): 300, p(1): 300, p(2): 200, p(3): 501})
    plan = exact(of(40, 30, 50, 5), on(0, 1, 0, 2), LIMITS, context)
    assert plan == on(0, 1, 0, 2)
    assert plan.notes == {"status": "optimal", "unsatisfiable": [], "late": ["t-3"]}


def test_with_an_sla_it_finds_what_ll_ffd_misses():
    # Spread over two consumers, 50 and 50 are kept apart, and then 33 is left over.
    context = PackingContext(sla_s=1)
    loads = of(50, 50, 34, 33, 33)
    assert len(ll_ffd(loads, Assignment(), LIMITS, context).consumers) == 3
    plan = exact(loads, Assignment(), LIMITS, context)
    assert len(plan.consumers) == 2
    assert plan.notes["status"] == "optimal"


def test_with_an_sla_unequal_consumers_are_refused():
    with pytest.raises(PlanningError, match="their own capacity"):
        exact(
            of(1), Assignment(), GroupLimits(capacity=9, capacities={1: 8}), PackingContext(sla_s=1)
        )


def hard(seed=3, partitions=80):
    rng = random.Random(seed)
    return of(*(rng.randint(15, 45) for _ in range(partitions)))


@pytest.mark.parametrize("limits", [LIMITS, GroupLimits(capacity=100, capacities={0: 90, 7: 120})])
def test_when_time_is_up_before_anything_was_found_it_is_bfd_s_packing(limits):
    loads = hard()
    now = Assignment({q: n % 40 for n, q in enumerate(loads)})

    plan = exact(loads, now, limits, NO_CONTEXT, ExactOptions(time_limit_s=0.002))

    best_fit = fit_decreasing(loads, Assignment(), limits, rule=Rule.BEST)
    assert plan.keys() == loads.keys()
    assert all(load <= limits.of(c) for c, load in plan.loads(loads).items())
    assert len(plan.consumers) <= len(best_fit.consumers)
    assert plan.notes["status"] == "feasible"
    assert plan.notes["bound_consumers"] <= len(plan.consumers)


def test_when_time_is_up_before_anything_was_found_with_an_sla_it_is_ll_ffd_s_packing():
    loads = hard()
    context = PackingContext(sla_s=1, lags=dict.fromkeys(loads, 20))

    plan = exact(loads, Assignment(), LIMITS, context, ExactOptions(time_limit_s=0.002))

    assert plan == ll_ffd(loads, Assignment(), LIMITS, context)
    assert plan.notes["status"] == "feasible"


def test_where_nobody_knows_who_fits_at_all_it_says_that_time_was_up(monkeypatch):
    nothing = bin_model.BinAnswer(bin_of=None, proven=False, bound=float("-inf"))
    monkeypatch.setattr(bin_model, "_asked", lambda *_: nothing)
    limits = GroupLimits(capacity=100, capacities={5: 115})

    with pytest.raises(NoFeasiblePlan, match="no valid assignment of 2 partitions") as caught:
        exact(of(110, 110), Assignment(), limits, NO_CONTEXT, ExactOptions(time_limit_s=1))

    assert "bfd" in str(caught.value.hint)


def test_an_answer_that_is_not_proven_states_its_bounds(monkeypatch):
    ask = bin_model._asked

    def interrupted(model, too_much, clock):
        answer = ask(model, too_much, clock)
        return bin_model.BinAnswer(bin_of=answer.bin_of, proven=False, bound=answer.bound - 5)

    monkeypatch.setattr(bin_model, "_asked", interrupted)
    loads, now = of(60, 50, 40), on(0, 1, 2)
    plan = exact(loads, now, LIMITS, NO_CONTEXT, ExactOptions(time_limit_s=60))
    assert plan.notes["status"] == "feasible"
    assert plan.notes["bound_consumers"] == 2
    assert 0 <= plan.notes["bound_moved_load"] <= 40


@pytest.mark.parametrize("limit", [0, -1, float("nan")])
def test_a_time_limit_must_be_positive(limit):
    with pytest.raises(ValueError, match="time limit"):
        exact(of(1), Assignment(), LIMITS, NO_CONTEXT, ExactOptions(time_limit_s=limit))


@pytest.mark.parametrize("load", [-1, float("nan"), float("inf")])
def test_unsound_loads_are_refused_by_name(load):
    with pytest.raises(ValueError, match="t-1"):
        exact(of(1, load), Assignment(), LIMITS)


def test_the_planner_is_registered_with_what_it_reads():
    (planner,) = EXACT
    assert (planner.name, planner.kind) == ("exact", PlannerKind.PACKS)
    assert planner.option_names == ("time_limit_s",)
    assert planner.uses == {"sla_s", "lags", "clock"}
