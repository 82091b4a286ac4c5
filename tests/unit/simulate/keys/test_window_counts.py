"""Counts of windows agree with the exact counter, under every threshold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.measure.counters import Count, Coverage, ExactCounter, Share, hot_keys
from trimtab.simulate.keys.window_counts import WindowCounting

numbers = st.integers(0, 12) | st.integers(2**20 - 2, 2**20 + 3) | st.integers(0, 2**40)
forms = (
    st.builds(Count, st.integers(1, 6))
    | st.builds(Share, st.floats(0.01, 1.0))
    | st.builds(Coverage, st.floats(0.01, 1.0))
)


@given(st.lists(st.lists(numbers, min_size=1), min_size=1, max_size=4), forms)
def test_hot_keys_are_those_of_the_exact_counter(blocks, form):
    counting, exact = WindowCounting(), ExactCounter()
    for block in blocks:
        counting.add(np.array(block))
        for key in block:
            exact.add(b"%d" % key)

    window = counting.finish(3)

    assert (window.number, window.n, window.distinct) == (3, exact.n, exact.entries)
    hot = {int(key): bounds.lower for key, bounds in hot_keys(form, exact).items()}
    assert window.hot(form).as_dict() == hot
    least = window.least_hot(form)
    assert least <= min(hot.values(), default=least)
    assert isinstance(form, Coverage) or all(n < least for n in cold_counts(window, hot))


def cold_counts(window, hot):
    return [n for key, n in window.all_keys.as_dict().items() if key not in hot]


def test_windows_do_not_mix():
    counting = WindowCounting()
    counting.add(np.array([1, 2, 2**30]))
    counting.finish(0)
    counting.add(np.array([2]))

    assert counting.finish(1).all_keys.as_dict() == {2: 1}
    assert counting.finish(2).n == 0


def test_counts_of_keys_that_have_none_are_zero():
    counting = WindowCounting()
    assert counting.finish(0).all_keys.of(np.array([1, 2])).tolist() == [0, 0]
    counting.add(np.array([5, 5, 9]))

    assert counting.finish(1).all_keys.of(np.array([5, 6, 9, 10])).tolist() == [2, 0, 1, 0]


def test_the_sketch_has_the_error_of_a_tenth_of_the_threshold():
    counting = WindowCounting(sketch_threshold=Count(100), expected=10_000)
    keys = np.random.default_rng(1).zipf(1.3, 10_000) % 5000
    counting.add(keys)
    window = counting.finish(0)

    assert window.sketch_entries is not None
    assert window.hot(Count(100)).keys.size < window.sketch_entries < window.distinct
    few = WindowCounting(sketch_threshold=Count(100), expected=10)
    few.add(np.array([1, 2]))
    assert few.finish(0).sketch_entries is not None


def test_a_coverage_has_a_sketch_too():
    counting = WindowCounting(sketch_threshold=Coverage(0.3), expected=10_000)
    keys = np.random.default_rng(1).zipf(1.3, 10_000) % 5000
    for number in range(2):
        counting.add(keys)
        assert (counting.finish(number).sketch_entries or 0) > 0
