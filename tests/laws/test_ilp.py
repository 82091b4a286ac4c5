"""The exact models against trying everything, on instances small enough for that."""

import random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.ilp import exact
from trimtab.plan.consumers.planner import PackingContext
from trimtab.testing.strategies import packing_problems

CAPACITY = 12
few = settings(max_examples=80, deadline=None)


def best_of_all(loads, now, limits):
    """(consumers, moved load) of the best valid assignment, None if there is none."""
    items = sorted(loads)
    known = {*now.values(), *limits.capacities}
    new = [c for c in range(len(known) + len(items)) if c not in known][: len(items)]
    best = None

    def place(at, carried, moved_load):
        nonlocal best
        if best is not None and (len(carried), moved_load) >= best:
            return
        if at == len(items):
            best = (len(carried), moved_load)
            return
        p = items[at]
        fresh = next((c for c in new if c not in carried), None)  # one new consumer is like another
        for c in {*known, *carried, *([] if fresh is None else [fresh])}:
            if carried.get(c, 0) + loads[p] <= limits.of(c):
                more = loads[p] if now.get(p, c) != c else 0
                place(at + 1, {**carried, c: carried.get(c, 0) + loads[p]}, moved_load + more)

    place(0, {}, 0)
    return best


def problems(own):
    count = st.integers(0, 6)
    size = st.one_of(st.integers(0, CAPACITY), st.sampled_from([0, 4, 6]))
    owner = st.one_of(st.integers(0, 3), st.none())
    return st.tuples(
        count.flatmap(lambda n: st.lists(st.tuples(size, owner), min_size=n, max_size=n)), own
    ).map(problem)


def problem(drawn):
    items, own = drawn
    names = [TopicPartition("t", n) for n in range(len(items))]
    return (
        {p: size for p, (size, _) in zip(names, items, strict=True)},
        Assignment({p: c for p, (_, c) in zip(names, items, strict=True) if c is not None}),
        GroupLimits(capacity=CAPACITY, capacities=own),
    )


@few
@given(drawn=problems(st.just({})))
def test_no_assignment_has_fewer_consumers_or_moves_less_with_as_many(drawn):
    loads, now, limits = drawn
    plan = exact(loads, now, limits)
    moved_load = sum(loads[p] for p in moved(now, plan))
    assert plan.notes == {"status": "optimal"}
    assert (len(plan.consumers), moved_load) == best_of_all(loads, now, limits)


@few
@given(drawn=problems(st.dictionaries(st.integers(0, 4), st.integers(1, 25), max_size=3)))
def test_consumers_of_their_own_capacity_are_used_as_well_as_can_be(drawn):
    loads, now, limits = drawn
    best = best_of_all(loads, now, limits)
    assume(best is not None)
    plan = exact(loads, now, limits)
    assert (len(plan.consumers), sum(loads[p] for p in moved(now, plan))) == best


@few
@given(problem=packing_problems(most_partitions=10))
def test_every_partition_is_placed_once_and_only_lone_ones_are_above_the_capacity(problem):
    before = problem.current.only(problem.loads).without(problem.dead)
    plan = exact(problem.loads, before, problem.limits)
    assert set(plan) == set(problem.loads)
    for c in plan.consumers:
        held = [p for p, owner in plan.items() if owner == c]
        assert sum(problem.loads[p] for p in held) <= problem.limits.of(c) or len(held) == 1


@few
@given(problem=packing_problems(most_partitions=12, unequal=False))
def test_no_heuristic_needs_fewer_consumers_and_no_bound_is_above(problem):
    before = problem.current.only(problem.loads).without(problem.dead)
    plan = exact(problem.loads, before, problem.limits)
    used = len(plan.consumers)
    assert fewest_consumers(problem.loads.values(), problem.limits) <= used
    for planner in ANY_FIT:
        assert used <= len(planner(problem.loads, before, problem.limits).consumers)


@few
@given(problem=packing_problems(most_partitions=10), seed=st.integers(0, 9))
def test_a_plan_does_not_depend_on_the_order_of_its_input(problem, seed):
    rng = random.Random(seed)

    def mixed(mapping):
        return {key: mapping[key] for key in rng.sample(list(mapping), len(mapping))}

    limits = GroupLimits(
        capacity=problem.limits.capacity, capacities=mixed(problem.limits.capacities)
    )
    plan = exact(problem.loads, problem.current, problem.limits)
    again = exact(mixed(problem.loads), Assignment(mixed(problem.current)), limits)
    assert again == plan


def fewest_bins(pairs, mu, most_lag):
    """Of (rate, lag), by trying every place for each."""

    def place(at, bins):
        if at == len(pairs):
            return len(bins)
        rate, lag = pairs[at]
        found = place(at + 1, [*bins, (rate, lag)])
        for i, (rates, lags) in enumerate(bins):
            if rates + rate <= mu and lags + lag <= most_lag:
                found = min(
                    found, place(at + 1, [*bins[:i], (rates + rate, lags + lag), *bins[i + 1 :]])
                )
        return found

    return place(0, [])


@few
@given(
    pairs=st.lists(st.tuples(st.integers(0, 14), st.integers(0, 30)), min_size=1, max_size=7),
    sla_s=st.sampled_from([1, 2]),
)
def test_no_packing_by_rate_and_lag_has_fewer_consumers(pairs, sla_s):
    names = [TopicPartition("t", n) for n in range(len(pairs))]
    loads = {p: rate for p, (rate, _) in zip(names, pairs, strict=True)}
    lags = {p: lag for p, (_, lag) in zip(names, pairs, strict=True)}
    context = PackingContext(lags=lags, sla_s=sla_s)
    plan = exact(loads, Assignment(), GroupLimits(capacity=12), context)
    capped = [(min(rate, 12), min(lag, 12 * sla_s)) for rate, lag in pairs]
    assert plan.notes["status"] == "optimal"
    assert len(plan.consumers) == fewest_bins(capped, 12, 12 * sla_s)
    for c in plan.consumers:
        held = [k for k, q in enumerate(names) if plan[q] == c]
        assert sum(capped[k][0] for k in held) <= 12
        assert sum(capped[k][1] for k in held) <= 12 * sla_s
