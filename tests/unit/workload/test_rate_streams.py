"""Rate schedules, Landau's random walks, and the arrivals that follow them."""

from __future__ import annotations

import math
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.workload.rate_streams import (
    RateSchedule,
    Segment,
    Tap,
    arrival_blocks,
    arrivals,
    ezzeddine_workload_1,
    landau_stream,
)

untimed = settings(deadline=None)  # a loaded machine is no fault of the code


def schedule_of(parts: list[tuple[float, float, float]]) -> RateSchedule:
    starts = np.cumsum([0.0, *(length for length, _, _ in parts)]).tolist()
    segments = [Segment(at, a, b) for at, (_, a, b) in zip(starts, parts, strict=False)]
    return RateSchedule(starts[-1], (tuple(segments),))


RATES = st.one_of(st.just(0.0), st.floats(0.01, 50))
SCHEDULES = st.lists(st.tuples(st.floats(0.1, 9), RATES, RATES), min_size=1, max_size=6).map(
    schedule_of
)


# The workload of Ezzeddine et al.
#
#   60           ╭────────╮          P0, P1 from 120 s, P2 from 240 s, P3 from 360 s
#   15 ──────────╯        ╰─────     P4 never
#      0        120      480   600


@pytest.mark.parametrize(
    ("t_s", "rates"),
    [
        (0, [15, 15, 15, 15, 15]),
        (119, [15, 15, 15, 15, 15]),
        (121, [16, 16, 15, 15, 15]),
        (165, [60, 60, 15, 15, 15]),
        (250, [60, 60, 25, 15, 15]),
        (360, [60, 60, 60, 15, 15]),
        (405, [60, 60, 60, 60, 15]),
        (479.9, [60, 60, 60, 60, 15]),
        (480, [15, 15, 15, 15, 15]),
        (600, [0, 0, 0, 0, 0]),
    ],
)
def test_workload_1_climbs_and_falls_as_described(t_s, rates):
    workload = ezzeddine_workload_1()
    assert [workload.rate_at(p, t_s) for p in range(5)] == rates
    assert workload.total_rate_at(t_s) == sum(rates)


def test_workload_1_adds_up():
    workload = ezzeddine_workload_1()
    climb = 45 * 45 / 2
    extra = [climb + 45 * (480 - start - 45) for start in (120, 120, 240, 360)]
    received = [workload.cumulative(p, 600) for p in range(5)]
    assert received == [9000 + more for more in extra] + [9000]
    assert workload.records == sum(received)


@untimed
@given(SCHEDULES, st.floats(0, 1))
def test_the_integral_is_that_of_the_rate(schedule, part):
    until = part * schedule.duration_s
    starts = [s.start_s for s in schedule.partitions[0]]
    edges = sorted({0.0, until, *(s for s in starts if s < until)})
    # Within a segment the rate is linear, so the rate in the middle is the mean.
    area = math.fsum((b - a) * schedule.rate_at(0, (a + b) / 2) for a, b in pairwise(edges))
    assert schedule.cumulative(0, until) == pytest.approx(area, abs=1e-9)


def test_nothing_arrives_before_the_start_and_after_the_end():
    schedule = RateSchedule.constant([4.0], duration_s=10.0)
    assert [schedule.rate_at(0, t) for t in (-1, 0, 9.9, 10, 99)] == [0, 4, 4, 0, 0]
    assert [schedule.cumulative(0, t) for t in (-1, 0, 5, 10, 99)] == [0, 0, 20, 40, 40]


def test_a_ramp_holds_climbs_and_holds():
    schedule = RateSchedule.ramp([10, 8], [30, 0], duration_s=10, start_s=2, end_s=6)
    assert [schedule.rate_at(0, t) for t in (0, 2, 4, 6, 9)] == [10, 10, 20, 30, 30]
    assert [schedule.rate_at(1, t) for t in (0, 2, 4, 6, 9)] == [8, 8, 4, 0, 0]


def test_steps_hold_their_loads():
    schedule = RateSchedule.from_steps(30.0, [[1, 2], [3, 4], [5, 6]])
    assert schedule.duration_s == 90
    assert [schedule.rate_at(1, t) for t in (0, 29.9, 30, 89)] == [2, 2, 4, 6]
    assert schedule.records == 30 * 21


def test_scaling_changes_rates_and_stretching_changes_times():
    workload = ezzeddine_workload_1()
    assert workload.scaled(2).rate_at(0, 300) == 120
    assert workload.stretched(0.1).rate_at(0, 30) == 60
    assert workload.stretched(0.1).duration_s == 60
    assert workload.scaled(0.5).records == workload.stretched(0.5).records == workload.records / 2


