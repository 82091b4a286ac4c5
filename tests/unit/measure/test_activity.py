"""Which part of a span a rate is over."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.measure.activity import SLOTS, Activity, note_on, recurring_pause, used
from trimtab.measure.windows import MICROS

HOUR = (0, 3600 * MICROS)


def steady(
    first_s: float, last_s: float, *, pause_s: float, rhythm_s: float = 0.5, born: bool = False
) -> Activity:
    return Activity(
        first_ts=round(first_s * MICROS),
        last_ts=round(last_s * MICROS),
        records=round((last_s - first_s) / pause_s) + 1,
        rhythm_us=rhythm_s * MICROS,
        born=born,
    )


@pytest.mark.parametrize(
    ("what", "found", "seconds", "complete"),
    [
        ("no records at all: idle", None, 3600.0, True),
        ("a single record", steady(10, 10, pause_s=1), 3600.0, True),
        ("a few records long ago", steady(10, 14, pause_s=1), 3600.0, True),
        ("all the time", steady(0.01, 3599.9, pause_s=0.01), 3600.0, True),
        ("a minute old", steady(3540, 3599.99, pause_s=0.01), 60.0, False),
        ("ended a while ago", steady(0, 3579.99, pause_s=0.01), 3580.0, True),
        ("ended half an hour ago", steady(0, 1799.99, pause_s=0.01), 1800.0, False),
        ("in the middle", steady(1000, 1099.9, pause_s=0.1), 100.0, False),
        # one record a minute: a minute without any is nothing
        ("sparse", steady(50, 3550, pause_s=60, rhythm_s=60), 3600.0, True),
        # bursts of 1 s every minute, the last of them 40 s ago: the pauses are part of the load
        ("bursty", steady(20, 3560, pause_s=0.01, rhythm_s=59), 3600.0, True),
        # the same bursts, and then none for twice as long
        ("bursty, ended", steady(20, 3479.99, pause_s=0.01, rhythm_s=59), 3480.0, True),
        # nothing can have been before the very first record, however the topic pauses later
        ("bursty, new", steady(500, 3599, pause_s=0.1, rhythm_s=700), 3600.0, True),
        ("bursty, born", steady(500, 3599, pause_s=0.1, rhythm_s=700, born=True), 3100.0, False),
        ("few, born", steady(3540, 3580, pause_s=10, rhythm_s=10, born=True), 60.0, False),
        ("few, not born", steady(3540, 3580, pause_s=10, rhythm_s=10), 3600.0, True),
        ("sparse, born", steady(50, 3550, pause_s=60, rhythm_s=60, born=True), 3600.0, True),
        ("one burst of a second", steady(100, 101, pause_s=0.001), 3600.0, False),
    ],
)
def test_an_end_of_the_span_without_records_is_left_out(what, found, seconds, complete) -> None:
    answer = used(HOUR, found, min_span_s=3.0)

    assert answer.seconds == pytest.approx(seconds, abs=0.2), what
    assert answer.complete is complete, what


def test_what_is_left_out_is_said_with_both_lengths() -> None:
    young = used(HOUR, steady(3540, 3599.99, pause_s=0.01), min_span_s=3.0)
    burst = used(HOUR, steady(100, 101, pause_s=0.001), min_span_s=3.0)

    assert note_on("orders", used(HOUR, None, min_span_s=3.0)) is None
    assert note_on("orders", young) == (
        "orders: records only from 00:59:00 to 01:00:00 UTC; "
        "its rates are over these 60.0 s, not over the requested 3600 s"
    )
    assert "too short for a rate" in (note_on("orders", burst) or "")


def activity(*spans: tuple[int, int], pause_s: float = 0.1) -> Activity:
    """A topic that flows in these spans of seconds, slot by slot of a second."""
    words: dict[int, int] = {}
    for second in (s for first, last in spans for s in range(first, last)):
        words[second // SLOTS] = words.get(second // SLOTS, 0) | 1 << second % SLOTS
    return Activity(
        first_ts=spans[0][0] * MICROS,
        last_ts=round((spans[-1][1] - pause_s) * MICROS),
        records=round(sum(last - first for first, last in spans) / pause_s),
        rhythm_us=recurring_pause(words.items(), slot_us=MICROS),
    )


def test_one_pause_does_not_hide_that_a_load_has_ended() -> None:
    #   asked    0 ────────────────────────────── 300
    #   once     0 ─── 100      145 ──── 260          a pause of 45 s, ended 40 s ago
    #   rhythm   0 ─ 80   125 ─ 170  215 ─ 260        two pauses of 45 s, and 40 s since the last
    asked = (0, 300 * MICROS)
    once = used(asked, activity((0, 100), (145, 260)), min_span_s=3.0)
    rhythm = used(asked, activity((0, 80), (125, 170), (215, 260)), min_span_s=3.0)

    assert once.seconds == pytest.approx(260.0, abs=0.2)
    assert not once.complete
    assert "its rates are over these 260" in (note_on("orders", once) or "")
    assert (rhythm.seconds, rhythm.complete) == (300.0, True)
    assert note_on("orders", rhythm) == (
        "orders: no records in the last 40 s of the span; its rates include this time, "
        "because there was more than one pause of that length"
    )


def test_a_short_silent_end_that_is_counted_in_is_not_worth_a_note() -> None:
    found = used(HOUR, steady(20, 3560, pause_s=0.01, rhythm_s=59), min_span_s=3.0)

    assert note_on("orders", found) is None


def test_pauses_are_found_across_words() -> None:
    assert recurring_pause([], 1.0) == 0
    assert recurring_pause([(7, 1 << 59), (8, 1)], 0.5) == 0
    assert recurring_pause([(7, 1 << 59), (8, 0b11)], 0.5) == 0.5
    assert recurring_pause([(9, 1), (8, 0), (7, 1), (5, 1)], 2.0) == 2 * 2.0 * SLOTS


@given(st.sets(st.integers(0, 5 * SLOTS - 1), min_size=1))
def test_the_recurring_pause_is_the_second_longest_of_the_slots_in_order(slots: set[int]) -> None:
    words: dict[int, int] = {}
    for slot in slots:
        words[slot // SLOTS] = words.get(slot // SLOTS, 0) | 1 << slot % SLOTS
    ordered = sorted(slots)

    expected = sorted([0, 0, *(b - a for a, b in pairwise(ordered))])[-2]

    assert recurring_pause(words.items(), 1.0) == expected
