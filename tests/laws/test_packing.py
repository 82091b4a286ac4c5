"""The laws of a plan for consumers, for every planner in the registry."""

import copy
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest
from hypothesis import assume, given, note, settings
from hypothesis import strategies as st

from trimtab.evaluate.rscore import rscore
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.json_reader import parse
from trimtab.model.load import GroupLimits
from trimtab.model.plan import ConsumerPlan, Layer
from trimtab.model.plan_codec import plan_from, plan_id, plan_to
from trimtab.plan.consumers.any_fit import FirstBin, SortOrder
from trimtab.plan.consumers.baselines import KeptPartitions
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import PackingContext, PackingPlanner, PlannerKind
from trimtab.plan.registry import PLANNERS, configured
from trimtab.testing.strategies import PackingProblem, packing_problems
from trimtab_lab.reference_scans.packing import SCANS

unhurried = settings(deadline=None, max_examples=60)  # a busy machine is no fault of a planner
thorough = settings(deadline=None, max_examples=200)
CONSUMERS = PLANNERS[Layer.CONSUMERS]
# Those for latency have laws of their own, and `exact` asks a solver: few and small problems.
QUICK = [
    name for name, p in CONSUMERS.items() if p.kind is not PlannerKind.LATENCY and name != "exact"
]
PACKING = [name for name in QUICK if CONSUMERS[name].kind is PlannerKind.PACKS]
FITS = [name for name in SCANS if CONSUMERS[name].kind is PlannerKind.PACKS]
DEALING = [name for name in QUICK if CONSUMERS[name].kind is PlannerKind.DEALS]
every_scan = pytest.mark.parametrize("name", SCANS)


def each(names: list[str]) -> Iterator[str]:
    """One after the other, each named beside a failure: a problem is made once for all."""
    for name in names:
        note(f"planner: {name}")
        yield name


def planned(name: str, problem: PackingProblem, made_ts: int = 1) -> ConsumerPlan:
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


def check_plan(plan: ConsumerPlan, problem: PackingProblem) -> None:
    """The one referee: whatever the planner, its plan says the truth and nothing else."""
    loads, after = problem.loads, plan.assignment
    before = {p: c for p, c in problem.current.items() if p in loads and c not in problem.dead}
    check_moves(plan, before)
    check_reasons(plan, problem, before)
    check_figures(plan, problem, before)
    if CONSUMERS[plan.planner].kind is PlannerKind.PACKS:
        check_places(plan, loads, problem.limits)
        check_bounds(plan)
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


def check_bounds(plan):
    assert plan.bound <= plan.after.consumers
    assert plan.bound_moved_load <= plan.cost.moved_load
    assert plan.gap == (plan.after.consumers / plan.bound - 1 if plan.bound else 0)
    assert plan.gap >= 0


@dataclass(frozen=True)
class Question:
    """A problem, and everything that the quick planners may be told."""

    problem: PackingProblem
    context: PackingContext
    options: Mapping[str, Any]

    @property
    def situation(self) -> tuple[Mapping[TopicPartition, float], Assignment, GroupLimits]:
        return self.problem.loads, living(self.problem), self.problem.limits

    def planner(self, name: str) -> PackingPlanner:
        return told(name, **self.options)


def told(name: str, **options: Any) -> PackingPlanner:
    """The planner with those of the options that it has."""
    (planner,), _ = configured([CONSUMERS[name]], options, optional=options)
    return planner


@st.composite
def questions(draw) -> Question:
    problem = draw(packing_problems())
    lags = st.one_of(st.integers(0, 3), st.integers(0, 1000))
    context = st.builds(
        PackingContext,
        seed=st.integers(0, 9),
        iteration=st.integers(0, 9),
        lags=st.fixed_dictionaries({}, optional=dict.fromkeys(problem.loads, lags)),
        members=st.one_of(st.none(), st.integers(1, 12)),
    )
    options = st.fixed_dictionaries(
        {
            "order": st.sampled_from(SortOrder),
            "nf_first_bin": st.sampled_from(FirstBin),
            "sticky_keeps": st.sampled_from(KeptPartitions),
            "lag_threshold": st.integers(1, 300),
        }
    )
    return Question(problem, draw(context), draw(options))


