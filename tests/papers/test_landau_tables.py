"""Landau et al., figures 9 to 12, on a part of the published comparison.

Six of the twelve heuristics at delta 5 and 25, one stream of 200 partitions each over 300
iterations instead of the mean of three over 500. A single stream was found to be off by about half
as much again as such a mean: the tolerances of the full table, which `trimtab experiment landau` is
judged by, are therefore half as wide again. BFD, which is never beaten by more than 0.05 %, stands
for all twelve in the CBS.
"""

from __future__ import annotations

from functools import cache

import pytest

from trimtab_lab.papers.grid import run_here
from trimtab_lab.papers.landau import experiment as landau
from trimtab_lab.papers.landau.design import LandauDesign
from trimtab_lab.papers.published import landau as paper

SIX = ("mwf", "mbf", "mwfp", "mbfp", "bfd", "nfd")
DELTAS = (5, 25)
WIDER = 1.5


@cache
def figures():
    design = LandauDesign(
        seeds=1,
        iterations=300,
        deltas=DELTAS,
        starts=("uniform",),
        planners=SIX,
        reference=SIX,
    )
    return landau.tables(design, lambda cells, work, _: run_here(cells, work)).figures


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("planner", SIX)
def test_a_cardinal_bin_score_is_near_the_published_one(planner, delta):
    published = paper.published(paper.CBS, planner, delta)
    tolerance = WIDER * (paper.cbs_tolerance(planner, delta) or 0.0)
    assert figures()["cbs"][planner][str(delta)] == pytest.approx(published, abs=tolerance)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("planner", SIX)
def test_an_expected_rscore_is_near_the_published_one(planner, delta):
    published = paper.published(paper.E_RSCORE, planner, delta)
    tolerance = WIDER * (paper.rscore_tolerance(planner, delta) or 0.0)
    assert figures()["e_rscore"][planner][str(delta)] == pytest.approx(published, abs=tolerance)


def test_the_orderings_hold():
    assert [what for what, broken in figures()["orderings broken"].items() if broken] == []


@pytest.mark.parametrize("delta", DELTAS)
def test_planners_use_more_consumers_in_the_published_order(delta):
    found = {planner: figures()["cbs"][planner][str(delta)] for planner in SIX}
    assert found["bfd"] < 0.0005
    assert found["mbfp"] < found["mbf"] < found["mwf"] < found["nfd"]


@pytest.mark.parametrize("delta", DELTAS)
def test_planners_move_more_in_the_published_order(delta):
    found = {planner: figures()["e_rscore"][planner][str(delta)] for planner in SIX}
    assert found["mwf"] < found["mwfp"] < found["nfd"]
    assert found["mwf"] < found["mbf"] < found["mbfp"] < found["bfd"]
