"""Histograms of delays against the delays themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.model.quantiles import quantile
from trimtab.simulate.keys.delays import DelayHistogram

SHARES = (0.0, 0.5, 0.9, 0.99, 0.999, 1.0)
delays = st.lists(st.integers(0, 5000) | st.integers(0, 2**50), min_size=1, max_size=60)


@given(delays)
def test_quantiles_are_off_by_less_than_they_promise(values):
    found = DelayHistogram.of(np.array(values))

    for share, value in zip(SHARES, found.quantiles_s(SHARES), strict=True):
        exact = quantile([float(v) for v in values], share)
        assert value * 1e9 == pytest.approx(exact, rel=1 / 4096, abs=1e-6)


@given(st.lists(st.integers(0, 4095), min_size=1, max_size=60))
def test_short_delays_are_exact(values):
    found = DelayHistogram.of(np.array(values))

    for share, value in zip(SHARES, found.quantiles_s(SHARES), strict=True):
        assert round(value * 1e9, 6) == quantile([float(v) for v in values], share)


@given(delays, delays, st.integers(0, 2**50))
def test_histograms_add_up(one, other, limit):
    parts = [DelayHistogram.of(np.array(some), within_ns=limit) for some in (one, other)]
    both = DelayHistogram.of(np.array(one + other), within_ns=limit)
    total = DelayHistogram.total(parts)

    assert total.buckets.tolist() == both.buckets.tolist()
    assert (total.records, total.sum_ns, total.max_ns, total.within) == (
        both.records,
        both.sum_ns,
        both.max_ns,
        both.within,
    )
    assert both.within == sum(value <= limit for value in one + other)


def test_no_delays_have_no_quantiles():
    empty = DelayHistogram.total([])

    assert math.isnan(empty.quantile_s(0.5))
    assert math.isnan(empty.mean_s)
    assert math.isnan(empty.within_share)
    assert empty.curve_s() == ([], [])


def test_a_curve_rises_to_all_records_and_keeps_the_tail():
    values = np.random.default_rng(1).exponential(1e6, 200_000).astype(np.int64)
    found = DelayHistogram.of(values)

    x, y = found.curve_s(points=200)

    assert len(x) <= 200
    assert (np.diff(x) > 0).all()
    assert (np.diff(y) > 0).all()
    assert y[-1] == 1.0
    assert sum(1 for share in y if share > 0.99) > 40