def living(problem: PackingProblem) -> Assignment:
    return problem.current.only(problem.loads).without(problem.dead)


@unhurried
@given(problem=packing_problems())
def test_every_plan_says_the_truth(problem):
    for name in each(QUICK):
        check_plan(planned(name, problem), problem)


@settings(deadline=None, max_examples=25)
@given(problem=packing_problems(most_partitions=8))
def test_every_exact_plan_says_the_truth_and_no_planner_needs_fewer_consumers(problem):
    plan = planned("exact", problem)
    check_plan(plan, problem)
    if not problem.limits.capacities:
        for name in each(PACKING):
            assert planned(name, problem).after.consumers >= plan.after.consumers


@thorough
@given(question=questions())
def test_the_fast_planner_decides_as_the_scan_does(question):
    loads, before, limits = question.situation
    for name in each(list(SCANS)):
        planner, context = question.planner(name), question.context
        scanned = SCANS[name](loads, before, limits, context, planner.options)
        assert planner(loads, before, limits, context) == scanned


@unhurried
@given(
    tenths=st.lists(st.integers(0, 12), max_size=40),
    homes=st.lists(st.integers(0, 9), max_size=30),
    capacity=st.sampled_from([0.3, 0.7, 1.0]),
)
def test_the_fast_planner_decides_as_the_scan_does_where_sums_are_rounded(tenths, homes, capacity):
    loads = {TopicPartition("t", n): tenth * 0.1 for n, tenth in enumerate(tenths)}
    current = Assignment(dict(zip(loads, homes, strict=False)))
    for name in each(FITS):
        asked = (loads, current, GroupLimits(capacity=capacity))
        assert CONSUMERS[name](*asked) == SCANS[name](*asked)


def variants() -> Iterator[tuple[str, SortOrder, FirstBin]]:
    """Every planner with a scan, with each choice that it reads."""
    for name in SCANS:
        reads = CONSUMERS[name].reads
        for order in SortOrder if "order" in reads else [SortOrder.CANONICAL]:
            for first_bin in FirstBin if "nf_first_bin" in reads else [FirstBin.STICKY]:
                yield name, order, first_bin


@pytest.mark.parametrize(("name", "order", "first_bin"), list(variants()))
def test_the_fast_planner_decides_as_the_scan_does_along_a_stream(name, order, first_bin):
    planner = told(name, order=order, nf_first_bin=first_bin)
    rng = random.Random(4)
    limits = GroupLimits(capacity=100)
    loads = {TopicPartition("t", n): rng.randrange(101) for n in range(150)}
    current = Assignment()
    for iteration in range(8):
        lags = {p: rng.randrange(20) for p in loads}
        context = PackingContext(seed=2, iteration=iteration, lags=lags)
        after = planner(loads, current, limits, context)
        assert after == SCANS[name](loads, current, limits, context, planner.options)
        current = after
        loads = {p: min(120, max(0, x + rng.randint(-25, 25))) for p, x in loads.items()}


@every_scan
def test_the_fast_planner_decides_as_the_scan_does_with_more_consumers_than_one_bucket(name):
    rng = random.Random(5)
    limits = GroupLimits(capacity=1000)
    loads = {
        TopicPartition("t", n): rng.choice([rng.randrange(1001), 600, 400]) for n in range(900)
    }
    current = Assignment({p: rng.randrange(600) for p in loads})
    context = PackingContext(lags={p: rng.randrange(19) for p in loads})
    after = CONSUMERS[name](loads, current, limits, context)
    assert len(after.consumers) > 3 * 128
    assert after == SCANS[name](loads, current, limits, context, CONSUMERS[name].options)


@unhurried
@given(problem=packing_problems(), seed=st.integers(0, 9))
def test_a_plan_does_not_depend_on_the_order_of_its_input_and_leaves_it_unchanged(problem, seed):
    untouched = copy.deepcopy(problem)
    other = replace(
        problem,
        loads=shuffled(problem.loads, seed),
        current=Assignment(shuffled(problem.current, seed)),
        limits=replace(problem.limits, capacities=shuffled(problem.limits.capacities, seed)),
    )
    for name in each(QUICK):
        assert planned(name, other) == planned(name, problem)
    assert problem == untouched
    assert list(problem.loads) == list(untouched.loads)


