"""Plans for keys as text and as a figure."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.plan.keys.windows import window
from tests.unit.report.test_plans import text_of
from trimtab.model.key_counts import KeyCount, KeyCounts
from trimtab.model.murmur2 import home
from trimtab.model.plan import KeyMove, KeyReason
from trimtab.plan.keys.plan import plan_keys
from trimtab.report.key_plans import key_plan_view, key_reason
from trimtab.report.key_plots import partition_loads
from trimtab.report.plan_page import plan_page

COUNTS = window({b"a": (900, 0), b"<b>": (300, 0)}, (1700, 1100))
PLAN = plan_keys(COUNTS, planner="trim", made_ts=7)


def move(reason: KeyReason, **numbers: float) -> KeyMove:
    return KeyMove(key=b"k", source=0, target=1, count=5, reason=reason, numbers=numbers)


def test_every_reason_is_a_sentence_with_its_numbers() -> None:
    assert key_reason(move(KeyReason.COOL, upper=3, threshold=10)) == (
        "cool: at most 3 records, a hot key has 10; it goes home"
    )
    assert (
        key_reason(move(KeyReason.PLACE, choice_a=1, choice_b=2, load_a=5, load_b=9))
        == "place: of partitions 1 with 5 and 2 with 9, the less loaded"
    )
    assert key_reason(move(KeyReason.BALANCE, load_from=9, load_to=1, total=10)) == (
        "balance: partition 0 had 9, 1 had 1"
    )
    placed = move(KeyReason.BALANCE, load_from=9, load_to=1, total=10, placed=4)
    assert "partition 4 had 9" in key_reason(placed)
    assert key_reason(move(KeyReason.BALANCE, mean=10)) == "balance: mean 10"
    assert key_reason(move(KeyReason.COOL)) == "cool"


def test_a_key_is_shown_on_one_line_without_control_characters() -> None:
    counts = window({b"[b]a\x1b[31m\nx": (300, 0), b"z": (900, 0)}, (1700, 1100))

    shown = text_of(key_plan_view(plan_keys(counts, planner="trim", made_ts=7)))

    assert r"[b]a\x1b[31m\nx" in shown


def test_a_plan_without_moves_says_so() -> None:
    shown = text_of(key_plan_view(replace(PLAN, moves=())))

    assert "No key moves." in shown


def test_only_the_busiest_partitions_and_the_first_moves_are_shown() -> None:
    keys = tuple(
        KeyCount(key=b"%d" % n, count=100 + n, partition=home(b"%d" % n, 60)) for n in range(400)
    )
    totals = [1000] * 60
    for key in keys:
        totals[key.partition] += key.count
    counts = KeyCounts(
        partitions=60, window_s=1, threshold=1, keys=keys, partition_totals=tuple(totals)
    )

    shown = text_of(key_plan_view(plan_keys(counts, planner="smalops", made_ts=7), counts))

    assert "the 40 busiest of 60" in shown
    assert "more (--json has all)" in shown


def test_the_figure_has_every_partition_before_and_after_and_names_large_keys() -> None:
    svg = partition_loads(COUNTS, PLAN)

    assert svg.startswith("<svg")
    assert "keys that move" in svg
    assert "&lt;b&gt;" in svg
    assert partition_loads(COUNTS, PLAN) == svg


def test_the_page_has_the_figure_only_with_counts() -> None:
    drawn = 'aria-label="load of each partition, before and after"'

    assert drawn in plan_page(PLAN, counts=COUNTS)
    assert "The records of each partition in the window" in plan_page(PLAN, counts=COUNTS)
    assert drawn not in plan_page(PLAN)
