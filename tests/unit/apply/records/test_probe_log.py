"""Probes of one broker: what single ones took, and what a steady stream would have met."""

from __future__ import annotations

import pytest

from trimtab.apply.records.probe_log import ProbeLog, Probes


def log() -> ProbeLog:
    return ProbeLog(pace_s=0.1, kept_s=10.0)


def test_a_probe_that_came_back_is_no_silence():
    probes = log()
    probes.sent(1.0)
    probes.answered(1.01, latency_s=0.01)

    assert not probes.waiting
    assert probes.seen(1.5).answers[0] == pytest.approx((0.49, 0.01))
    assert probes.seen(1.5).silent_s == 0.0


def test_silence_lasts_from_the_first_probe_that_did_not_come_back():
    probes = log()
    probes.sent(1.0)
    probes.failed()
    probes.sent(3.0)

    assert probes.waiting
    assert probes.seen(4.5).silent_s == 3.5


def test_a_probe_under_way_counts_as_its_age_once_it_is_late():
    probes = log()
    probes.sent(1.0)

    assert probes.seen(1.05).latencies(2.0) == []
    assert probes.seen(1.3).latencies(2.0) == [pytest.approx(0.3)]


@pytest.mark.parametrize(
    ("latency_s", "ago_s", "within_s", "waits"),
    [
        (0.05, 0.0, 2.0, [0.05]),
        (0.25, 0.0, 2.0, [0.25, 0.15, 0.05]),
        (0.25, 0.0, 0.2, [0.15, 0.05]),  # its first tenth of a second lies outside
        (30.0, 0.0, 0.25, [0.2, 0.1]),
        (0.25, 3.0, 2.0, []),
    ],
)
def test_a_long_probe_counts_as_all_that_would_have_met_it(latency_s, ago_s, within_s, waits):
    seen = Probes(answers=((ago_s, latency_s),), pace_s=0.1)

    assert [w for w in seen.waits(within_s) if w > 1e-9] == pytest.approx(waits)


def test_what_is_older_than_is_kept_is_forgotten():
    probes = log()
    probes.sent(1.0)
    probes.answered(1.1, latency_s=0.1)

    assert len(probes.seen(11.0).answers) == 1
    assert probes.seen(11.2).answers == ()
