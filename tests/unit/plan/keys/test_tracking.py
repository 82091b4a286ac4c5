"""Which keys are hot, known, fresh or cooled."""

import pytest

from tests.unit.plan.keys.windows import window
from trimtab.errors import MeasurementError
from trimtab.measure.counters import Count, Coverage, Share
from trimtab.model.murmur2 import home
from trimtab.plan.keys.planner import CoolBelow, KeyOptions
from trimtab.plan.keys.tracking import tracked_keys

KEYS = {b"a": (50, 0), b"b": (9, 1), b"c": (4, 1), b"d": (20, 0), b"e": (3, 0)}


def names(keys):
    return [key.key for key in keys]


def test_hot_keys_are_fresh_unless_they_are_routed_and_the_rest_is_left_out():
    tracked = tracked_keys(window(KEYS, (100, 100), routed=frozenset({b"d"})), KeyOptions())

    assert names(tracked.fresh) == [b"a"]
    assert names(tracked.known) == [b"d"]
    assert tracked.cooled == ()


def test_a_routed_key_stays_until_half_the_threshold_or_until_the_threshold_in_paper_mode():
    counts = window(KEYS, (100, 100), routed=frozenset({b"b", b"c"}))

    usual = tracked_keys(counts, KeyOptions())
    paper = tracked_keys(counts, KeyOptions(cool_below=CoolBelow.THRESHOLD))

    assert (names(usual.known), [k.key for k, _ in usual.cooled]) == ([b"b"], [b"c"])
    assert (names(paper.known), [k.key for k, _ in paper.cooled]) == ([], [b"b", b"c"])
    assert [at for _, at in paper.cooled] == [home(b"b", 2), home(b"c", 2)]


def test_the_upper_bound_decides_so_that_no_hot_key_is_missed():
    counts = window(KEYS, (100, 100), upper={b"b": 10})

    assert names(tracked_keys(counts, KeyOptions()).fresh) == [b"a", b"b", b"d"]


@pytest.mark.parametrize(
    ("form", "hot", "threshold"),
    [
        (Count(20), [b"a", b"d"], 20),
        (Share(0.25), [b"a"], 50),
        (Coverage(0.35), [b"a", b"d"], 20),
        (Coverage(0.1), [b"a"], 50),
    ],
)
def test_a_threshold_may_be_a_count_a_share_or_a_coverage_of_all_records(form, hot, threshold):
    tracked = tracked_keys(window(KEYS, (100, 100)), KeyOptions(threshold=form))

    assert names(tracked.fresh) == hot
    assert tracked.threshold == threshold


def test_coverage_that_the_listed_keys_do_not_reach_is_refused():
    with pytest.raises(MeasurementError, match="cover only 86 records"):
        tracked_keys(window(KEYS, (100, 100)), KeyOptions(threshold=Coverage(0.5)))


def test_a_threshold_that_is_not_above_the_error_of_counting_is_refused():
    counts = window(KEYS, (100, 100), upper={b"a": 60})

    with pytest.raises(MeasurementError, match="not above the error bound of 10") as raised:
        tracked_keys(counts, KeyOptions())
    assert raised.value.hint == "Choose a smaller epsilon or a higher threshold."
