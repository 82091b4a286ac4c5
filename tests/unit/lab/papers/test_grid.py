"""Cells and their keys: kept results hold as long as what they depend on."""

from __future__ import annotations

import math

import pytest

from trimtab_lab.papers import grid
from trimtab_lab.papers.grid import GridCell, code_version, finished, run_here
from trimtab_lab.papers.landau import packing_runs

ANY_FIT = "trimtab.plan.consumers.any_fit"
BASELINES = "trimtab.plan.consumers.baselines"


@pytest.fixture
def forget():
    """Versions are computed anew, here and afterwards."""

    def all_caches():
        grid._hashed.cache_clear()
        grid._imports.cache_clear()

    all_caches()
    yield all_caches
    all_caches()


def test_a_key_depends_on_every_parameter_and_on_the_code_but_not_on_their_order():
    cell = GridCell({"planner": "mwf", "seed": 1}, "v1")
    assert cell.key == GridCell({"seed": 1, "planner": "mwf"}, "v1").key
    others = [
        GridCell({"planner": "mwf", "seed": 2}, "v1"),
        GridCell({"planner": "mwf", "seed": 1}, "v2"),
    ]
    assert len({cell.key, *(other.key for other in others)}) == 3


def test_a_change_in_a_module_changes_the_version_of_what_imports_it_and_of_nothing_else(
    forget, monkeypatch
):
    modules = {name: [packing_runs.__name__, name] for name in (ANY_FIT, BASELINES)}
    before = {name: code_version(roots) for name, roots in modules.items()}
    source = grid._source

    monkeypatch.setattr(grid, "_source", lambda name: source(name) + "#" * (name == BASELINES))
    forget()

    assert code_version(modules[ANY_FIT]) == before[ANY_FIT]
    assert code_version(modules[BASELINES]) != before[BASELINES]


def test_a_change_far_away_changes_the_version_too(forget, monkeypatch):
    before = code_version([packing_runs.__name__])
    source = grid._source

    far = "trimtab.model.assignment"
    monkeypatch.setattr(grid, "_source", lambda name: source(name) + "#" * (name == far))
    forget()

    assert code_version([packing_runs.__name__]) != before


def test_a_cell_that_fails_says_why_and_leaves_the_others_alone():
    def root(parameters):
        return {"root": math.sqrt(parameters["of"])}

    cells = [GridCell({"of": of}, "v") for of in (4, -1, 9)]
    found = run_here(cells, root)

    assert [found[cell.key].figures for cell in cells] == [{"root": 2.0}, None, {"root": 3.0}]
    assert str(found[cells[1].key].error).startswith("ValueError: ")


def test_figures_that_json_cannot_hold_are_a_failure_of_their_cell():
    found = finished(GridCell({}, "v"), lambda _: {"nothing": math.nan})
    assert found.figures is None
    assert "ValueError" in str(found.error)
