"""What trim promises beyond the laws of every planner."""

import random
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.errors import NoFeasiblePlan
from trimtab.evaluate.rscore import moved_load
from trimtab.model.assignment import Assignment, moved
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.model.plan import Layer
from trimtab.plan.consumers.matching import named
from trimtab.plan.consumers.planner import NO_CONTEXT, PackingContext
from trimtab.plan.consumers.trim import TrimOptions, searched, trim
from trimtab.plan.registry import PLANNERS
from trimtab.testing.strategies import packing_problems

few = settings(deadline=None, max_examples=25)
bfd = PLANNERS[Layer.CONSUMERS]["bfd"]
C100 = GroupLimits(capacity=100)


def before_of(problem):
    return problem.current.only(problem.loads).without(problem.dead)


def overloads(assignment, loads, limits):
    """Consumers of several partitions that carry more than they can."""
    carried = assignment.loads(loads)
    holders = list(assignment.values())
    return [c for c, x in carried.items() if x > limits.of(c) and holders.count(c) > 1]


def nothing_is_overloaded(before, problem):
    """Whether every consumer carries what it has, or what nobody could carry, alone."""
    loads, limits = problem.loads, problem.limits
    alone = {c: x for c, x in before.loads(loads).items() if x > limits.of(c)}
    return not overloads(before, loads, limits) and all(x > limits.largest for x in alone.values())


def bfd_renamed(loads, before, limits):
    """Best fit decreasing with its consumers named to fit the past."""
    bins: dict[int, list[TopicPartition]] = {}
    for partition, consumer in bfd(loads, before, limits).items():
        bins.setdefault(consumer, []).append(partition)
    names = named([*bins.values()], before, loads)
    return Assignment({p: n for n, held in zip(names, bins.values(), strict=True) for p in held})


@few
@given(problem=packing_problems(), slack=st.sampled_from([0.0, 0.1, 0.5]))
def test_it_uses_no_more_consumers_than_best_fit_decreasing_and_its_slack(problem, slack):
    before = before_of(problem)
    after = trim(problem.loads, before, problem.limits, NO_CONTEXT, TrimOptions(slack=slack))
    least = len(bfd(problem.loads, before, problem.limits).consumers)
    assert len(after.consumers) <= least * (1 + slack)


@few
@given(problem=packing_problems(unequal=False))
def test_it_moves_no_more_load_than_best_fit_decreasing_with_the_best_names(problem):
    before = before_of(problem)
    after = trim(problem.loads, before, problem.limits)
    renamed = bfd_renamed(problem.loads, before, problem.limits)
    assert moved_load(before, after, problem.loads) <= moved_load(before, renamed, problem.loads)


@few
@given(problem=packing_problems(), moves=st.integers(0, 6), load=st.integers(0, 200))
def test_a_budget_is_kept_or_said_to_be_too_small(problem, moves, load):
    before = before_of(problem)
    options = TrimOptions(max_moves=moves, max_moved_load=load)
    try:
        after = trim(problem.loads, before, problem.limits, NO_CONTEXT, options)
    except NoFeasiblePlan:
        free = trim(problem.loads, before, problem.limits)
        assert moved(before, free)
        assert not nothing_is_overloaded(before, problem) or problem.loads.keys() - before.keys()
        return
    assert len(moved(before, after)) <= moves
    assert moved_load(before, after, problem.loads) <= load
    assert set(after) == set(problem.loads)
    assert not overloads(after, problem.loads, problem.limits)


@few
@given(problem=packing_problems())
def test_when_time_is_up_at_once_the_plan_is_valid_all_the_same(problem):
    before = before_of(problem)
    late = PackingContext(clock=count().__next__)  # a second passes whenever it is asked
    after = trim(problem.loads, before, problem.limits, late, TrimOptions(time_limit_s=0.5))
    assert set(after) == set(problem.loads)
    assert not overloads(after, problem.loads, problem.limits)


@few
@given(problem=packing_problems(), seed=st.integers(0, 3))
def test_equal_seeds_give_equal_plans(problem, seed):
    before, context = before_of(problem), PackingContext(seed=seed)
    one = trim(problem.loads, before, problem.limits, context)
    other = trim(
        dict(reversed(list(problem.loads.items()))),
        Assignment(dict(reversed(list(before.items())))),
        problem.limits,
        replace(context, iteration=5),
    )
    assert one == other


