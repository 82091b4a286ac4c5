"""Distributions in closed form against the same samples written out."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.evaluate.latency import Delays, Ramp, Ramps

RAMPS = st.lists(
    st.builds(
        Ramp,
        slope=st.one_of(st.just(0.0), st.floats(1e-4, 2), st.floats(-2, -1e-4)),
        start=st.floats(0, 30),
        samples=st.integers(0, 60),
    ),
    min_size=1,
    max_size=8,
)


def written_out(ramps):
    samples = [np.maximum(r.slope * np.arange(r.samples) + r.start, 0) for r in ramps]
    return np.concatenate(samples)


@given(RAMPS, st.floats(0, 100))
def test_percentiles_over_all_samples_are_those_of_brute_force(ramps, percent):
    samples = written_out(ramps)
    found = Ramps.of(ramps).percentile(percent, positive=False)
    if samples.size:
        assert found == pytest.approx(np.percentile(samples, percent), abs=1e-9)
    else:
        assert math.isnan(found)


@given(RAMPS, st.floats(0, 100))
def test_percentiles_over_positive_samples_are_those_of_brute_force(ramps, percent):
    # Half a sample's distance from 0, rounding cannot make a difference to what is positive.
    lifted = [Ramp(r.slope, r.start + 1e-6, r.samples) for r in ramps if r.slope >= 0]
    falling = [Ramp(-0.5, r.start // 1 + 0.25, r.samples) for r in ramps if r.slope < 0]
    samples = written_out([*lifted, *falling]) if lifted or falling else np.empty(0)
    found = Ramps.of([*lifted, *falling])
    positive = samples[samples > 0]
    assert found.positive == positive.size
    if positive.size:
        expected = np.percentile(positive, percent)
        assert found.percentile(percent) == pytest.approx(expected, abs=1e-9)


@given(RAMPS)
def test_counts_and_the_longest_latency_are_those_of_brute_force(ramps):
    samples = written_out(ramps)
    found = Ramps.of(ramps)
    assert found.samples == samples.size
    assert found.maximum == pytest.approx(samples.max(initial=0))


def test_a_histogram_counts_every_sample_above_its_first_edge_once():
    ramps = Ramps.of([Ramp(1.0, 0.0, 10), Ramp(-2.0, 9.0, 6)])  # 0 … 9 and 9 7 5 3 1 0
    assert ramps.counts_between([0, 1, 4.5, 9]) == [2, 4, 8]


def test_a_distribution_without_samples_has_no_percentile():
    nobody = Ramps.of([])
    assert math.isnan(nobody.percentile(90))
    assert (nobody.samples, nobody.positive, nobody.maximum) == (0, 0, 0)


@pytest.mark.parametrize("percent", [-1, 101, math.nan])
def test_a_percentile_lies_between_0_and_100(percent):
    with pytest.raises(ValueError, match="between 0 and 100"):
        Ramps.of([Ramp(1, 0, 1)]).percentile(percent)
    with pytest.raises(ValueError, match="between 0 and 100"):
        Delays(0.1, np.ones(1)).percentile_s(percent)


def test_delays_are_weighed_by_amount():
    delays = Delays(0.1, np.array([50.0, 30.0, 0.0, 20.0]))
    assert [delays.percentile_s(p) for p in (0, 50, 51, 80, 81, 100)] == [0, 0, 0.1, 0.1, 0.3, 0.3]
    assert delays.share_within(0.1) == pytest.approx(0.8)
    assert delays.share_within(0.3) == 1
    assert (delays.total, delays.maximum_s) == (100, 0.3)


def test_where_nothing_waited_all_of_it_was_in_time():
    nothing = Delays(0.1, np.zeros(1))
    assert nothing.share_within(5) == 1
    assert math.isnan(nothing.percentile_s(50))
