"""Counts averaged over windows."""

from dataclasses import replace

import pytest

from tests.unit.plan.keys.windows import window
from trimtab.plan.keys.smoothing import smoothed

BEFORE = window({b"a": (100, 0), b"old": (50, 1)}, (200, 100))
NOW = window({b"a": (50, 1), b"new": (30, 0)}, (130, 90), upper={b"a": 55})


def test_keys_and_other_records_are_averaged_apart_at_the_present_routes():
    after = smoothed(NOW, BEFORE, 0.5)

    counts = {key.key: key.count for key in after.keys}
    assert counts == {b"a": 75, b"new": 30}  # the new one has no earlier count
    others = [t - own for t, own in zip(after.partition_totals, after.listed, strict=True)]
    assert others == [100, 45]
    assert after.keys[0].upper == 80


def test_without_an_earlier_window_or_of_other_partitions_nothing_changes():
    assert smoothed(NOW, None, 0.5) is NOW
    assert smoothed(NOW, window({}, (1, 2, 3)), 0.5) is NOW
    assert smoothed(NOW, BEFORE, 1.0) == NOW


def test_halves_are_rounded_up_in_exact_arithmetic():
    one, two = window({b"a": (1, 0)}, (1, 0)), window({b"a": (2, 0)}, (2, 0))

    assert smoothed(two, one, 0.5).keys[0].count == 2
    assert smoothed(replace(two), one, 0.1).keys[0].count == 1


def test_a_share_beyond_0_and_1_is_refused():
    with pytest.raises(ValueError, match="above 0 and at most 1, not 0"):
        smoothed(NOW, BEFORE, 0)
