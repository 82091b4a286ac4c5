"""Counters as Java has them."""

from __future__ import annotations

import pytest

from trimtab.plan.records.counters import Counter, LazyValues, Starts
from trimtab.plan.records.partitioner import RoutingOptions


@pytest.mark.parametrize("start", [2**31 - 2, -(2**31) + 2**31 - 2])
def test_after_the_largest_number_comes_zero(start):
    counter = Counter(start)

    assert [counter.step() for _ in range(4)] == [2**31 - 2, 2**31 - 1, 0, 1]


def test_a_negative_start_is_taken_without_its_sign():
    assert Counter(-1).step() == 2**31 - 1
    assert Counter(-(2**31)).step() == 0


def test_starts_follow_from_seed_topic_and_broker():
    starts = [Starts(RoutingOptions(seed=seed)) for seed in (1, 1, 2)]
    names = [("a", None), ("a", 1), ("b", None)]

    first, again, other = ([s.of(*name) for name in names] for s in starts)

    assert first == again
    assert len({*first, *other}) == 6


def test_without_a_seed_starts_are_spread_over_all_numbers():
    starts = Starts(RoutingOptions())

    found = sorted(starts.of("a") for _ in range(200))

    assert found[0] < 2**28 < 2**30 < found[-1] < 2**31
    assert len(set(found)) > 190


def test_a_fixed_start_is_the_same_for_all():
    starts = Starts(RoutingOptions(start=5, seed=3))

    assert {starts.of("a"), starts.of("b", 7)} == {5}


def test_a_value_is_made_when_it_is_first_asked_for_and_kept():
    once: LazyValues[str, object] = LazyValues(lambda _: object())

    assert once["a"] is once["a"]
    assert once.get("b") is None
    assert list(once) == ["a"]
