"""Rates and lag from samples, the plain functions."""

from __future__ import annotations

import pytest

from trimtab.measure.windows import MICROS, PartitionSample, lag_records, lag_seconds, speed


def at(
    second: float, size: int | None, *, end: int | None = None, leader: int = 1
) -> PartitionSample:
    return PartitionSample(ts=round(second * MICROS), leader=leader, log_bytes=size, end_offset=end)


def rate(*samples: PartitionSample) -> tuple[float | None, bool]:
    found = speed(samples, min_span_s=3, max_gap_s=10)
    return found.bytes_s, found.complete


def test_a_steady_log_grows_at_its_slope() -> None:
    assert rate(*(at(s, 100 * s) for s in range(10))) == (100.0, True)


def test_after_a_drop_the_rate_is_that_of_what_came_after() -> None:
    #  size   0 100 200 | 50 60 70 80 90      retention deleted a segment at second 3
    after = [at(3 + i, 50 + 10 * i) for i in range(5)]
    assert rate(at(0, 0), at(1, 100), at(2, 200), *after) == (10.0, True)


def test_a_drop_that_recovers_within_the_window_is_still_seen() -> None:
    assert rate(at(0, 10), at(1, 20), at(2, 15), at(6, 35)) == (5.0, True)


def test_right_after_a_drop_nothing_is_known() -> None:
    assert rate(at(0, 0), at(5, 500), at(6, 3)) == (None, False)


def test_a_restarted_series_is_flagged_until_it_is_long_enough() -> None:
    assert rate(at(0, 0), at(5, 500), at(6, 3), at(8, 5)) == (1.0, False)


def test_a_new_leader_restarts_the_series_even_when_its_log_is_larger() -> None:
    assert rate(at(0, 0), at(4, 40), at(5, 900, leader=2), at(9, 904, leader=2)) == (1.0, True)


def test_a_moment_without_a_size_neither_counts_nor_breaks_the_series() -> None:
    assert rate(at(0, 0), at(2, None, leader=-1), at(4, 40)) == (10.0, True)


def test_a_gap_makes_the_rate_incomplete() -> None:
    assert rate(at(0, 0), at(11, 110)) == (10.0, False)


def test_a_time_without_sizes_is_a_gap_even_when_samples_came() -> None:
    unknown = [at(s, None) for s in range(2, 15)]
    assert rate(at(0, 0), at(1, 10), *unknown, at(15, 150)) == (10.0, False)


@pytest.mark.parametrize("samples", [(), (at(0, 5),)])
def test_too_few_samples_give_no_rate(samples: tuple[PartitionSample, ...]) -> None:
    assert rate(*samples) == (None, False)


def test_records_follow_the_end_offset_and_restart_when_a_topic_is_made_anew() -> None:
    samples = [at(0, 0, end=900), at(1, 10, end=910), at(2, 20, end=0), at(4, 40, end=6)]
    assert speed(samples, min_span_s=3, max_gap_s=10).records_s == 3.0


def test_lag_in_records_is_never_negative_and_unknown_stays_unknown() -> None:
    assert [lag_records(*p) for p in ((9, 4), (4, 9), (None, 4), (9, None))] == [5, 0, None, None]


def test_lag_in_seconds_is_how_long_ago_the_log_ended_where_the_group_is() -> None:
    history = [at(s, None, end=10 * s) for s in range(11)]
    assert lag_seconds(history, 100) == 0.0
    assert lag_seconds(history, 75) == 2.5


def test_an_idle_log_dates_the_lag_from_the_last_moment_it_ended_there() -> None:
    history = [at(0, None, end=5), at(8, None, end=5), at(10, None, end=9)]
    assert lag_seconds(history, 5) == 2.0


def test_lag_older_than_the_history_is_unknown_not_guessed() -> None:
    assert lag_seconds([at(0, None, end=50), at(1, None, end=60)], 10) is None


def test_lag_across_a_topic_made_anew_is_unknown() -> None:
    history = [at(0, None, end=50), at(1, None, end=3), at(2, None, end=9)]
    assert lag_seconds(history, 2) is None


def test_limits_are_exact_to_the_microsecond() -> None:
    """As floating-point numbers both limits are a little less than 1 001 000 microseconds."""
    start, end = at(0, 0), PartitionSample(ts=1_001_000, leader=1, log_bytes=9, end_offset=9)
    assert speed([start, end], min_span_s=1.001, max_gap_s=1.001).complete
    assert not speed([start, end], min_span_s=1.001001, max_gap_s=2).complete
    assert not speed([start, end], min_span_s=1, max_gap_s=1.000999).complete
