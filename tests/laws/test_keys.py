"""Laws of every planner for keys, and the promises of each."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.model.codec import counts_to, dumps
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import home
from trimtab.model.plan import KeyReason, Layer
from trimtab.model.plan_codec import plan_to
from trimtab.plan.keys.bounds import balancing_error, imbalance, least_peak
from trimtab.plan.keys.greedy import rebalanced
from trimtab.plan.keys.plan import hot_loads, moved_totals, plan_keys
from trimtab.plan.keys.planner import (
    BalancedLoad,
    CoolBelow,
    InitialPlace,
    KeyContext,
    KeyPlanner,
    WorthTest,
)
from trimtab.plan.keys.smalops import SMALOPS, SmalopsOptions, smalops
from trimtab.plan.keys.tracking import tracked_keys
from trimtab.plan.keys.trim import TRIM, TrimKeysOptions, trim
from trimtab.plan.registry import PLANNERS
from trimtab.testing.strategies import key_windows
from trimtab_lab.reference_scans.keys import greedy_arrays, greedy_scan, smalops_scan

usual = settings(deadline=None, max_examples=100)
few = settings(deadline=None, max_examples=40)

OPTIONS = st.builds(
    SmalopsOptions,
    cool_below=st.sampled_from(CoolBelow),
    initial=st.sampled_from(InitialPlace),
    load=st.sampled_from(BalancedLoad),
)
LIMITS = st.one_of(st.none(), st.integers(0, 5))


@st.composite
def planners(draw) -> KeyPlanner:
    """Any planner for keys, with any options that change which moves are made."""
    common = {
        "cool_below": draw(st.sampled_from(CoolBelow)),
        "max_moves": draw(LIMITS),
        "worth": draw(st.sampled_from(WorthTest)),
        "service_s": 0.002,
        "state_s": 0.01,
    }
    if draw(st.booleans()):
        more = {"noise": draw(st.integers(0, 5)), "tolerance": draw(st.sampled_from([0, 0.1]))}
        return TRIM.with_options(**common, **more)
    more = {
        "initial": draw(st.sampled_from(InitialPlace)),
        "load": draw(st.sampled_from(BalancedLoad)),
    }
    return SMALOPS.with_options(**common, **more)


def test_the_registry_has_both_planners() -> None:
    assert dict(PLANNERS[Layer.KEYS]) == {"smalops": SMALOPS, "trim": TRIM}


@usual
@given(counts=key_windows(), planner=planners(), number=st.integers(0, 3))
def test_a_key_moves_at_most_once_from_where_it_is_and_the_table_agrees(counts, planner, number):
    decision = planner(counts, KeyContext(plan_number=number))

    places = {key.key: key.partition for key in counts.keys}
    moved = {move.key: move for move in decision.moves}
    assert len(moved) == len(decision.moves)
    for move in decision.moves:
        assert move.source == places[move.key] != move.target
        assert 0 <= move.target < counts.partitions
    if planner.options.max_moves is not None:
        assert len(moved) <= planner.options.max_moves
    after = places | {move.key: move.target for move in decision.moves}
    for key, partition in decision.routes.items():
        assert after[key] == partition
    for key in counts.keys:  # whoever is not in the table is at home
        if key.key not in decision.routes:
            assert after[key.key] == home(key.key, counts.partitions)


@usual
@given(
    counts=key_windows(),
    planner=planners(),
    number=st.integers(0, 3),
    shuffled=st.randoms(use_true_random=False),
)
def test_the_order_of_the_input_does_not_matter(
    counts, planner, number, shuffled: random.Random
) -> None:
    mixed = list(counts.keys)
    shuffled.shuffle(mixed)
    context = KeyContext(plan_number=number)

    other = planner(replace(counts, keys=tuple(mixed)), context)
    decision = planner(counts, context)

    assert other == decision


@pytest.mark.parametrize("planner", ["smalops", "trim"])
def test_two_processes_with_other_hash_seeds_make_the_same_plan(planner: str) -> None:
    program = (
        "import sys; from trimtab.model.codec import counts_from, dumps;"
        "from trimtab.model.json_reader import parse; from trimtab.plan.keys.plan import plan_keys;"
        "from trimtab.model.plan_codec import plan_to;"
        "counts = counts_from(parse(sys.stdin.read(), origin='counts'));"
        f"print(dumps(plan_to(plan_keys(counts, planner='{planner}', made_ts=7))))"
    )
    counts = _skewed()
    text = dumps(counts_to(counts))
    found = [
        subprocess.run(
            [sys.executable, "-c", program],
            input=text,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "4711")
    ]

    assert found[0] == found[1]
    here = plan_to(plan_keys(counts, planner=planner, made_ts=7))
    assert json.loads(found[0]) == json.loads(dumps(here))
    assert here["moves"]


def _skewed():
    counts = {b"key-%d" % n: 20_000 // (n + 2) for n in range(200)}
    totals = [1000] * 6
    for key, count in counts.items():
        totals[home(key, 6)] += count
    keys = tuple(KeyCount(key=k, count=c, partition=home(k, 6)) for k, c in counts.items())
    return KeyCounts(
        partitions=6, window_s=10, threshold=100, keys=keys, partition_totals=tuple(totals)
    )


@usual
@given(counts=key_windows(), planner=planners(), number=st.integers(0, 3))
def test_the_inverse_undoes_a_plan(counts, planner, number):
    plan = plan_keys(counts, planner=planner, made_ts=1, context=KeyContext(plan_number=number))

    places = {key.key: key.partition for key in counts.keys}
    after = dict(places)
    for move in plan.moves:
        assert after[move.key] == move.source
        after[move.key] = move.target
    for undo in plan.inverse:
        assert after[undo.key] == undo.source
        after[undo.key] = undo.target
    assert after == places


@usual
@given(counts=key_windows(), planner=planners())
def test_no_plan_beats_the_bound(counts, planner):
    plan = plan_keys(counts, planner=planner, made_ts=1)

    assert plan.bound <= plan.after.imbalance
    assert plan.bound <= plan.before.imbalance
    assert plan.gap == pytest.approx(plan.after.imbalance / plan.bound - 1, abs=1e-12)


@few
@given(counts=key_windows(most_partitions=3, most_keys=6, exact=True))
def test_the_bound_holds_for_every_placement(counts):
    keys = counts.keys
    places: list[list[int]] = [[]]
    for _ in keys:
        places = [[*chosen, p] for chosen in places for p in range(counts.partitions)]
    others = [t - c for t, c in zip(counts.partition_totals, counts.listed, strict=True)]

    best = min(
        max(
            own + sum(k.count for k, at in zip(keys, chosen, strict=True) if at == p)
            for p, own in enumerate(others)
        )
        for chosen in places
    )

    assert least_peak(counts.partition_totals, keys) <= best


# ---------------------------------------------------------------- smalops


@usual
@given(counts=key_windows(), options=OPTIONS, number=st.integers(0, 3))
def test_smalops_decides_as_the_specification_read_literally(counts, options, number):
    moved, routes = smalops_scan(counts, options, number)

    decision = smalops(counts, options, KeyContext(plan_number=number))

    assert {move.key: move.target for move in decision.moves} == moved
    assert decision.routes == routes


@usual
@given(counts=key_windows(exact=True))
def test_the_fast_greedy_makes_the_moves_of_the_literal_one_in_its_order(counts):
    keys: dict[int, list[KeyCount]] = {}
    for key in counts.keys:
        keys.setdefault(key.partition, []).append(key)
    loads = counts.listed

    steps = [(s.key.key, s.source, s.target) for s in rebalanced(loads, keys)]

    places = {k.key: (k.count, k.partition) for k in counts.keys}
    for scan in (greedy_scan, greedy_arrays):
        slow = counts.listed
        assert (steps, loads) == (scan(slow, places), slow)


@usual
@given(counts=key_windows(exact=True))
def test_every_balance_move_lowers_the_balancing_error(counts):
    keys: dict[int, list[KeyCount]] = {}
    for key in counts.keys:
        keys.setdefault(key.partition, []).append(key)
    loads = counts.listed
    error = balancing_error(loads)

    for _ in rebalanced(loads, keys):
        lower = balancing_error(loads)
        assert lower < error
        error = lower


@usual
@given(counts=key_windows(), load=st.sampled_from(BalancedLoad), limit=LIMITS)
def test_without_placing_a_plan_lowers_the_error_if_it_balances_at_all(counts, load, limit):
    planner = SMALOPS.with_options(initial=InitialPlace.HOME, load=load, max_moves=limit)

    plan = plan_keys(counts, planner=planner, made_ts=1)

    reasons = {move.reason for move in plan.moves}
    if load is BalancedLoad.TOTAL and KeyReason.COOL in reasons:
        return  # going home may raise the error of the total load
    if KeyReason.BALANCE in reasons:
        assert plan.after.e_lb < plan.before.e_lb
    else:
        assert plan.after.e_lb == plan.before.e_lb


@usual
@given(counts=key_windows(), options=OPTIONS)
def test_the_reasons_of_smalops_can_be_recomputed_from_their_numbers(counts, options):
    m = counts.partitions
    for move in smalops(counts, options).moves:
        numbers = move.numbers
        if move.reason is KeyReason.BALANCE:
            assert m * numbers["load_from"] > numbers["total"] > m * numbers["load_to"]
            assert 0 < move.count < numbers["load_from"] - numbers["load_to"]
        elif move.reason is KeyReason.PLACE:
            a, b = (
                (numbers["choice_a"], numbers["load_a"]),
                (
                    numbers["choice_b"],
                    numbers["load_b"],
                ),
            )
            assert move.target == min(a, b, key=lambda c: (c[1], c[0]))[0]
        else:
            half = options.cool_below is CoolBelow.HALF
            assert numbers["upper"] * (2 if half else 1) < numbers["threshold"]
            assert move.target == home(move.key, m)


@few
@given(counts=key_windows(), planner=planners(), chosen=st.sets(st.integers(0, 29)))
def test_a_key_whose_last_move_is_not_finished_stays_and_is_counted(counts, planner, chosen):
    busy = frozenset(k.key for i, k in enumerate(counts.keys) if i in chosen)

    decision = planner(counts, KeyContext(busy=busy))

    assert busy.isdisjoint(move.key for move in decision.moves)
    tracked = tracked_keys(counts, planner.options)
    every = {k.key for k in tracked.tracked} | {k.key for k, _ in tracked.cooled}
    assert decision.skipped == len(busy & every)
    for key in counts.keys:
        if key.key in busy and key.routed and key.partition != home(key.key, counts.partitions):
            assert decision.routes[key.key] == key.partition


# ---------------------------------------------------------------- trim


@usual
@given(counts=key_windows(), planner=planners())
def test_trim_never_ends_with_a_busier_partition_than_it_began_with(counts, planner):
    if planner.name != "trim":
        planner = TRIM
    decision = planner(counts)

    highest = max(counts.partition_totals)
    loads = list(counts.partition_totals)
    for move in decision.moves:  # also not while the moves are made, one after another
        loads[move.source] -= move.count
        loads[move.target] += move.count
        assert max(loads) <= highest


@usual
@given(counts=key_windows())
def test_trim_leaves_a_load_within_the_dead_band_alone(counts):
    decision = trim(counts)

    total, m = counts.records, counts.partitions
    excess = m * max(counts.partition_totals) - total
    if excess**2 <= TrimKeysOptions().noise ** 2 * m * total or excess * 100 <= total:
        assert {move.reason for move in decision.moves} <= {KeyReason.COOL}


@usual
@given(counts=key_windows())
def test_only_keys_away_from_home_are_in_the_table_of_trim(counts):
    for key, partition in trim(counts).routes.items():
        assert partition != home(key, counts.partitions)


@usual
@given(counts=key_windows())
def test_a_second_plan_of_trim_for_the_same_load_does_not_make_it_worse(counts):
    first = trim(counts)
    target = {move.key: move.target for move in first.moves}
    again = replace(
        counts,
        keys=tuple(
            replace(
                key,
                partition=target.get(key.key, key.partition),
                routed=key.key in first.routes,
            )
            for key in counts.keys
        ),
        partition_totals=tuple(moved_totals(counts.partition_totals, first.moves)),
    )

    second = trim(again)

    assert imbalance(again.partition_totals) <= imbalance(counts.partition_totals)
    assert max(moved_totals(again.partition_totals, second.moves)) <= max(again.partition_totals)


@few
@given(counts=key_windows())
def test_hot_loads_add_up(counts):
    plan = plan_keys(counts, planner="smalops", made_ts=1)
    tracked = tracked_keys(counts, SMALOPS.options).tracked

    before, after = (hot_loads(tracked, counts.partitions, moves) for moves in ((), plan.moves))

    assert sum(before) == sum(after)
    assert Fraction(plan.after.e_lb) == pytest.approx(float(balancing_error(after)))