@pytest.mark.parametrize(
    "segments",
    [
        (),
        (Segment(1, 1, 1),),
        (Segment(0, 1, 1), Segment(10, 1, 1)),
        (Segment(0, 1, 1), Segment(5, 1, 1), Segment(5, 1, 1)),
        (Segment(0, -1, 1),),
        (Segment(0, 1, math.nan),),
        (Segment(0, math.inf, 1),),
    ],
)
def test_segments_that_make_no_schedule_are_refused(segments):
    with pytest.raises(ValueError, match="partition 0"):
        RateSchedule(10.0, (segments,))


@pytest.mark.parametrize("duration_s", [0, -1, math.inf, math.nan])
def test_a_schedule_has_a_duration(duration_s):
    with pytest.raises(ValueError, match="duration_s must be positive"):
        RateSchedule.constant([1.0], duration_s=duration_s)


# Landau's streams


@pytest.mark.parametrize("integer", [True, False])
@pytest.mark.parametrize("delta", [0, 5, 25])
def test_steps_stay_within_delta_and_loads_within_the_capacity(delta, integer):
    loads = landau_stream(seed=2, partitions=50, delta=delta, integer=integer)
    assert loads.shape == (501, 50)
    assert (loads >= 0).all()
    assert (loads <= 100).all()
    assert np.abs(np.diff(loads, axis=0)).max() <= delta


def test_whole_steps_reach_both_bounds_and_all_between_alike():
    loads = landau_stream(
        seed=2, partitions=200, iterations=20, delta=5, start=0.5, cap=None, integer=True
    )
    steps, seen = np.unique(np.diff(loads[:8], axis=0), return_counts=True)
    assert loads.dtype == np.int64
    assert steps.tolist() == list(range(-5, 6))
    assert seen.min() > 0.5 * seen.mean()


@pytest.mark.parametrize(("start", "load"), [(0, 0), (0.5, 50), (1, 100)])
def test_a_constant_start_is_a_fraction_of_the_capacity(start, load):
    assert (
        landau_stream(seed=1, partitions=9, delta=5, start=start, integer=True)[0] == load
    ).all()


def test_a_uniform_start_spreads_over_the_whole_capacity():
    first = landau_stream(seed=1, partitions=20_000, iterations=0, delta=5, integer=True)[0]
    assert (first.min(), first.max()) == (0, 100)
    assert first.mean() == pytest.approx(50, abs=1)


def test_without_a_cap_loads_drift_beyond_the_capacity():
    walk = partial(landau_stream, seed=1, partitions=50, delta=25, start=1.0)
    assert walk().max() == 100
    assert walk(cap=None).max() > 200
    assert walk(cap=150).max() == 150


@pytest.mark.parametrize("integer", [True, False])
def test_a_longer_stream_begins_with_the_shorter_one(integer):
    long, short = (
        landau_stream(seed=4, partitions=7, iterations=n, delta=10, integer=integer)
        for n in (90, 30)
    )
    assert np.array_equal(long[:31], short)


def test_draws_go_through_the_iterations_and_within_them_through_the_partitions():
    walk = landau_stream(seed=9, partitions=3, iterations=4, delta=10, start=0.5, cap=None)
    rng = np.random.default_rng(9)
    load = [50.0] * 3
    for row in walk[1:]:
        load = [max(at + rng.uniform(-10, 10), 0) for at in load]
        assert row.tolist() == pytest.approx(load, abs=1e-9)


def test_the_global_generator_plays_no_part():
    np.random.seed(1)
    one = landau_stream(seed=4, partitions=7, delta=10)
    np.random.seed(2)
    assert np.array_equal(one, landau_stream(seed=4, partitions=7, delta=10))


@pytest.mark.parametrize(
    "wrong",
    [
        {"delta": -1},
        {"capacity": 0},
        {"partitions": 0},
        {"iterations": -1},
        {"start": 1.5},
        {"cap": 0},
        {"integer": True, "delta": 2.5},
        {"integer": True, "start": 0.333},
    ],
)
def test_arguments_that_make_no_stream_are_refused(wrong):
    with pytest.raises(ValueError, match=r"delta|start|cap|whole"):
        landau_stream(**{"seed": 1, "partitions": 2, "delta": 5, **wrong})


# Arrivals