@unhurried
@given(question=questions(), seed=st.integers(0, 9))
def test_options_do_not_make_the_order_of_the_input_matter(question, seed):
    loads, before, limits = question.situation
    context = question.context
    for name in each(QUICK):
        planner = question.planner(name)
        assert planner(loads, before, limits, context) == planner(
            shuffled(loads, seed),
            Assignment(shuffled(before, seed)),
            limits,
            replace(context, lags=shuffled(context.lags, seed)),
        )


@unhurried
@given(question=questions())
def test_facts_that_a_planner_does_not_say_it_uses_change_nothing(question):
    for name in each(QUICK):
        planner = question.planner(name)
        used: dict[str, Any] = {fact: getattr(question.context, fact) for fact in planner.uses}
        asked = question.situation
        assert planner(*asked, question.context) == planner(*asked, PackingContext(**used))


@unhurried
@given(question=questions())
def test_departed_partitions_are_as_if_they_had_never_been(question):
    problem, context = question.problem, question.context
    before = problem.current.without(problem.dead)
    for name in each(QUICK):
        planner = question.planner(name)
        assert planner(problem.loads, before, problem.limits, context) == planner(
            problem.loads, before.only(problem.loads), problem.limits, context
        )


@unhurried
@given(problem=packing_problems())
def test_a_plan_survives_its_file_and_keeps_its_id(problem):
    for name in each(QUICK):
        plan = planned(name, problem)
        text = dumps(plan_to(plan))
        read = plan_from(parse(text, origin="plan.json"))
        assert read == plan
        assert plan_id(read) == plan_id(plan)
        assert dumps(plan_to(read)) == text


@unhurried
@given(problem=packing_problems())
def test_the_id_of_a_plan_is_that_of_its_content_not_of_its_time(problem):
    for name in each(QUICK):
        assert plan_id(planned(name, problem, 1)) == plan_id(planned(name, problem, 2))


@unhurried
@given(problem=packing_problems())
def test_whole_floats_plan_as_integers_do(problem):
    floats = replace(
        problem,
        loads={p: float(x) for p, x in problem.loads.items()},
        limits=replace(problem.limits, capacity=float(problem.limits.capacity)),
    )
    for name in each(QUICK):
        assert plan_id(planned(name, floats)) == plan_id(planned(name, problem))


@unhurried
@given(problem=packing_problems())
def test_the_numbers_of_consumers_shift_nothing_when_the_group_is_new(problem):
    fresh = replace(problem, current=Assignment(), limits=GroupLimits(capacity=100))
    for name in each(QUICK):
        consumers = planned(name, fresh).assignment.consumers
        assert consumers == tuple(range(len(consumers)))


@unhurried
@given(problem=packing_problems())
def test_without_a_past_the_modified_fits_are_the_plain_decreasing_ones(problem):
    asked = (problem.loads, Assignment(), problem.limits)
    best, worst = CONSUMERS["bfd"](*asked), CONSUMERS["wfd"](*asked)
    assert CONSUMERS["mbf"](*asked) == CONSUMERS["mbfp"](*asked) == best
    assert CONSUMERS["mwf"](*asked) == CONSUMERS["mwfp"](*asked) == worst


@unhurried
@given(problem=packing_problems(), first_bin=st.sampled_from(FirstBin))
def test_a_plain_fit_moves_nothing_while_loads_stay(problem, first_bin):
    for name in each(["nf", "nfd", "ff", "ffd", "bf", "bfd", "wf", "wfd"]):
        fit = told(name, nf_first_bin=first_bin)
        first = fit(problem.loads, living(problem), problem.limits)
        assert fit(problem.loads, first, problem.limits) == first


