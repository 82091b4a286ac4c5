"""Bhattacharya & Wood in short: one seed of 40 s at a utilisation at which little is random.

The full table, two seeds of 60 s at eight utilisations, is run by `trimtab experiment smalops`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from trimtab.plan.keys.planner import KeyDecision
from trimtab.plan.keys.registry import KEY_PLANNERS
from trimtab.plan.keys.smalops import SMALOPS
from trimtab_lab.papers.grid import run_here
from trimtab_lab.papers.smalops.design import SmalopsDesign
from trimtab_lab.papers.smalops.experiment import PARTS
from trimtab_lab.papers.verdict import RowVerdict

SHORT = SmalopsDesign(
    seeds=1,
    duration_s=40.0,
    utilisations=(0.85,),
    shifts=(),
    our_windows_s=(10.0,),
    judges_short_runs=True,
)


def rows(name):
    found = PARTS[name](SHORT, lambda cells, work, _: run_here(cells, work)).rows
    return [row for row in found if row.verdict is not RowVerdict.NOT_COMPARABLE]


@cache
def kept_rows(name):
    return rows(name)


def outside(found):
    return [row.what for row in found if row.verdict is RowVerdict.OUTSIDE]


@pytest.mark.parametrize("name", ["utilisation", "ours"])
def test_the_short_version_is_within_all_that_is_judged(name):
    assert kept_rows(name)
    assert outside(kept_rows(name)) == []


def moving_nothing(counts, options, context, /):
    return KeyDecision(moves=(), routes={})


def balancing_backwards(counts, options, context, /):
    """Every hot key goes to the partition that has most."""
    busiest = max(range(counts.partitions), key=lambda p: counts.partition_totals[p])
    return KeyDecision(moves=(), routes={key.key: busiest for key in counts.keys})


@pytest.mark.parametrize("rule", [moving_nothing, balancing_backwards])
def test_a_wrong_planner_is_outside(monkeypatch, rule):
    monkeypatch.setitem(KEY_PLANNERS, "smalops", replace(SMALOPS, rule=rule))
    assert outside(rows("utilisation")) == ["p99 of smalops below hash's at a utilisation of 0.85"]


def test_trim_that_moves_as_much_as_smalops_is_outside(monkeypatch):
    monkeypatch.setitem(KEY_PLANNERS, "trim", replace(SMALOPS, name="trim"))
    assert "steady: migrations, smalops' by trim's, at least" in outside(rows("ours"))