@untimed
@given(SCHEDULES, st.integers(0, 99), st.booleans())
def test_arrivals_are_where_the_integral_reaches_the_points_of_a_unit_process(
    schedule, seed, poisson
):
    times = arrivals(schedule, 0, seed=seed, poisson=poisson)
    received = np.array([schedule.cumulative(0, t) for t in times.tolist()])
    assert (np.diff(times) >= 0).all()
    rng = np.random.default_rng([seed, 0])
    if poisson:
        points = np.cumsum(rng.standard_exponential(times.size + 1))
    else:
        points = rng.random() + np.arange(times.size + 1, dtype=np.float64)
    assert received == pytest.approx(points[:-1], abs=1e-6)
    assert points[-1] >= schedule.cumulative(0, schedule.duration_s) - 1e-6


def test_no_record_arrives_while_the_rate_is_zero():
    schedule = schedule_of([(10, 0, 0), (10, 5, 5), (10, 0, 0), (10, 0, 8), (10, 0, 0)])
    times = arrivals(schedule, 0, seed=1, poisson=True)
    inside = ((times >= 10) & (times < 20)) | ((times >= 30) & (times <= 40))
    assert times.size > 50
    assert inside.all()


def test_poisson_counts_scatter_and_even_ones_do_not():
    schedule = RateSchedule.constant([50.0], duration_s=10.0)
    even, poisson = (
        [arrivals(schedule, 0, seed=s, poisson=p).size for s in range(200)] for p in (False, True)
    )
    assert set(even) == {500}
    assert np.mean(poisson) == pytest.approx(500, abs=8)
    assert np.var(poisson) == pytest.approx(500, rel=0.4)


@pytest.mark.parametrize("poisson", [True, False])
def test_merged_arrivals_are_those_of_every_partition_in_the_order_of_time(poisson):
    schedule = RateSchedule.from_steps(10.0, [[900, 3, 0, 40], [100, 2000, 0, 40]])
    blocks = list(arrival_blocks(schedule, seed=3, poisson=poisson, block_records=1000))
    assert [len(block.times_s) for block in blocks[:-1]] == [1000] * (len(blocks) - 1)
    times = np.concatenate([block.times_s for block in blocks])
    partitions = np.concatenate([block.partitions for block in blocks])
    assert (np.diff(times) >= 0).all()
    for p in range(4):
        alone = arrivals(schedule, p, seed=3, poisson=poisson)
        assert np.array_equal(times[partitions == p], alone)


def test_merged_arrivals_do_not_depend_on_the_size_of_the_blocks():
    schedule = ezzeddine_workload_1()
    one, other = (
        np.concatenate(
            [b.times_s for b in arrival_blocks(schedule, seed=3, poisson=True, block_records=size)]
        )
        for size in (999, 50_000)
    )
    assert np.array_equal(one, other)
    assert one.size == pytest.approx(schedule.records, abs=5 * schedule.records**0.5)


def test_a_partitions_arrivals_do_not_depend_on_the_other_partitions():
    alone = RateSchedule.constant([50.0], duration_s=10.0)
    among = RateSchedule.constant([50.0, 7.0], duration_s=10.0)
    one, other = (arrivals(s, 0, seed=1, poisson=True) for s in (alone, among))
    assert np.array_equal(one, other)


def test_partitions_of_the_same_rate_do_not_arrive_in_step():
    schedule = RateSchedule.constant([50.0, 50.0], duration_s=10.0)
    for poisson in (True, False):
        one, other = (arrivals(schedule, p, seed=1, poisson=poisson) for p in (0, 1))
        assert not set(one.tolist()) & set(other.tolist())


def test_a_silent_schedule_has_no_arrivals():
    silent = RateSchedule.constant([0.0, 0.0], duration_s=10.0)
    assert arrivals(silent, 0, seed=1, poisson=True).size == 0
    assert list(arrival_blocks(silent, seed=1, poisson=True)) == []


@untimed
@given(st.lists(st.integers(0, 5), max_size=8), st.integers(1, 7))
def test_a_tap_gives_every_element_once_whatever_the_sizes(sizes, count):
    everything = np.arange(sum(sizes))
    tap = Tap(iter(np.split(everything, np.cumsum(sizes[:-1]))) if sizes else iter(()))
    taken = []
    while (piece := tap.take(count)).size:
        taken.append(piece)
    assert all(piece.size == count for piece in taken[:-1])
    assert np.concatenate([everything[:0], *taken]).tolist() == everything.tolist()
