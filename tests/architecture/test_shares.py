"""Processes that run slow tests side by side get fair shares of them, whatever their number."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from tests import ROOT
from tests.shares import COSTS_S, in_shares

MODULES = st.lists(st.integers(1, 6), max_size=12)
"""How many tests each module has."""


@given(sizes=MODULES, costs=st.dictionaries(st.integers(0, 12), st.integers(1, 9)))
def test_every_test_is_there_once_and_long_modules_stay_whole(
    sizes: list[int], costs: dict[int, int]
) -> None:
    tests = [(f"{m}", (m, n)) for m, size in enumerate(sizes) for n in range(size)]
    costs_s = {f"{m}": cost for m, cost in costs.items()}
    for processes in range(1, 5):
        found = in_shares(tests, costs_s, processes)

        assert sorted(found) == [test for _, test in tests]
        runs = [m for m, _ in groupby(m for m, _ in found)]
        assert all(runs.count(m) == 1 for m in costs if m in runs)


def test_each_process_begins_with_long_modules_and_ends_with_short_tests() -> None:
    tests = [(f"{m}", m) for m in range(12)]
    costs_s = {"3": 9.0, "7": 5.0, "11": 3.0, "1": 2.0}

    assert in_shares(tests, costs_s, 2) == [3, 0, 2, 4, 5, 6, 7, 11, 1, 8, 9, 10]
    assert in_shares(tests, costs_s, 1) == [3, 7, 11, 1, 0, 2, 4, 5, 6, 8, 9, 10]
    assert in_shares(tests, {}, 2) == list(range(12))


def test_the_modules_that_take_long_are_there() -> None:
    assert all((ROOT / "tests" / name).exists() for name in COSTS_S)
