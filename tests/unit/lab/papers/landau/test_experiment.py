"""The parts of Landau's experiment, on streams small enough to be run here."""

from __future__ import annotations

import re
from functools import cache

import pytest

from trimtab.evaluate.rscore import TWELVE, cbs
from trimtab_lab.papers.grid import run_here
from trimtab_lab.papers.landau import experiment as landau
from trimtab_lab.papers.landau import packing_runs
from trimtab_lab.papers.landau.design import LandauDesign
from trimtab_lab.papers.landau.scores import LandauRun, Score, broken_orderings
from trimtab_lab.papers.part import figures_of, part_from
from trimtab_lab.papers.published import landau as paper
from trimtab_lab.papers.results import keep
from trimtab_lab.papers.verdict import RowVerdict

SMALL = LandauDesign(seeds=1, iterations=6, partitions=12, deltas=(5, 25), slacks=(0.1,), streams=1)


def run(cells, work, per_task):
    return run_here(cells, work)


@cache
def part(name):
    return landau.PARTS[name](SMALL, run)


def test_every_planner_of_the_paper_has_a_row_for_each_table_and_delta():
    whats = {row.what for row in part("tables").rows}
    assert {
        f"{figure} {p} d={d}" for figure in ("cbs", "e_rscore") for p in TWELVE for d in (5, 25)
    } <= whats


def test_other_conditions_than_the_published_ones_are_not_judged():
    for name in ("tables", "headline"):
        assert {row.verdict for row in part(name).rows} == {RowVerdict.NOT_COMPARABLE}


def test_where_nobody_moves_anything_no_saving_is_claimed():
    alone = LandauDesign(seeds=1, iterations=2, partitions=1, deltas=(5,), slacks=(0.1,))
    for name in ("headline", "beyond"):
        rows = [row for row in landau.PARTS[name](alone, run).rows if " below " in row.what]
        assert rows
        assert {(row.ours, row.verdict) for row in rows} == {(None, RowVerdict.NOT_COMPARABLE)}


@pytest.mark.parametrize("deltas", [(0,), (7,), (0, 7)])
@pytest.mark.parametrize("name", ["tables", "beyond"])
def test_any_deltas_make_a_page_and_pictures_of_it(name, deltas, tmp_path):
    design = LandauDesign(seeds=1, iterations=2, partitions=4, deltas=deltas, slacks=(0.1,))
    place = keep(tmp_path, "landau", {name: landau.PARTS[name](design, run)})
    shown = re.findall(r"\(plots/(.+?)\)", place.read_text(encoding="utf-8"))
    assert sorted(shown) == sorted(path.name for path in (tmp_path / "plots").glob("*"))
    assert any("front" in picture for picture in shown) == (7 in deltas)


def test_a_cbs_is_that_of_the_runs_behind_it():
    cells = []

    def listening(asked, work, per_task):
        cells.extend(asked)
        return run_here(asked, work)

    found = landau.tables(
        LandauDesign(seeds=1, iterations=6, partitions=12, deltas=(5,), starts=("uniform",)),
        listening,
    )
    figures = figures_of(cells, run_here(cells, packing_runs.packed))
    counts = {c.parameters["planner"]: f["consumers"] for c, f in zip(cells, figures, strict=True)}
    expected = cbs(counts, reference=TWELVE)
    assert {p: found.figures["cbs"][p]["5"] for p in TWELVE} == pytest.approx(
        {p: expected[p].value for p in TWELVE}, abs=1e-6
    )


def test_who_else_takes_part_changes_no_cbs_of_the_twelve():
    alone, together = part("tables").figures["cbs"], part("beyond").figures["planners"]
    for planner in TWELVE:
        assert together["5"][planner]["cbs"] == pytest.approx(alone[planner]["5"], abs=1e-6)


def test_the_headline_names_both_baselines():
    whats = [row.what for row in part("headline").rows]
    for baseline in ("bfd", "nfd", "nfd as eq. 14 has it"):
        assert f"mwf's e_rscore below that of {baseline} d=5" in whats


def test_a_part_reads_back_as_it_was_kept():
    kept = part("headline")
    assert part_from(kept.to_json()).to_json() == kept.to_json()


def test_an_ordering_that_does_not_hold_is_found_with_its_stream():
    good = {
        "bfd": Score(0.0, 24.0),
        "ffd": Score(0.001, 24.0),
        "mbfp": Score(0.002, 23.0),
        "mbf": Score(0.04, 16.0),
        "mwf": Score(0.12, 9.0),
        "mwfp": Score(0.12, 17.0),
        "nfd": Score(0.24, 20.0),
        "nf": Score(0.28, 31.0),
    }
    scores = {LandauRun(p, 5, "uniform", 0): score for p, score in good.items()}
    assert not any(broken_orderings(scores, 1).values())

    scores[LandauRun("mbf", 5, "uniform", 0)] = Score(0.13, 16.0)
    broken = broken_orderings(scores, 1)
    assert {what: where for what, where in broken.items() if where} == {
        "cbs mbfp < mbf < mwf < nfd < nf": [[5, 0]]
    }


def test_an_rscore_of_mwf_that_does_not_grow_with_delta_is_found():
    scores = {
        LandauRun("mwf", delta, "uniform", 0): Score(0.1, value)
        for delta, value in ((5, 9.0), (10, 11.0), (15, 10.5))
    }
    assert broken_orderings(scores, 1)["e_rscore mwf grows with delta"] == [[10, 0]]


def test_objective_a_counts_the_plans_with_more_consumers_than_bfd():
    found = {
        LandauRun("trim", 5, "uniform", 0): {"consumers": [3, 4, 5]},
        LandauRun("bfd", 5, "uniform", 0): {"consumers": [3, 3, 6]},
    }
    means = {("trim", 5): Score(0.0, 6.0), ("bfd", 5): Score(0.0, 10.0)}
    rows = landau._objective_a(found, means, [5])
    assert [row.ours for row in rows] == pytest.approx([1, 0.4, 0.4])
    assert [row.verdict for row in rows] == [
        RowVerdict.OUTSIDE,
        RowVerdict.BETTER,
        RowVerdict.OUTSIDE,
    ]


def test_the_latency_part_has_no_row_that_cannot_fail():
    # A moved queue's p90 is 0.9 of the rebalance whoever packs, and a consumer each never waits.
    whats = [row.what for row in part("latency").rows]
    assert not [w for w in whats if w.startswith("p90_s") and "kd_" not in w]
    assert not [w for w in whats if w.startswith(("max_s", "bytes that wait with a consumer each"))]
    assert [w for w in whats if w.startswith("bytes that wait, mwf's by bfd's")]


def test_an_rscore_that_the_paper_does_not_have_is_none():
    assert paper.published(paper.CBS, "trim", 5) is None
    assert paper.published(paper.CBS, "mwf", 7) is None
    assert paper.published(paper.CBS, "mwf", 5) == 0.118


def test_every_published_table_is_complete():
    for table in (paper.CBS, paper.E_RSCORE):
        assert set(table) == set(TWELVE)
        assert {len(row) for row in table.values()} == {len(paper.DELTAS)}