@pytest.mark.parametrize("delta", [5, 25])
def test_along_a_stream_it_moves_a_third_less_than_best_fit_decreasing(delta):
    rng = random.Random(delta)
    names = [TopicPartition("t", n) for n in range(60)]
    loads = {p: rng.randint(0, 100) for p in names}
    current = bfd(loads, Assignment(), C100)
    ours, theirs = current, current
    moved_by_us = moved_by_them = 0.0
    for _ in range(12):
        loads = {p: min(100, max(0, x + rng.randint(-delta, delta))) for p, x in loads.items()}
        after, packed = trim(loads, ours, C100), bfd(loads, theirs, C100)
        assert len(after.consumers) <= len(packed.consumers)
        moved_by_us += moved_load(ours, after, loads)
        moved_by_them += moved_load(theirs, packed, loads)
        ours, theirs = after, packed
    assert moved_by_us < 0.67 * moved_by_them


def test_a_group_larger_than_one_block_is_repaired_too():
    rng = random.Random(3)
    names = [TopicPartition("t", n) for n in range(700)]
    loads = {p: rng.randint(0, 100) for p in names}
    before = bfd(loads, Assignment(), C100)
    loads = {p: min(100, max(0, x + rng.randint(-5, 5))) for p, x in loads.items()}
    after, packed = trim(loads, before, C100), bfd(loads, before, C100)
    assert len(packed.consumers) > 2 * 160
    assert len(after.consumers) <= len(packed.consumers)
    assert not overloads(after, loads, C100)
    assert moved_load(before, after, loads) < 0.8 * moved_load(before, packed, loads)


budgets = st.builds(
    TrimOptions,
    slack=st.sampled_from([0.0, 0.1, 0.5]),
    max_moves=st.one_of(st.none(), st.integers(0, 6)),
)


@few
@given(problem=packing_problems(), options=budgets, again=st.booleans())
def test_where_nothing_must_move_it_answers_at_once_as_the_search_would(problem, options, again):
    loads, before, limits = problem.loads, before_of(problem), problem.limits
    if again:  # so that there is often nothing to do
        before = trim(loads, before, limits)
    if not before:
        return
    try:
        wanted = searched(loads, before, limits, NO_CONTEXT, options)
    except NoFeasiblePlan:
        with pytest.raises(NoFeasiblePlan):
            trim(loads, before, limits, NO_CONTEXT, options)
        return
    assert trim(loads, before, limits, NO_CONTEXT, options) == wanted


@pytest.mark.parametrize("consumers", [20, 400])
def test_a_full_group_that_fits_is_left_as_it_is_whatever_its_size(consumers):
    """Each consumer has 30 partitions and is full to 99.9 %; no group is smaller."""
    names = [TopicPartition("t", n) for n in range(30 * consumers)]
    loads = {p: 33 + (p.partition // consumers) % 2 * 0.6 for p in names}
    before = Assignment({p: p.partition % consumers for p in names})
    fits = GroupLimits(capacity=1000)

    assert trim(loads, before, fits) == before
    assert trim(loads, before, fits, NO_CONTEXT, TrimOptions(max_moves=0)) == before


def test_slack_keeps_consumers_open_that_the_load_does_not_need():
    loads = {TopicPartition("t", n): 9 for n in range(40)}
    before = Assignment({p: p.partition // 8 for p in loads})
    assert len(bfd(loads, before, C100).consumers) == 4
    assert trim(loads, before, C100, NO_CONTEXT, TrimOptions(slack=0.25)) == before
    assert len(trim(loads, before, C100).consumers) == 4


def test_a_consumer_of_many_partitions_gives_up_as_few_as_a_budget_asks():
    loads = {TopicPartition("t", n): 1 + n % 7 for n in range(60)}
    before = Assignment(dict.fromkeys(loads, 0))
    excess = sum(loads.values()) - 100
    after = trim(loads, before, C100, NO_CONTEXT, TrimOptions(max_moved_load=excess + 7))
    assert excess <= moved_load(before, after, loads) <= excess + 7
    with pytest.raises(NoFeasiblePlan, match="moved load"):
        trim(loads, before, C100, NO_CONTEXT, TrimOptions(max_moved_load=excess - 1))


def test_a_new_partition_that_fits_only_where_another_is_says_what_that_costs():
    big, small = TopicPartition("a", 1), TopicPartition("a", 0)
    limits = GroupLimits(capacity=100, capacities={0: 101})
    loads, before = {small: 1, big: 101}, Assignment({small: 0})

    with pytest.raises(NoFeasiblePlan, match="needs 1 move and 1 of moved load"):
        trim(loads, before, limits, NO_CONTEXT, TrimOptions(max_moves=0))

    after = trim(loads, before, limits, NO_CONTEXT, TrimOptions(max_moves=1))
    assert after == Assignment({small: 1, big: 0})
