"""The laws of a plan for consumers, for every planner in the registry."""

import copy
import random
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.laws.scan_reference import SCANS
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps, plan_from, plan_id, plan_to
from trimtab.model.load import GroupLimits
from trimtab.model.plan import Layer, Plan
from trimtab.model.reading import parse
from trimtab.plan.consumers import plan_consumers
from trimtab.plan.packing.bounds import fewest_consumers
from trimtab.plan.registry import PLANNERS
from trimtab.testing.strategies import PackingProblem, packing_problems

unhurried = settings(deadline=None)  # a busy machine is no fault of a planner
every_planner = pytest.mark.parametrize("name", sorted(PLANNERS[Layer.CONSUMERS]))


def planned(name: str, problem: PackingProblem, made_ts: int = 1) -> Plan:
    return plan_consumers(
        problem.loads,
        problem.current,
        problem.limits,
        planner=name,
        made_ts=made_ts,
        group="g",
        dead=problem.dead,
    )


def shuffled(mapping, seed):
    items = list(mapping.items())
    random.Random(seed).shuffle(items)
    return dict(items)


def check_plan(plan: Plan, problem: PackingProblem) -> None:
    """The one referee: whatever the planner, its plan says the truth and nothing else."""
    loads, limits, after = problem.loads, problem.limits, plan.assignment
    before = {p: c for p, c in problem.current.items() if p in loads and c not in problem.dead}
    check_places(plan, loads, limits)
    check_moves(plan, before)
    check_reasons(plan, problem, before)
    check_figures(plan, problem, before)
    assert plan.previous == Assignment(before)
    assert plan.scope.topics == tuple(sorted({p.topic for p in loads}))
    assert set(after) == set(loads)


def check_places(plan, loads, limits):
    held: dict[int, list[TopicPartition]] = {}
    for partition, consumer in plan.assignment.items():
        held.setdefault(consumer, []).append(partition)
    overfull = {TopicPartition(u.topic, u.partition): u for u in plan.unplaced}
    for consumer, partitions in held.items():
        if sum(loads[p] for p in partitions) > limits.of(consumer):
            (alone,) = partitions  # overfull consumers hold one partition, and the plan names it
            named = overfull.pop(alone)
            assert named.load == loads[alone]
            assert (named.why == "oversize") == (loads[alone] > limits.largest)
    assert not overfull


def check_moves(plan, before):
    replayed = dict(before)
    for move in plan.moves:
        assert replayed.get(move.name) == move.source != move.target
        replayed[move.name] = move.target
    assert replayed == dict(plan.assignment)
    assert [m.name for m in plan.moves] == sorted({m.name for m in plan.moves})
    for back in plan.inverse:
        assert replayed[back.topic, back.partition] == back.source
        replayed[back.topic, back.partition] = back.target
    assert {p: c for p, c in replayed.items() if p in before} == before
    assert [(m.topic, m.partition) for m in plan.inverse] == [
        (m.topic, m.partition) for m in reversed(plan.moves) if m.counts
    ]


def check_reasons(plan, problem, before):
    loads, limits = problem.loads, problem.limits

    def load_of(assignment, consumer):
        return sum(loads[p] for p, c in assignment.items() if c == consumer)

    for move in plan.moves:
        to, source = move.target, move.source
        load_to, capacity = load_of(plan.assignment, to), limits.of(to)
        if source is None:
            orphan = problem.current.get(move.name) in problem.dead
            expected = (
                "orphan" if orphan else "arrival",
                {"load_to": load_to, "capacity": capacity},
            )
        elif load_of(before, source) > limits.of(source):
            numbers = {"load_from": load_of(before, source), "capacity": limits.of(source)}
            expected = ("overload", numbers)
        elif source not in plan.assignment.values():
            numbers = {
                "load_from": load_of(before, source),
                "consumers_before": len(set(before.values())),
                "consumers_after": len(set(plan.assignment.values())),
            }
            expected = ("consolidate", numbers)
        else:
            was = {"load_from": load_of(before, source), "load_to": load_of(before, to)}
            expected = ("repack", {**was, "capacity": capacity})
        assert (str(move.reason), dict(move.numbers)) == expected
        assert move.load == loads[move.name]


def check_figures(plan, problem, before):
    loads, after = problem.loads, plan.assignment
    real = [p for p, c in before.items() if after[p] != c]
    assert plan.cost.moves == len(real)
    assert plan.cost.moved_load == sum(loads[p] for p in real)
    assert plan.cost.rscore == plan.cost.moved_load / problem.limits.capacity
    assert plan.cost.orphan_load == sum(
        loads[p] for p, c in problem.current.items() if p in loads and c in problem.dead
    )
    for state, owners in ((plan.before, before), (plan.after, after)):
        carried = [sum(loads[p] for p in owners if owners[p] == c) for c in set(owners.values())]
        assert (state.consumers, state.max_load) == (len(carried), max(carried, default=0))
    assert plan.bound <= plan.after.consumers
    assert plan.bound_moved_load <= plan.cost.moved_load
    assert plan.gap == (plan.after.consumers / plan.bound - 1 if plan.bound else 0)
    assert plan.gap >= 0


@every_planner
@unhurried
@given(problem=packing_problems())
def test_every_plan_says_the_truth(name, problem):
    check_plan(planned(name, problem), problem)


@every_planner
@unhurried
@given(problem=packing_problems())
def test_the_fast_planner_decides_as_the_scan_does(name, problem):
    before = problem.current.only(problem.loads).without(problem.dead)
    fast = PLANNERS[Layer.CONSUMERS][name](problem.loads, before, problem.limits)
    assert fast == SCANS[name](problem.loads, before, problem.limits)


