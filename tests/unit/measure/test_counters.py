"""The exact and the DataSketches counter, and the three forms of a threshold."""

from __future__ import annotations

import pytest

from trimtab.errors import MeasurementError
from trimtab.measure.counters import (
    COUNTERS,
    Count,
    Coverage,
    ExactCounter,
    ItemsCounter,
    Share,
    from_bytes,
    hot_keys,
    threshold_records,
)
from trimtab.measure.lossy_counting import Bounds


def test_the_registry_names_three_counters():
    assert sorted(COUNTERS) == ["exact", "items", "lossy"]


@pytest.mark.parametrize("name", COUNTERS)
def test_merging_leaves_both_parts_as_they_were(name):
    one, other = COUNTERS[name](0.1), COUNTERS[name](0.1)
    one.add(b"a", 3)
    other.add(b"a", 4)
    merged = one.merge(other)
    assert [c.bounds(b"a") for c in (one, other, merged)] == [(3, 3), (4, 4), (7, 7)]


@pytest.mark.parametrize("name", COUNTERS)
def test_counters_of_different_kinds_do_not_merge(name):
    for other in COUNTERS:
        if other != name:
            with pytest.raises(ValueError, match="merge"):
                COUNTERS[name](0.1).merge(COUNTERS[other](0.1))


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("c", [0, -1])
def test_a_count_below_one_is_refused(name, c):
    with pytest.raises(ValueError, match="at least 1"):
        COUNTERS[name](0.1).add(b"a", c)


@pytest.mark.parametrize("name", COUNTERS)
def test_every_byte_is_told_apart(name):
    counter = COUNTERS[name](0.001)
    keys = [bytes([byte]) for byte in range(256)] + [b"", b"\x00\x00", "é".encode()]
    for key in keys:
        counter.add(key)
    assert dict(counter.items()) == dict.fromkeys(keys, Bounds(1, 1))
    assert dict(from_bytes(counter.to_bytes()).items()) == dict.fromkeys(keys, Bounds(1, 1))


@pytest.mark.parametrize("data", [b"", b"XXXX", b"TTI1", b"TTI1\x03", b"TTI1\x03abc", b"TTE1abc"])
def test_other_bytes_are_not_taken_for_a_counter(data):
    with pytest.raises(ValueError, match="counter"):
        from_bytes(data)


@pytest.mark.parametrize(
    ("epsilon", "lg_max_k"), [(0.5, 3), (3.5 / 1024, 10), (0.0034, 11), (0.0001, 16)]
)
def test_the_items_table_is_the_smallest_within_epsilon(epsilon, lg_max_k):
    assert ItemsCounter.for_epsilon(epsilon).lg_max_k == lg_max_k


def test_the_items_counter_refuses_a_threshold_at_which_the_sketch_would_stay_silent():
    counter = ItemsCounter(3)
    for i in range(200):
        counter.add(b"%d" % i)
    error = counter.max_error
    assert error > 1
    with pytest.raises(MeasurementError, match=f"error bound of {error}"):
        counter.hot(error)
    assert all(bounds.upper > error for bounds in counter.hot(error + 1).values())


def test_an_exact_counter_restored_from_counts_knows_their_sum():
    assert ExactCounter({b"a": 2, b"b": 5}).n == 7


@pytest.mark.parametrize(
    ("form", "n", "records"),
    [
        (Count(100), 5, 100),
        (Share(0.1), 30, 3),  # 0.1 * 30 is 3.0000000000000004 in floats
        (Share(0.001), 1500, 2),
        (Share(0.001), 0, 1),
        (Share(1), 7, 7),
    ],
)
def test_a_threshold_in_records(form, n, records):
    assert threshold_records(form, n) == records


def test_coverage_takes_the_fewest_top_keys_and_breaks_ties_by_key_bytes():
    counter = ExactCounter({b"d": 2, b"a": 4, b"c": 2, b"b": 2})
    assert list(hot_keys(Coverage(0.4), counter)) == [b"a"]
    assert list(hot_keys(Coverage(0.6), counter)) == [b"a", b"b"]
    assert list(hot_keys(Coverage(0.61), counter)) == [b"a", b"b", b"c"]
    assert list(hot_keys(Coverage(1), counter)) == [b"a", b"b", b"c", b"d"]


def test_coverage_of_an_empty_window_is_empty():
    assert hot_keys(Coverage(0.5), ExactCounter()) == {}


def test_coverage_beyond_what_a_sketch_knows_for_certain_is_refused():
    counter = COUNTERS["lossy"](0.1)
    for i in range(100):
        counter.add(b"%d" % i)
    with pytest.raises(MeasurementError, match="50 are required"):
        hot_keys(Coverage(0.5), counter)


def test_share_and_count_ask_the_counter_for_its_hot_keys():
    counter = ExactCounter({b"a": 60, b"b": 30, b"c": 10})
    assert set(hot_keys(Share(0.3), counter)) == {b"a", b"b"}
    assert set(hot_keys(Count(31), counter)) == {b"a"}


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
@pytest.mark.parametrize("form", [Share, Coverage])
def test_a_share_outside_its_range_is_refused(form, share):
    with pytest.raises(ValueError, match="share"):
        form(share)


def test_a_threshold_below_one_record_is_refused():
    with pytest.raises(ValueError, match="at least 1 record"):
        Count(0)
