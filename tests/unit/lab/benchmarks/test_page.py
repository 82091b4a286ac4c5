"""docs/benchmarks.md says what the kept results say, wins and losses alike."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import ROOT
from trimtab.errors import BadFile
from trimtab_lab.benchmarks import page
from trimtab_lab.benchmarks.benchmark import Result
from trimtab_lab.benchmarks.registry import BENCHMARKS


def _result(name: str, ratio: float) -> Result:
    curve = {"curve": {"1000": 2.0, "4000": 1.5}} if "growth" in name else {}
    return Result(
        name=name,
        ours=ratio * 1e6,
        rival=1e6,
        ratio=ratio,
        unit=str(BENCHMARKS[name].unit),
        settings={"rows": 1, "machine": "2 cores", **curve},
    )


def _row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_a_missed_bar_is_printed_with_its_reason(name: str) -> None:
    text = page.page([_result(name, BENCHMARKS[name].bar - 0.1)])

    assert "**misses**" in _row(text, name)
    assert f"- `{name}`: {page.why_missed(_result(name, 0))}" in text


def test_a_bar_that_is_just_reached_is_met() -> None:
    text = page.page([_result("rates", BENCHMARKS["rates"].bar)])

    assert _row(text, "rates").endswith("| meets |")
    assert "Why bars are missed" not in text


def test_a_page_shows_only_pictures_that_are_written_with_it() -> None:
    for names in (["rates"], ["rates", "growth"], ["plan-growth"], ["growth", "plan-growth"]):
        made = page.files([_result(name, 1.0) for name in names])
        for picture in ("ratios.svg", *(curves.picture for curves in page.CURVES)):
            assert (f"plots/{picture}" in made[page.PAGE]) == (page.PLOTS / picture in made)


def test_equal_results_make_equal_pictures() -> None:
    ratios = {"rates": 0.8, "growth": 1.2, "growth-keys": 0.9, "plan-fits": 80.0, "plan-growth": 1}
    results = [_result(name, ratio) for name, ratio in ratios.items()]

    assert page.files(results) == page.files(results)


def test_a_damaged_result_is_named(tmp_path: Path) -> None:
    (tmp_path / page.RESULTS).mkdir(parents=True)
    (tmp_path / page.RESULTS / "rates.json").write_text('{"name":"rates"')

    with pytest.raises(BadFile, match=r"rates\.json"):
        page.kept_results(tmp_path)


def test_the_page_in_docs_is_that_of_the_results_kept() -> None:
    results = page.kept_results(ROOT)

    assert {r.name for r in results} == set(BENCHMARKS)
    for path, text in page.files(results, page.kept_quality(ROOT)).items():
        if path == page.PAGE:
            assert (ROOT / path).read_text(encoding="utf-8") == text
        assert (ROOT / path).exists()


@pytest.mark.parametrize("name", list(BENCHMARKS))
def test_a_kept_result_is_of_the_size_that_its_bar_is_for(name: str) -> None:
    kept = json.loads((ROOT / page.RESULTS / f"{name}.json").read_text(encoding="utf-8"))

    assert kept["settings"]["rows"] == BENCHMARKS[name].rows
    assert kept["settings"]["runs"] >= BENCHMARKS[name].least_runs
