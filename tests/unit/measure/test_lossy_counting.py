"""Lossy counting: buckets, merging, and what is refused."""

from __future__ import annotations

import pytest

from trimtab.errors import MeasurementError
from trimtab.measure.lossy_counting import Bounds, Entry, LossyCounter, Summary, bucket_width


def counted(epsilon: float, keys: str) -> LossyCounter:
    counter = LossyCounter(epsilon)
    for key in keys:
        counter.add(key.encode())
    return counter


@pytest.mark.parametrize(
    ("epsilon", "width"), [(0.5, 2), (0.1, 10), (0.3, 4), (1e-6, 1_000_000), (0.0001, 10_000)]
)
def test_a_bucket_is_as_wide_as_the_decimal_epsilon_says(epsilon, width):
    assert bucket_width(epsilon) == width


@pytest.mark.parametrize("epsilon", [0, 1, -0.1, 2, float("nan")])
def test_an_epsilon_outside_its_range_is_refused(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        LossyCounter(epsilon)


def test_an_entry_goes_at_the_end_of_a_bucket_in_which_it_did_not_earn_its_place():
    #       bucket 1 | bucket 2 | bucket 3
    counter = counted(0.25, "aabc" + "aade" + "abbb")
    # a: f=5, d=0; b: gone after bucket 1, back in bucket 3 with d=2
    assert counter.bounds(b"a") == Bounds(5, 5)
    assert counter.bounds(b"b") == Bounds(3, 5)
    assert counter.bounds(b"c") == Bounds(0, 3)
    assert (counter.n, counter.max_error, counter.entries) == (12, 3, 2)


def test_a_count_that_completes_many_buckets_prunes_like_the_last_of_them():
    counter = counted(0.25, "xy")
    counter.add(b"a", 100)
    assert counter.max_error == 25
    assert dict(counter.items()) == {b"a": Bounds(100, 100)}


def test_nothing_is_pruned_inside_a_bucket():
    assert counted(0.25, "abc").entries == 3
    assert counted(0.25, "abcd").entries == 0


def test_a_threshold_within_the_error_is_refused_with_a_hint():
    counter = counted(0.25, "aaaaaaaa")
    with pytest.raises(MeasurementError, match="threshold of 2 records") as refused:
        counter.hot(2)
    assert "smaller epsilon" in (refused.value.hint or "")
    assert set(counter.hot(3)) == {b"a"}


def test_a_count_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        LossyCounter(0.1).add(b"a", 0)


def test_merging_adds_what_each_part_may_have_missed():
    one, other = counted(0.25, "aaab"), counted(0.25, "aacc" + "dd")
    merged = one.merge(other)
    assert (merged.n, merged.b) == (10, 2)
    assert merged.tracked == {b"a": Entry(5, 0), b"c": Entry(2, 1), b"d": Entry(2, 2)}
    assert (one.n, other.n) == (4, 6)


def test_pruning_a_merged_summary_drops_only_keys_that_an_absent_one_could_equal():
    one, other = counted(0.25, "aaab"), counted(0.25, "bcde" + "c")
    merged = one.merge(other)
    assert merged.tracked == {b"a": Entry(3, 1), b"c": Entry(1, 2)}
    assert merged.pruned().tracked == {b"a": Entry(3, 1), b"c": Entry(1, 2)}
    assert merged.merge(counted(0.25, "vwxy")).pruned().tracked == {
        b"a": Entry(3, 2),
        b"c": Entry(1, 3),
    }


def test_a_merged_summary_refuses_further_records():
    merged = counted(0.25, "a").merge(counted(0.25, "b"))
    with pytest.raises(MeasurementError, match="no more records"):
        merged.add(b"a")


def test_summaries_of_different_epsilon_are_not_merged():
    with pytest.raises(ValueError, match="bucket widths"):
        counted(0.25, "a").merge(counted(0.5, "a"))


def test_a_summary_with_more_buckets_than_records_is_refused():
    with pytest.raises(ValueError, match="do not match"):
        Summary(width=10, n=9, b=1, tracked={})


def test_keys_of_any_bytes_survive_being_written():
    summary = Summary(
        width=10,
        n=25,
        b=2,
        tracked={b"": Entry(3, 0), b"\x00\xff": Entry(2**40, 1), b"k" * 70_000: Entry(4, 2)},
    )
    assert Summary.from_bytes(summary.to_bytes()) == summary


def test_equal_summaries_have_equal_bytes_whatever_their_order():
    one = Summary(width=10, n=9, b=0, tracked={b"a": Entry(1, 0), b"b": Entry(2, 0)})
    other = Summary(width=10, n=9, b=0, tracked={b"b": Entry(2, 0), b"a": Entry(1, 0)})
    assert one.to_bytes() == other.to_bytes()


def test_the_written_form_is_compact():
    tracked = {b"key-%d" % i: Entry(i, i % 7) for i in range(5000)}
    summary = Summary(width=10, n=10**6, b=7, tracked=tracked)
    assert len(summary.to_bytes()) < 10 * len(tracked)


@pytest.mark.parametrize("cut", [0, 3, 10, -1])
def test_cut_bytes_are_refused(cut):
    with pytest.raises(ValueError, match="counter"):
        Summary.from_bytes(counted(0.25, "aab").to_bytes()[:cut])
