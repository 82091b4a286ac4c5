"""SMALOPS on small windows that one can check by hand."""

from dataclasses import replace

from tests.unit.plan.keys.windows import window
from trimtab.model.murmur2 import home
from trimtab.model.plan import KeyReason
from trimtab.plan.keys.planner import BalancedLoad, InitialPlace, KeyContext
from trimtab.plan.keys.smalops import PAPER_MODE, SMALOPS, SmalopsOptions, smalops
from trimtab.plan.keys.two_choices import two_choices

AT_HOME = SmalopsOptions(initial=InitialPlace.HOME)


def test_a_key_placed_and_then_balanced_moves_once_from_where_it_really_is():
    keys = {b"%d" % n: (40 + n, home(b"%d" % n, 4)) for n in range(12)}
    totals = [100] * 4
    for count, partition in keys.values():
        totals[partition] += count

    decision = smalops(window(keys, tuple(totals)), PAPER_MODE, KeyContext(plan_number=3))

    assert len({move.key for move in decision.moves}) == len(decision.moves)
    both = [m for m in decision.moves if "placed" in m.numbers]
    assert all(m.source == keys[m.key][1] for m in decision.moves)
    assert all(m.reason is KeyReason.BALANCE for m in both)
    for move in decision.moves:
        if move.reason is KeyReason.PLACE:
            assert move.target in two_choices(move.key, plan_number=3, partitions=4)
    assert set(decision.routes) == set(keys)  # also those that stay are tracked


def test_the_smallest_keys_of_the_busiest_partition_go_first_and_it_stops_at_the_mean():
    keys = {b"a": (30, 0), b"b": (20, 0), b"c": (10, 0)}

    decision = smalops(window(keys, (60, 0, 0)), AT_HOME)

    assert [(m.key, m.target) for m in decision.moves] == [(b"c", 1), (b"b", 2)]
    assert decision.moves[0].numbers == {"load_from": 60, "load_to": 0, "total": 60}


def test_a_placement_is_tested_with_the_load_that_its_partition_still_has():
    # 95 % busy with the key, 75 % without it: the state is worth moving only off the former.
    counts = window({b"a": (2000, 0)}, (9500, 4000))
    options = SmalopsOptions(load=BalancedLoad.TOTAL, service_s=0.001, state_s=0.5)

    (move,) = smalops(counts, options).moves

    assert (move.target, move.reason) == (1, KeyReason.PLACE)
    assert smalops(counts, replace(options, state_s=5.0)).moves == ()


def test_only_hot_load_is_looked_at_unless_the_total_is_asked_for():
    # Hot keys are even; all other records are on partition 0.
    keys = {b"a": (20, 0), b"b": (20, 1)}
    counts = window(keys, (90, 30))

    assert smalops(counts, AT_HOME).moves == ()
    balanced = smalops(counts, replace(AT_HOME, load=BalancedLoad.TOTAL))
    assert [(m.key, m.target) for m in balanced.moves] == [(b"a", 1)]


def test_a_cooled_key_goes_home_and_one_at_home_is_dropped_at_no_cost():
    away = 1 - home(b"a", 2)
    keys = {b"a": (1, away), b"b": (2, home(b"b", 2))}

    decision = smalops(window(keys, (50, 50), routed=frozenset(keys)), AT_HOME)

    (move,) = decision.moves
    assert (move.key, move.target, move.reason) == (b"a", home(b"a", 2), KeyReason.COOL)
    assert move.numbers == {"upper": 1, "threshold": 10}
    assert decision.routes == {}


def test_with_a_limit_the_first_moves_are_made():
    keys = {b"a": (30, 0), b"b": (20, 0), b"c": (10, 0)}
    counts = window(keys, (60, 0, 0))

    decision = smalops(counts, replace(AT_HOME, max_moves=1))

    assert [m.key for m in decision.moves] == [b"c"]
    assert smalops(counts, replace(PAPER_MODE, max_moves=0)).moves == ()


def test_one_partition_has_nothing_to_do():
    decision = smalops(window({b"a": (30, 0)}, (60,)))

    assert decision.moves == ()


def test_options_are_told_by_name():
    told = SMALOPS.with_options(max_moves=2)

    assert told.options == SmalopsOptions(max_moves=2)
    assert told.changed_options == {"max_moves": 2}
    assert told.options.balances is BalancedLoad.HOT
