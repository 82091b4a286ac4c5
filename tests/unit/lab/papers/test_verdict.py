"""A figure beside the paper's, a model's, or a bar."""

from __future__ import annotations

import math

import pytest

from trimtab_lab.papers.verdict import (
    RowVerdict,
    at_least,
    at_most,
    beats,
    for_information,
    near,
    row_from,
    tally,
)


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (near("x", 0.143, paper=0.118, tolerance=0.025), RowVerdict.WITHIN),
        (near("x", 0.144, paper=0.118, tolerance=0.025), RowVerdict.OUTSIDE),
        (near("x", 21.3, paper=18.0, model=21.2, tolerance=0.6), RowVerdict.WITHIN),
        (near("x", 18.0, paper=18.0, model=21.2, tolerance=0.6), RowVerdict.OUTSIDE),
        (near("x", math.nan, model=131.0, tolerance=3), RowVerdict.OUTSIDE),
        (at_most("x", 0, 0), RowVerdict.WITHIN),
        (at_most("x", 0, 1), RowVerdict.OUTSIDE),
        (at_least("x", 20, 19.9), RowVerdict.OUTSIDE),
        (at_most("x", 1.0, 1.42, paper=1.0), RowVerdict.OUTSIDE),
        (beats("x", 0.35, 0.36, lower=False), RowVerdict.BETTER),
        (beats("x", 0.0, 0.0, lower=True), RowVerdict.WITHIN),
        (beats("x", 0.02, 0.021, lower=True), RowVerdict.OUTSIDE),
        (for_information("x", 1289.0, paper=217.0), RowVerdict.NOT_COMPARABLE),
    ],
)
def test_a_verdict_follows_from_bar_and_figure(row, verdict):
    assert row.verdict is verdict


def test_a_distance_needs_something_to_be_far_from():
    with pytest.raises(ValueError, match="neither"):
        near("x", 1.0, tolerance=0.1)


def test_a_row_for_programs_has_the_names_of_the_contract_and_reads_back():
    row = near("cbs mwf d=5", 0.113, paper=0.118, tolerance=0.025)
    assert row.to_json() == {
        "what": "cbs mwf d=5",
        "paper": 0.118,
        "model": None,
        "bar": None,
        "ours": 0.113,
        "tolerance": 0.025,
        "verdict": "within",
    }
    assert row_from(row.to_json()) == row


def test_a_bar_is_nobody_elses_figure_and_has_no_tolerance():
    row = at_least("sla share", 0.999, 1.0).to_json()
    assert (row["paper"], row["model"], row["bar"], row["tolerance"]) == (None, None, 0.999, None)
    assert row["what"] == "sla share, at least"


def test_what_is_no_number_is_null_for_programs():
    assert near("x", math.nan, model=131.0, tolerance=3).to_json()["ours"] is None


def test_a_tally_counts_every_verdict():
    rows = [at_most("x", 0, 0), at_most("x", 0, 1), at_most("x", 0, 2)]
    assert tally(rows) == {
        RowVerdict.WITHIN: 1,
        RowVerdict.OUTSIDE: 2,
        RowVerdict.BETTER: 0,
        RowVerdict.NOT_COMPARABLE: 0,
    }
