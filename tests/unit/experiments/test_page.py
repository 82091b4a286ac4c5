"""docs/papers is what the kept results make of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab.errors import BadFile
from trimtab.experiments.kept import keep, remarks, renew, results_file
from trimtab.experiments.markdown import rows_table
from trimtab.experiments.page import page
from trimtab.experiments.part import Part, read_parts
from trimtab.experiments.plots import drawings, picture
from trimtab.experiments.verdict import at_most

PAPERS = Path(__file__).parents[3] / "docs" / "papers"
KEPT = {path.stem: path for path in sorted((PAPERS / "results").glob("*.json"))}


@pytest.mark.parametrize("experiment", KEPT)
def test_a_page_is_what_the_kept_results_make_of_it(experiment):
    made = page(experiment, read_parts(KEPT[experiment]), remarks(PAPERS, experiment))
    assert (PAPERS / f"{experiment}.md").read_text(encoding="utf-8") == made


@pytest.mark.parametrize("experiment", KEPT)
def test_a_picture_is_there_for_each_one_that_the_results_give(experiment):
    names = drawings(experiment, read_parts(KEPT[experiment]))
    text = (PAPERS / f"{experiment}.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(plots/(.+?)\.svg\)", text)) == set(names)
    assert [name for name in names if not (PAPERS / "plots" / f"{name}.svg").exists()] == []


def test_both_papers_have_a_page_and_a_live_one():
    assert {"landau", "landau-live", "ezzeddine", "ezzeddine-live"} <= set(KEPT)


def test_a_picture_is_the_same_each_time_it_is_drawn():
    draw = drawings("ezzeddine", read_parts(KEPT["ezzeddine"]))["ezzeddine-workload-1-cost"]
    assert picture(draw) == picture(draw)
    assert picture(draw).startswith(b"<?xml")
    assert picture(draw, form="png").startswith(b"\x89PNG")


def test_what_is_outside_stands_out_and_is_counted():
    rows = [at_most("kept", 0, 0), at_most("broken", 0, 1)]
    table = rows_table(rows)
    assert table.startswith("1 within, 1 outside.")
    assert "| broken | 0 | 1 | 0 | **outside** |" in table


def test_remarks_on_the_runs_stand_on_their_page_and_on_no_other(tmp_path):
    parts = {"headline": Part(settings={}, rows=(at_most("a", 0, 0),), figures={})}
    assert "Remarks" not in keep(tmp_path, "landau", parts).read_text(encoding="utf-8")
    (tmp_path / "results" / "landau.remarks.txt").write_text("- The machine was slow.\n")
    made = renew(tmp_path, "landau").read_text(encoding="utf-8")
    assert "## Remarks on these runs\n\n- The machine was slow.\n" in made


def test_a_part_that_is_run_again_replaces_itself_and_leaves_the_others(tmp_path):
    parts = {
        name: Part(settings={}, rows=(at_most(name, 0, 0),), figures={})
        for name in ("headline", "other")
    }
    keep(tmp_path, "landau", parts)
    again = Part(settings={}, rows=(at_most("headline again", 0, 1),), figures={})
    keep(tmp_path, "landau", {"headline": again})

    kept = read_parts(results_file(tmp_path, "landau"))
    assert {name: part.rows[0].what for name, part in kept.items()} == {
        "headline": "headline again",
        "other": "other",
    }
    assert "headline again" in renew(tmp_path, "landau").read_text(encoding="utf-8")


def test_a_file_that_is_no_result_is_named(tmp_path):
    place = tmp_path / "results.json"
    place.write_text('{"rows": []}', encoding="utf-8")
    with pytest.raises(BadFile, match=r"results\.json: is no result"):
        read_parts(place)
