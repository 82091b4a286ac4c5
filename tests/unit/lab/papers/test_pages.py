"""docs/papers is what the kept results make of it."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from trimtab.errors import BadFile
from trimtab_lab.papers.burato.design import OURS, RACK_AWARE, BrokerWorld
from trimtab_lab.papers.markdown import rows_table
from trimtab_lab.papers.pages import page
from trimtab_lab.papers.part import Part, read_parts
from trimtab_lab.papers.plots import drawings, picture
from trimtab_lab.papers.registry import EXPERIMENTS
from trimtab_lab.papers.results import keep, remarks, renew, results_file
from trimtab_lab.papers.verdict import RowVerdict, at_most

PAPERS = ROOT / "docs" / "papers"
KEPT = {path.stem: path for path in sorted((PAPERS / "results").glob("*.json"))}


NEARLY_0 = {"cbs": 0.003, "e_rscore": 0.05}


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


def test_each_experiment_has_kept_results_and_a_page_and_no_other_has():
    assert set(KEPT) == set(EXPERIMENTS)
    assert {path.stem for path in PAPERS.glob("*.md")} == set(EXPERIMENTS)
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert [name for name in EXPERIMENTS if f"(papers/{name}.md)" not in index] == []


def test_a_picture_is_the_same_each_time_it_is_drawn():
    draw = drawings("ezzeddine", read_parts(KEPT["ezzeddine"]))["ezzeddine-workload-1-cost"]
    assert picture(draw) == picture(draw)
    assert picture(draw).startswith(b"<?xml")
    assert picture(draw, form="png").startswith(b"\x89PNG")


def test_what_is_outside_stands_out_and_is_counted():
    rows = [at_most("kept", 0, 0), at_most("broken", 0, 1)]
    table = rows_table(rows)
    assert table.startswith("1 within, 1 outside.")
    assert "| what | paper | model | bar | ours | tolerance | verdict |" in table
    assert "| broken | – | – | 0 | 1 | – | **outside** |" in table


@pytest.mark.parametrize("experiment", KEPT)
def test_no_row_is_without_a_chance_to_fail_or_something_beside_it(experiment):
    for part in read_parts(KEPT[experiment]).values():
        for row in part.rows:
            known = [row.paper, row.model, row.bar]
            if row.verdict is RowVerdict.NOT_COMPARABLE:
                assert row.tolerance is None, row
            elif row.tolerance is not None and row.bar is None:
                # A tolerance of half of the figure, or more, would let nearly anything pass;
                # what is 0 or nearly so is judged by what its last digit can tell.
                figure = row.paper if row.model is None else row.model
                assert figure is not None, row
                least = NEARLY_0.get(row.what.split()[0], 0.0)
                assert row.tolerance <= max(0.45 * abs(figure), least), row
            else:
                assert known[2] is not None, row


def test_figures_that_are_so_by_definition_are_no_rows():
    rows = [row.what for part in read_parts(KEPT["ezzeddine"]).values() for row in part.rows]
    assert [what for what in rows if what.startswith("replica-minutes of 5 fixed")] == []
    assert any("those of 5 fixed consumers" in what for what in rows)


@pytest.mark.parametrize("experiment", KEPT)
def test_no_page_calls_a_number_of_ours_published(experiment):
    text = (PAPERS / f"{experiment}.md").read_text(encoding="utf-8")
    said = [line for line in text.splitlines() if "| published" in line or "published |" in line]
    assert said == []


def test_a_page_names_the_parts_that_were_not_run():
    part = Part(settings={}, rows=(at_most("a", 0, 0),), figures={})
    made = page("landau", {"headline": part})
    assert "## Not run yet\n\n- CBS and E[Rscore]\n- Latency (section VI-C)\n" in made
    assert "Not run yet" not in page("landau", read_parts(KEPT["landau"]))


def test_the_pages_say_where_we_contradict_the_papers():
    parts = read_parts(KEPT["landau"])
    waits = parts["latency"].figures["latencies"]
    latency = page("landau", parts)
    said = " and ".join(f"{waits[name]['p90_s']:.0f}" for name in ("kd_24", "kd_30"))
    assert f"kd_24 and kd_30 have a p90 of {said} s" in latency
    assert "*Multi-Objective Optimization of Consumer Group Autoscaling in Message" in latency
    live = read_parts(KEPT["landau-live"])
    peaks = " / ".join(f"{row.ours:.1f}" for row in live["peak"].rows)
    assert f"{peaks} MB/s" in page("landau-live", live)


def test_the_page_of_the_partitioners_begins_with_the_result_and_its_limits():
    parts = read_parts(KEPT["burato"])
    made = page("burato", parts)
    result = made.split("## What was run, and how")[0]
    slow = [c for c in parts["open-loop"].figures["cells"] if c["world"] == BrokerWorld.SLOWED]
    ours = [c for c in slow if c["policy"].startswith(OURS)]
    crowded = [100 * max(c["by_partition"].values()) for c in ours if c["topic"] == "U2"]
    if min(crowded) > 90:
        assert re.search(rf"put {min(crowded):.0f}\D.*% of U2 on one partition", result)
    for name in {c["policy"] for c in slow if (c["of_own"] or 0) > 1}:
        over = [c["of_own"] for c in slow if c["policy"] == name and (c["of_own"] or 0) > 1]
        spread = dict.fromkeys(f"{times:.2g}" for times in (min(over), max(over)))
        assert f"{name} {' to '.join(spread)}" in result
    [(mine, other)] = [
        (c["p95_ms"][0], other["p95_ms"][0])
        for c in ours
        for other in slow
        if other["policy"] == f"{RACK_AWARE} in a"
        and all(x["topic"] == "U2" and (x["acks"], x["load"]) == ("1", 0.7) for x in (c, other))
    ]
    assert f"{other:.0f} ms compared with {mine:.0f} ms on U2 acks=1 at 70%" in result
    assert "The acks of B1 and U1 are not stated" in made
    assert "B1 acks" not in result


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
    with pytest.raises(BadFile, match=r"results\.json: not a valid experiment result"):
        read_parts(place)
