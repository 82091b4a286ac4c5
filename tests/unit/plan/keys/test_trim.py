"""Trim for keys: few moves, none for noise, none that harms."""

from dataclasses import replace

import numpy as np

from tests.unit.plan.keys.windows import window
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import home, homes
from trimtab.model.plan import KeyReason
from trimtab.plan.keys.bounds import imbalance
from trimtab.plan.keys.plan import moved_totals
from trimtab.plan.keys.planner import KeyContext
from trimtab.plan.keys.smalops import PAPER_MODE, SMALOPS
from trimtab.plan.keys.trim import TRIM, TrimKeysOptions, trim
from trimtab.workload.key_streams import ZipfMandelbrot, key_bytes

EXACT = TrimKeysOptions(noise=0, tolerance=0.0)


def test_the_largest_key_that_fits_goes_to_the_partition_that_it_fills_best():
    keys = {b"a": (900, 0), b"b": (280, 0), b"c": (60, 0)}

    decision = trim(window(keys, (1600, 1000, 1240)), EXACT)

    assert [(m.key, m.source, m.target) for m in decision.moves[:1]] == [(b"b", 0, 1)]
    assert decision.moves[0].numbers["load_from"] == 1600


def test_nothing_moves_within_the_noise_or_the_tolerance():
    keys = {b"a": (40, 0), b"b": (30, 1)}
    counts = window(keys, (1060, 1000, 940))

    assert trim(counts).moves == ()
    assert trim(counts, replace(EXACT, noise=2)).moves == ()
    assert trim(counts, replace(EXACT, tolerance=0.1)).moves == ()
    assert trim(counts, EXACT).moves != ()


def test_a_key_too_large_to_move_is_left_and_the_other_partitions_are_still_relieved():
    # Partition 0 is one giant key; 1 and 2 can share their load.
    keys = {b"g": (9000, 0), b"a": (1000, 1), b"b": (1000, 1), b"c": (1000, 1)}

    decision = trim(window(keys, (9000, 4000, 1000)))

    assert {m.source for m in decision.moves} == {1}
    assert {m.target for m in decision.moves} == {2}


def test_beside_a_giant_key_the_other_partitions_are_made_as_even_as_they_can_be():
    # One move leaves 3200 and 2200, and the peak is that of the giant in any case.
    keys = {b"g": (49_000, 0), b"a": (600, 1), b"b": (800, 1), b"c": (2000, 1), b"d": (1100, 2)}
    counts = window(keys, (50_000, 4200, 1200))

    after = moved_totals(counts.partition_totals, trim(counts).moves)

    assert after == [50_000, 2800, 2600]


def test_a_move_that_only_swaps_the_busiest_is_not_made():
    assert trim(window({b"a": (900, 0)}, (1000, 150)), EXACT).moves == ()


def test_a_key_with_room_at_home_goes_home_and_leaves_the_table():
    name = next(b"%d" % n for n in range(99) if home(b"%d" % n, 3) == 2)
    keys = {name: (300, 0), b"x": (320, 0)}

    decision = trim(window(keys, (1400, 1000, 900), routed=frozenset({name})))

    assert [(m.key, m.target) for m in decision.moves] == [(name, 2)]
    assert decision.routes == {}


def test_a_cooled_key_goes_home_unless_that_would_make_it_the_busiest_partition():
    name = next(b"%d" % n for n in range(99) if home(b"%d" % n, 2) == 1)
    routed = frozenset({name})

    goes = trim(window({name: (40, 0)}, (500, 400), routed=routed, threshold=100))
    stays = trim(window({name: (40, 0)}, (440, 430), routed=routed, threshold=100))

    assert [(m.target, m.reason) for m in goes.moves] == [(1, KeyReason.COOL)]
    assert stays.moves == ()
    assert stays.routes == {name: 0}


