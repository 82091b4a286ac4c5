"""What a figure comes to beside a published one."""

from __future__ import annotations

import math

import pytest

from trimtab.experiments.verdict import (
    Verdict,
    at_least,
    at_most,
    beats,
    beside,
    between,
    near,
    row_from,
    tally,
)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (near("x", 0.118, 0.143, tolerance=0.025), Verdict.WITHIN),
        (near("x", 0.118, 0.144, tolerance=0.025), Verdict.OUTSIDE),
        (near("x", 131.0, math.nan, tolerance=3), Verdict.OUTSIDE),
        (between("x", 21.2, [20.5, 21.8], 20.5, 21.8), Verdict.WITHIN),
        (between("x", 21.2, [21.2, 20.4], 20.5, 21.8), Verdict.OUTSIDE),
        (at_most("x", 0, 0), Verdict.WITHIN),
        (at_most("x", 0, 1), Verdict.OUTSIDE),
        (at_least("x", 20, 19.9), Verdict.OUTSIDE),
        (beats("x", 0.35, 0.36, lower=False), Verdict.BETTER),
        (beats("x", 0.0, 0.0, lower=True), Verdict.WITHIN),
        (beats("x", 0.02, 0.021, lower=True), Verdict.OUTSIDE),
        (beside("x", 217.0, 1289.0), Verdict.NOT_COMPARABLE),
    ],
)
def test_a_verdict_follows_from_bar_and_figure(row, verdict):
    assert row.verdict is verdict


def test_of_several_the_one_farthest_from_the_published_figure_is_shown():
    assert between("x", 4.52, [4.50, 4.59, 4.51], 4.45, 4.60).ours == 4.59


def test_a_row_for_programs_has_the_names_of_the_contract_and_reads_back():
    row = near("cbs mwf d=5", 0.118, 0.113, tolerance=0.025)
    assert row.to_json() == {
        "what": "cbs mwf d=5",
        "published": 0.118,
        "ours": 0.113,
        "tolerance": 0.025,
        "verdict": "within",
    }
    assert row_from(row.to_json()) == row


def test_what_is_no_number_is_null_for_programs():
    assert near("x", 131.0, math.nan, tolerance=3).to_json()["ours"] is None


def test_a_tally_counts_every_verdict():
    rows = [at_most("x", 0, 0), at_most("x", 0, 1), at_most("x", 0, 2)]
    assert tally(rows) == {
        Verdict.WITHIN: 1,
        Verdict.OUTSIDE: 2,
        Verdict.BETTER: 0,
        Verdict.NOT_COMPARABLE: 0,
    }
