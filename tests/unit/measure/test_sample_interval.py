"""The interval between samples: when it grows, when it shrinks, and when it stays."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest

from trimtab.measure.sample_interval import SampleInterval, is_sampled


def after(*took_s: float, period_s: float = 1.0, multiple: int = 1) -> list[float]:
    """The interval after each of these samples."""
    start = SampleInterval(period_s=period_s, multiple=multiple)
    found = accumulate(took_s, lambda interval, took: interval.after(took), initial=start)
    return [interval.seconds for interval in found][1:]


@pytest.mark.parametrize(
    ("took_s", "intervals"),
    [
        ((0.5,) * 6, [1, 1, 1, 1, 1, 1]),
        ((1.0, 1.0, 1.0, 1.0), [1, 1, 1, 1]),
        ((1.1, 1.1, 1.1), [1, 1, 2]),
        ((2.0, 2.0, 2.0), [1, 1, 2]),
        ((2.5, 2.5, 2.5), [1, 1, 3]),
        ((1.1, 9.0, 1.2), [1, 1, 2]),
        ((0.1, 9.0, 0.1, 9.0, 0.1), [1, 1, 1, 1, 1]),
        ((1.5, 0.1, 1.5, 0.1, 1.5), [1, 1, 1, 1, 2]),
        ((9.0, 9.0, 0.1, 0.1, 0.1, 9.0), [1, 1, 1, 1, 1, 1]),
    ],
    ids=[
        *("quick", "just in time", "slow", "slow but whole", "slower"),
        *("all but one", "two hiccups", "every other one", "hiccups far apart"),
    ],
)
def test_it_grows_when_three_of_five_samples_were_longer(
    took_s: tuple[float, ...], intervals: list[float]
) -> None:
    assert after(*took_s) == intervals


@pytest.mark.parametrize(
    ("took_s", "intervals"),
    [
        ((0.5,) * 5, [3, 3, 3, 3, 1]),
        ((0.8,) * 5, [3, 3, 3, 3, 1]),
        ((0.9,) * 5, [3, 3, 3, 3, 2]),
        ((1.6,) * 5, [3, 3, 3, 3, 2]),
        ((1.7,) * 5, [3, 3, 3, 3, 3]),
        ((0.5, 0.5, 7.0, 0.5, 0.5), [3, 3, 3, 3, 1]),
        ((0.5, 7.0, 7.0, 0.5, 0.5), [3, 3, 3, 3, 3]),
    ],
    ids=[
        *("quick", "with a fifth to spare", "without", "a step back", "no step back"),
        *("one hiccup", "two hiccups"),
    ],
)
def test_it_shrinks_when_five_samples_fit_with_something_to_spare(
    took_s: tuple[float, ...], intervals: list[float]
) -> None:
    assert after(*took_s, multiple=3) == intervals


@pytest.mark.parametrize("took_s", [0.99, 1.01, 1.99, 2.01, 2.5])
def test_samples_that_take_the_same_time_change_it_at_most_once(took_s: float) -> None:
    intervals = [1.0, *after(*[took_s] * 100)]

    changes = [later for earlier, later in pairwise(intervals) if later != earlier]

    assert len(changes) <= 1
    assert intervals[-1] >= took_s


def test_it_is_a_multiple_of_the_period() -> None:
    assert after(0.9, 0.9, 0.9, period_s=0.25) == [0.25, 0.25, 1.0]


@pytest.mark.parametrize(
    ("multiple", "window_s", "is_too_long"),
    [(9, 30.0, False), (10, 30.0, False), (11, 30.0, True), (11, None, False)],
)
def test_rates_need_samples_at_most_a_third_of_their_window_apart(
    multiple: int, window_s: float | None, *, is_too_long: bool
) -> None:
    interval = SampleInterval(multiple=multiple, window_s=window_s)

    assert interval.is_too_long is is_too_long
    assert interval.least_window_s == 3 * multiple


@pytest.mark.parametrize("period_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_period_is_positive(period_s: float) -> None:
    with pytest.raises(ValueError, match="period"):
        SampleInterval(period_s=period_s)


@pytest.mark.parametrize(
    ("ages_s", "sampled"),
    [
        ((), False),
        ((2.9,), True),
        ((3.1,), False),
        ((2.9, 3.9, 4.9), True),
        ((3.1, 4.1, 5.1), False),
        ((20.0, 28.0, 36.0), True),  # samples of a large cluster, every 8 s
        ((25.0, 33.0, 41.0), False),
        ((3.1, 603.1, 604.1), False),  # one sample of a monitor that was started again
        ((3.1, 4.1, 604.1), False),
    ],
)
def test_a_monitor_runs_if_its_newest_sample_is_within_three_of_its_intervals(
    ages_s: tuple[float, ...], sampled: bool
) -> None:
    now = 1_700_000_000_000_000
    times = [now - round(age_s * 1_000_000) for age_s in ages_s]
    assert is_sampled(times, now, period_s=1.0) is sampled