def test_cooled_keys_that_go_home_do_not_undo_the_relief():
    # Without a limit all five go back to the partition that has just been relieved.
    cold = [b"%d" % n for n in range(99) if home(b"%d" % n, 2) == 0][:10]
    keys = {b"big": (250, 0)} | dict.fromkeys(cold, (49, 1))
    counts = window(keys, (1000, 500), routed=frozenset(cold), threshold=100)

    decision = trim(counts)

    assert [m.key for m in decision.moves] == [b"big"]
    assert decision.routes == {b"big": 1} | dict.fromkeys(cold, 1)


def test_cooled_keys_do_not_make_their_home_as_busy_as_the_relieved_partition_was():
    cold = [b"%d" % n for n in range(99) if home(b"%d" % n, 2) == 1][:5]
    keys = {b"big": (245, 0)} | dict.fromkeys(cold, (49, 0))
    counts = window(keys, (1000, 510), routed=frozenset(cold), threshold=100)

    after = moved_totals(counts.partition_totals, trim(counts).moves)

    assert max(after) < 800


def test_balance_moves_come_first_if_the_number_of_moves_is_limited():
    cold = next(b"%d" % n for n in range(99) if home(b"%d" % n, 2) == 1)
    keys = {b"a": (900, 0), b"b": (300, 0), cold: (1, 0)}
    counts = window(keys, (1700, 1100), routed=frozenset({cold}))

    one = trim(counts, TrimKeysOptions(max_moves=1))

    assert [m.reason for m in one.moves] == [KeyReason.BALANCE]
    assert {m.reason for m in trim(counts).moves} == {KeyReason.BALANCE, KeyReason.COOL}


def test_a_test_of_moves_leaves_keys_whose_state_is_too_costly():
    keys = {b"a": (900, 0), b"b": (300, 0)}
    counts = window(keys, (1700, 1100))

    costly = TrimKeysOptions(service_s=0.001, state_s=60.0)

    assert trim(counts).moves != ()
    assert trim(counts, costly).moves == ()


def windows_of(rate, seed, count):
    """Independent windows of the workload of the paper, as (keys, counts)."""
    rng = np.random.default_rng(seed)
    zipf = ZipfMandelbrot()
    for _ in range(count):
        yield np.unique(zipf.sample(rng.poisson(rate), rng), return_counts=True)


def test_on_the_acceptance_layout_few_keys_move_once_and_the_load_is_as_even_as_with_smalops():
    # A tenth of the windows' records, and a tenth of the threshold: the same keys are hot.
    tables: dict[str, dict[bytes, int]] = {"trim": {}, "paper": {}}
    moves = dict.fromkeys(tables, 0)
    peaks: dict[str, list[float]] = {name: [] for name in tables}
    planners = {"trim": TRIM, "paper": replace(SMALOPS, options=PAPER_MODE)}
    for number, (numbers, counts) in enumerate(windows_of(112_400, seed=5, count=4)):
        at_home = homes(key_bytes(numbers), 8)
        names = key_bytes(numbers)
        place = dict(zip(names, at_home.tolist(), strict=True))
        records = dict(zip(names, counts.tolist(), strict=True))
        for name, planner in planners.items():
            table = tables[name]
            route = place | {key: p for key, p in table.items() if key in place}
            totals = np.bincount(list(route.values()), list(records.values()), 8).astype(int)
            listed = {key for key, c in records.items() if c >= 10} | table.keys()
            window_counts = KeyCounts(
                partitions=8,
                window_s=1,
                threshold=10,
                keys=tuple(
                    KeyCount(
                        key=key,
                        count=records.get(key, 0),
                        partition=route.get(key, table.get(key, 0)),
                        routed=key in table,
                    )
                    for key in listed
                ),
                partition_totals=tuple(totals.tolist()),
            )
            decision = planner(window_counts, KeyContext(plan_number=number))
            if number:
                peaks[name].append(float(imbalance(window_counts.partition_totals)))
            after = moved_totals(window_counts.partition_totals, decision.moves)
            assert imbalance(after) < 1.05
            tables[name] = dict(decision.routes)
            moves[name] += len(decision.moves)

    assert 50 * moves["trim"] < moves["paper"]
    assert 50 * len(tables["trim"]) < len(tables["paper"])
    assert np.mean(peaks["trim"]) < np.mean(peaks["paper"]) + 0.01
