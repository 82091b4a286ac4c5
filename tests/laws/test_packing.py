"""The laws of a plan for consumers, for every planner in the registry."""

import copy
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

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
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.plan import plan_consumers
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    FirstBin,
    Keeps,
    PackingOptions,
    PlannerKind,
    SortOrder,
)
from trimtab.plan.registry import PLANNERS
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


@st.composite
def questions(draw) -> tuple[PackingProblem, PackingOptions]:
    """A problem and everything that the quick planners may be told."""
    problem = draw(packing_problems())
    lags = st.one_of(st.integers(0, 3), st.integers(0, 1000))
    options = st.builds(
        PackingOptions,
        seed=st.integers(0, 9),
        iteration=st.integers(0, 9),
        order=st.sampled_from(SortOrder),
        nf_first_bin=st.sampled_from(FirstBin),
        lags=st.fixed_dictionaries({}, optional=dict.fromkeys(problem.loads, lags)),
        members=st.one_of(st.none(), st.integers(1, 12)),
        sticky_keeps=st.sampled_from(Keeps),
        lag_threshold=st.integers(1, 300),
    )
    return problem, draw(options)


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
    problem, options = question
    asked = (problem.loads, living(problem), problem.limits, options)
    for name in each(list(SCANS)):
        assert CONSUMERS[name](*asked) == SCANS[name](*asked)


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
    rng = random.Random(4)
    limits = GroupLimits(capacity=100)
    loads = {TopicPartition("t", n): rng.randrange(101) for n in range(150)}
    current = Assignment()
    for iteration in range(8):
        lags = {p: rng.randrange(20) for p in loads}
        options = PackingOptions(
            seed=2, iteration=iteration, order=order, nf_first_bin=first_bin, lags=lags
        )
        after = CONSUMERS[name](loads, current, limits, options)
        assert after == SCANS[name](loads, current, limits, options)
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
    options = PackingOptions(lags={p: rng.randrange(19) for p in loads})
    after = CONSUMERS[name](loads, current, limits, options)
    assert len(after.consumers) > 3 * 128
    assert after == SCANS[name](loads, current, limits, options)


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
    problem, options = question
    before = living(problem)
    for name in each(QUICK):
        assert CONSUMERS[name](problem.loads, before, problem.limits, options) == CONSUMERS[name](
            shuffled(problem.loads, seed),
            Assignment(shuffled(before, seed)),
            problem.limits,
            replace(options, lags=shuffled(options.lags, seed)),
        )


@unhurried
@given(question=questions())
def test_options_that_a_planner_does_not_say_it_reads_change_nothing(question):
    problem, options = question
    for name in each(QUICK):
        planner = CONSUMERS[name]
        read = {option: getattr(options, option) for option in planner.reads}
        asked = (problem.loads, living(problem), problem.limits)
        assert planner(*asked, options) == planner(*asked, replace(DEFAULTS, **read))


@unhurried
@given(question=questions())
def test_departed_partitions_are_as_if_they_had_never_been(question):
    problem, options = question
    before = problem.current.without(problem.dead)
    for name in each(QUICK):
        planner = CONSUMERS[name]
        assert planner(problem.loads, before, problem.limits, options) == planner(
            problem.loads, before.only(problem.loads), problem.limits, options
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
    options = PackingOptions(nf_first_bin=first_bin)
    for name in each(["nf", "nfd", "ff", "ffd", "bf", "bfd", "wf", "wfd"]):
        fit = CONSUMERS[name]
        first = fit(problem.loads, living(problem), problem.limits, options)
        assert fit(problem.loads, first, problem.limits, options) == first


@pytest.mark.parametrize("name", ["nf", "ff", "bf", "wf"])
def test_a_new_order_moves_load_even_while_loads_stay(name):
    rng = random.Random(1)
    loads = {TopicPartition("t", n): rng.randrange(101) for n in range(40)}
    asked = (GroupLimits(capacity=100), PackingOptions(order=SortOrder.SHUFFLE))
    first = CONSUMERS[name](loads, Assignment(), *asked)
    assert CONSUMERS[name](loads, first, *asked) == first
    later = replace(asked[1], iteration=1)
    assert rscore(first, CONSUMERS[name](loads, first, asked[0], later), loads, capacity=100) > 0


@unhurried
@given(question=questions())
def test_where_next_fit_begins_does_not_change_the_number_of_consumers(question):
    problem, options = question
    limits = replace(problem.limits, capacities={})
    for name in each(["nf", "nfd"]):
        used = {
            len(
                CONSUMERS[name](
                    problem.loads,
                    living(problem),
                    limits,
                    replace(options, nf_first_bin=first_bin),
                ).consumers
            )
            for first_bin in FirstBin
        }
        assert len(used) == 1


@unhurried
@given(question=questions())
def test_dealing_gives_every_partition_once_and_equal_numbers_where_promised(question):
    problem, options = question
    for name in each(DEALING):
        after = CONSUMERS[name](problem.loads, living(problem), problem.limits, options)
        assert set(after) == set(problem.loads)
        topics = {p.topic for p in after} if name == "kafka-range" else {None}
        for topic in topics:
            held = Counter(c for p, c in after.items() if topic in (None, p.topic))
            members = number_of_members(name, problem, options)
            floor, above = divmod(sum(held.values()), members)
            counts = sorted([*held.values(), *[0] * (members - len(held))], reverse=True)
            assert counts == [floor + 1] * above + [floor] * (members - above)


def number_of_members(name, problem, options):
    if name == "keda-lag":
        asked = -(-sum(options.lags.values()) // options.lag_threshold)
        return max(1, min(asked, len(problem.loads)))
    there = len(living(problem).consumers)
    fewest = max(1, fewest_consumers(problem.loads.values(), problem.limits))
    return options.members or there or fewest


@unhurried
@given(question=questions())
def test_capacities_play_no_part_in_dealing_to_given_members(question):
    problem, options = question
    options = replace(options, members=options.members or 3)
    for name in each(DEALING):
        asked = (problem.loads, living(problem))
        other = GroupLimits(capacity=7, capacities={1: 1})
        assert CONSUMERS[name](*asked, problem.limits, options) == CONSUMERS[name](
            *asked, other, options
        )


@unhurried
@given(
    homes=st.lists(st.one_of(st.none(), st.integers(0, 3)), min_size=1, max_size=6),
    members=st.integers(1, 3),
    keeps=st.sampled_from(Keeps),
)
def test_sticky_dealing_keeps_as_much_as_any_equal_dealing_could(homes, members, keeps):
    loads = {TopicPartition("t", n): 1 for n in range(len(homes))}
    before = Assignment({p: c for p, c in zip(loads, homes, strict=True) if c is not None})
    options = PackingOptions(members=members, sticky_keeps=keeps)
    after = CONSUMERS["kafka-sticky"](loads, before, GroupLimits(capacity=1), options)
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