@pytest.mark.parametrize("name", ["nf", "ff", "bf", "wf"])
def test_a_new_order_moves_load_even_while_loads_stay(name):
    rng = random.Random(1)
    loads = {TopicPartition("t", n): rng.randrange(101) for n in range(40)}
    fit, limits = told(name, order=SortOrder.SHUFFLE), GroupLimits(capacity=100)
    first = fit(loads, Assignment(), limits)
    assert fit(loads, first, limits) == first
    later = fit(loads, first, limits, PackingContext(iteration=1))
    assert rscore(first, later, loads, capacity=100) > 0


@unhurried
@given(question=questions())
def test_where_next_fit_begins_does_not_change_the_number_of_consumers(question):
    loads, before, limits = question.situation
    equal = replace(limits, capacities={})
    for name in each(["nf", "nfd"]):
        used = set()
        for first_bin in FirstBin:
            planner = question.planner(name).with_options(nf_first_bin=first_bin)
            used.add(len(planner(loads, before, equal, question.context).consumers))
        assert len(used) == 1


@unhurried
@given(question=questions())
def test_dealing_gives_every_partition_once_and_equal_numbers_where_promised(question):
    for name in each(DEALING):
        after = question.planner(name)(*question.situation, question.context)
        assert set(after) == set(question.problem.loads)
        topics = {p.topic for p in after} if name == "kafka-range" else {None}
        for topic in topics:
            held = Counter(c for p, c in after.items() if topic in (None, p.topic))
            members = number_of_members(name, question)
            floor, above = divmod(sum(held.values()), members)
            counts = sorted([*held.values(), *[0] * (members - len(held))], reverse=True)
            assert counts == [floor + 1] * above + [floor] * (members - above)


def number_of_members(name, question):
    problem, context = question.problem, question.context
    if name == "keda-lag":
        asked = -(-sum(context.lags.values()) // question.options["lag_threshold"])
        return max(1, min(asked, len(problem.loads)))
    there = len(living(problem).consumers)
    fewest = max(1, fewest_consumers(problem.loads.values(), problem.limits))
    return context.members or there or fewest


@unhurried
@given(question=questions())
def test_capacities_play_no_part_in_dealing_to_given_members(question):
    loads, before, limits = question.situation
    context = replace(question.context, members=question.context.members or 3)
    other = GroupLimits(capacity=7, capacities={1: 1})
    for name in each(DEALING):
        planner = question.planner(name)
        assert planner(loads, before, limits, context) == planner(loads, before, other, context)


@unhurried
@given(
    homes=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=6),
    members=st.integers(1, 3),
    keeps=st.sampled_from(KeptPartitions),
)
def test_sticky_dealing_keeps_as_much_as_any_equal_dealing_could(homes, members, keeps):
    loads = {TopicPartition("t", n): 1 for n in range(len(homes))}
    before = Assignment({p: c for p, c in zip(loads, homes, strict=True) if c is not None})
    sticky, context = told("kafka-sticky", sticky_keeps=keeps), PackingContext(members=members)
    after = sticky(loads, before, GroupLimits(capacity=1), context)
    there = before.consumers[:members]
    free = [c for c in range(members + 4) if c not in before.consumers]
    indexes = [*there, *free[: members - len(there)]]
    equal = [
        dealt
        for dealt in product(indexes, repeat=len(homes))
        if max(map(dealt.count, indexes)) - min(map(dealt.count, indexes)) <= 1
    ]
    chosen = tuple(after[p] for p in loads)
    assert chosen in equal
    assert kept(homes, chosen) == max(kept(homes, dealt) for dealt in equal)


def kept(homes, dealt):
    return sum(home == now for home, now in zip(homes, dealt, strict=True))


@thorough
@given(
    sizes=st.lists(st.floats(0, 3, allow_nan=False), max_size=40),
    capacity=st.floats(0.1, 2, allow_nan=False),
)
def test_rounding_never_lifts_the_bound_above_a_plan(sizes, capacity):
    loads = {TopicPartition("t", n): size for n, size in enumerate(sizes)}
    limits = GroupLimits(capacity=capacity)
    for name in each(PACKING):
        used = len(CONSUMERS[name](loads, Assignment(), limits).consumers)
        assert fewest_consumers(loads.values(), limits) <= used


@thorough
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