@every_planner
@pytest.mark.parametrize("seed", range(4))
def test_the_fast_planner_decides_as_the_scan_does_along_a_stream(name, seed):
    rng = random.Random(seed)
    limits = GroupLimits(capacity=100)
    loads = {TopicPartition("t", n): rng.randrange(101) for n in range(150)}
    current = Assignment()
    for _ in range(8):
        after = PLANNERS[Layer.CONSUMERS][name](loads, current, limits)
        assert after == SCANS[name](loads, current, limits)
        current = after
        loads = {p: min(120, max(0, x + rng.randint(-25, 25))) for p, x in loads.items()}


@every_planner
def test_the_fast_planner_decides_as_the_scan_does_with_more_consumers_than_one_bucket(name):
    rng = random.Random(5)
    limits = GroupLimits(capacity=1000)
    loads = {
        TopicPartition("t", n): rng.choice([rng.randrange(1001), 600, 400]) for n in range(900)
    }
    current = Assignment({p: rng.randrange(600) for p in loads})
    after = PLANNERS[Layer.CONSUMERS][name](loads, current, limits)
    assert len(after.consumers) > 3 * 128
    assert after == SCANS[name](loads, current, limits)


@every_planner
@unhurried
@given(problem=packing_problems(), seed=st.integers(0, 9))
def test_a_plan_does_not_depend_on_the_order_of_its_input_and_leaves_it_unchanged(
    name, problem, seed
):
    untouched = copy.deepcopy(problem)
    plan = planned(name, problem)
    other = replace(
        problem,
        loads=shuffled(problem.loads, seed),
        current=Assignment(shuffled(problem.current, seed)),
        limits=replace(problem.limits, capacities=shuffled(problem.limits.capacities, seed)),
    )
    assert planned(name, other) == plan
    assert problem == untouched
    assert list(problem.loads) == list(untouched.loads)


@every_planner
@unhurried
@given(problem=packing_problems())
def test_a_plan_survives_its_file_and_keeps_its_id(name, problem):
    plan = planned(name, problem)
    text = dumps(plan_to(plan))
    read = plan_from(parse(text, origin="plan.json"))
    assert read == plan
    assert plan_id(read) == plan_id(plan)
    assert dumps(plan_to(read)) == text


@every_planner
@unhurried
@given(problem=packing_problems())
def test_the_id_of_a_plan_is_that_of_its_content_not_of_its_time(name, problem):
    assert plan_id(planned(name, problem, 1)) == plan_id(planned(name, problem, 2))


@every_planner
@unhurried
@given(problem=packing_problems())
def test_whole_floats_plan_as_integers_do(name, problem):
    floats = replace(
        problem,
        loads={p: float(x) for p, x in problem.loads.items()},
        limits=replace(problem.limits, capacity=float(problem.limits.capacity)),
    )
    assert plan_id(planned(name, floats)) == plan_id(planned(name, problem))


@every_planner
@unhurried
@given(problem=packing_problems())
def test_the_numbers_of_consumers_shift_nothing_when_the_group_is_new(name, problem):
    fresh = replace(problem, current=Assignment(), limits=GroupLimits(capacity=100))
    consumers = planned(name, fresh).assignment.consumers
    assert consumers == tuple(range(len(consumers)))


@settings(max_examples=200, deadline=None)
@given(
    sizes=st.lists(st.floats(0, 3, allow_nan=False), max_size=40),
    capacity=st.floats(0.1, 2, allow_nan=False),
)
def test_rounding_never_lifts_the_bound_above_a_plan(sizes, capacity):
    loads = {TopicPartition("t", n): size for n, size in enumerate(sizes)}
    limits = GroupLimits(capacity=capacity)
    for planner in PLANNERS[Layer.CONSUMERS].values():
        used = len(planner(loads, Assignment(), limits).consumers)
        assert fewest_consumers(loads.values(), limits) <= used


@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(0, 12), min_size=1, max_size=7))
def test_the_bound_is_at_least_the_load_and_at_most_the_optimum(sizes):
    bound = fewest_consumers(sizes, GroupLimits(capacity=10))
    fitting = [s for s in sizes if s <= 10]
    oversize = len(sizes) - len(fitting)
    assert oversize + -(-sum(fitting) // 10) <= bound
    assert bound <= oversize + optimum(sorted(fitting, reverse=True), 10)


def optimum(sizes, capacity):
    """The fewest bins, by trying every place for every item."""

    def best(at, bins):
        if at == len(sizes):
            return len(bins)
        tried = [best(at + 1, [*bins, sizes[at]])]
        for i, load in enumerate(bins):
            if load + sizes[at] <= capacity:
                tried.append(best(at + 1, [*bins[:i], load + sizes[at], *bins[i + 1 :]]))
        return min(tried)

    return best(0, [])


@unhurried
@given(problem=packing_problems())
def test_the_referee_notices_a_partition_left_out(problem):
    assume(problem.loads)
    plan = planned("bfd", problem)
    some = next(iter(plan.assignment))
    kept = {p: c for p, c in plan.assignment.items() if p != some}
    with pytest.raises((AssertionError, KeyError)):
        check_plan(replace(plan, assignment=Assignment(kept)), problem)


@unhurried
@given(problem=packing_problems())
def test_the_referee_notices_a_wrong_reason(problem):
    plan = planned("bfd", problem)
    assume(plan.moves)
    first, *others = plan.moves
    lied = replace(first, numbers={**first.numbers, "capacity": -1.0})
    with pytest.raises(AssertionError):
        check_plan(replace(plan, moves=(lied, *others)), problem)
