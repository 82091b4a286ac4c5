"""The parts of the experiment on hot keys: what makes a row stand within, outside or unjudged.

Simulations are replaced by figures that meet everything; each test then breaks one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from trimtab.workload.key_streams import KeyStream
from trimtab_lab.papers.grid import run_here
from trimtab_lab.papers.part import part_from
from trimtab_lab.papers.published import smalops as paper
from trimtab_lab.papers.results import keep
from trimtab_lab.papers.smalops import key_runs as runs
from trimtab_lab.papers.smalops.design import SmalopsDesign, busiest_share
from trimtab_lab.papers.smalops.experiment import PARTS
from trimtab_lab.papers.smalops.rival_list import RIVALS, SETTINGS
from trimtab_lab.papers.smalops.steady_parts import crossing
from trimtab_lab.papers.smalops.workload_runs import counted, windows
from trimtab_lab.papers.verdict import RowVerdict

DESIGN = SmalopsDesign()
Change = Callable[[dict[str, Any], dict[str, Any]], None]


def pretended(parameters: dict[str, Any], *, change: Change | None = None) -> dict[str, Any]:
    """The figures of a run that meets everything, after `change(parameters, figures)`."""
    figures = _run(parameters) if "policy" in parameters else _workload()
    if change is not None:
        change(parameters, figures)
    return figures


def _workload() -> dict[str, Any]:
    return {
        "records": 28_000_000,
        "used_keys": 3_220_000,
        "hot_keys": 14_500,
        "hot_records": 20_350_000,
        "first_shares": [0.0448, 0.0317, 0.0244],
        "tracked": [655, 665],
        "tracked_in_two": [1250],
        "sketch_entries": 8600,
        "sketch_hot": 660,
    }


def _run(parameters: dict[str, Any]) -> dict[str, Any]:
    policy, shift = parameters["policy"], parameters["shift"]
    busy = parameters["rate_s"] * parameters["service_us"] * 1e-6 * busiest_share(8)
    hashed = 30 * parameters["service_us"]
    gain = 0.4 if shift else _gain(busy)
    few = parameters["options"].get("threshold", "").startswith(("share:", "coverage:0.0"))
    p99 = hashed if policy == "hash" or few else hashed * (1 - gain)
    starts = np.arange(parameters["duration_s"] // parameters["window_s"]) * parameters["window_s"]
    migrations = {"hash": 0, "round-robin": 0, "trim": 4}.get(policy, 400)
    return {
        "p50_us": p99 / 10,
        "p90_us": 0.7 * hashed if parameters["service_us"] == 20 else p99 / 2,
        "p99_us": p99,
        "p999_us": 2 * p99,
        "p99_without_first_us": p99,
        "minutes_p99_us": [p99] * 4,
        "sla_share": 0.99,
        "imbalance": 1.34 if policy == "hash" else 1.01,
        "imbalance_bound": 1.0,
        "e_lb": 1000.0,
        "migrations": migrations,
        "tracked": {"hash": 0, "trim": 4}.get(policy, 780),
        "quantiles_us": [p99 * share for share in runs.PROBABILITIES],
        "windows": {
            "start_s": starts.tolist(),
            "p99_us": [p99] * starts.size,
            "imbalance": [1.3] * starts.size,
            "migrations": [migrations / starts.size] * starts.size,
        },
    }


def _gain(busy: float) -> float:
    if busy < 0.4:
        return 0.06
    at = list(paper.P99_LOWER_MODEL)
    return float(np.interp(busy, at, [known.value for known in paper.P99_LOWER_MODEL.values()]))


def part(name: str, change: Change | None = None, design: SmalopsDesign = DESIGN):
    return PARTS[name](design, lambda cells, *_: run_here(cells, partial(pretended, change=change)))


def outside(name: str, change: Change) -> list[str]:
    return [r.what for r in part(name, change).rows if r.verdict is RowVerdict.OUTSIDE]


@pytest.mark.parametrize("name", PARTS)
def test_what_meets_everything_is_within(name):
    judged = [r for r in part(name).rows if r.verdict is not RowVerdict.NOT_COMPARABLE]
    assert judged
    assert [row for row in judged if row.verdict is not RowVerdict.WITHIN] == []


@pytest.mark.parametrize("name", PARTS)
@pytest.mark.parametrize("short", [{"seeds": 1}, {"duration_s": 20.0}])
def test_a_single_seed_or_a_short_run_is_not_judged(name, short):
    rows = part(name, design=replace(DESIGN, **short)).rows
    assert {row.verdict for row in rows} == {RowVerdict.NOT_COMPARABLE}


def _set(policy: str, **changed: Any) -> Change:
    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        if parameters.get("policy") == policy:
            figures.update(changed)

    return change


def _times(policy: str, figure: str, factor: float, **at: Any) -> Change:
    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        if parameters.get("policy") == policy and all(parameters[k] == v for k, v in at.items()):
            figures[figure] = figures[figure] * factor

    return change


@pytest.mark.parametrize(
    ("name", "change", "row"),
    [
        ("delays", _times("smalops", "p99_us", 1.2, service_us=50.0), "p99 .* at 50 µs"),
        ("delays", _times("smalops", "p99_us", 0.9, service_us=20.0), "p99 .* at 20 µs"),
        ("delays", _times("smalops", "p90_us", 1.2, service_us=20.0), "p90 at 20 µs"),
        ("delays", _times("smalops", "p50_us", 9.0, service_us=50.0), "p50 at 50 µs"),
        ("delays", _set("smalops", imbalance=1.03), "imbalance of smalops"),
        ("delays", _set("hash", imbalance=1.2), "imbalance of hash"),
        ("delays", _set("smalops", tracked=900), "keys tracked"),
        ("service-times", _times("smalops", "p99_us", 1.2, service_us=10.0), "by hash's at 10 µs"),
        ("service-times", _times("smalops", "p99_us", 0.0, service_us=40.0), "wider gap"),
        ("utilisation", _times("smalops", "p99_us", 1.15), "at a utilisation of 0.9"),
        ("shifting", _set("smalops", minutes_p99_us=[100] * 4), "in the best minute"),
        ("shifting", _set("smalops", minutes_p99_us=[500, 500, 540, 500]), "largest distance"),
        ("shifting", _set("smalops", minutes_p99_us=[500, 500, 500, 601]), "is not below hash's"),
        ("shifting", _set("smalops", minutes_p99_us=[500, 500, 500, 500]), "in the worst minute"),
        ("rivals", _set("gedik", p99_us=1, migrations=4), "no more migrations than trim: gedik"),
        ("ours", _set("trim", imbalance=1.02), "steady: imbalance"),
        ("ours", _times("trim", "p99_us", 1.02, shift=0), "steady: p99"),
        ("ours", _set("trim", migrations=40), "steady: migrations"),
        ("ours", _set("trim", migrations=40), "windows of 1 s: migrations"),
        ("ours", _set("trim", tracked=40), "steady: tracked keys"),
        ("ours", _times("trim", "p99_us", 1.04, window_s=1.0), "windows of 1 s: p99 of trim"),
        ("ours", _times("trim", "p99_without_first_us", 1.04), "windows of 10 s: p99 of trim"),
    ],
)
def test_what_does_not_meet_it_is_outside(name, change, row):
    assert [what for what in outside(name, change) if re.search(row, what)]


def test_a_sweep_that_is_not_flat_or_gains_too_little_is_outside():
    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        threshold = parameters["options"].get("threshold")
        factors = {"coverage:0.2": 2.0, "coverage:0.3": 1.1, "share:0.05": 0.99}
        figures["p99_us"] *= factors.get(threshold, 1.0)

    assert len(outside("thresholds", change)) == 3


def test_a_sweep_shows_the_median_of_its_draws_and_how_many_are_worse_than_hash():
    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        if parameters["options"].get("first_plan") in (1000, 2000):
            figures["p99_us"] = 1e6

    found = {row.what: row for row in part("thresholds", change).rows}
    assert found["draws of 6 that are worse than hash, top keys with 10%"].ours == 2
    assert found["p99 below hash's, top keys with 20% of the records, at least"].ours > 0.7


def test_a_window_worse_than_hash_counts_unless_it_is_the_first_or_follows_a_shift():
    def worse_at(start_s: float) -> Change:
        def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
            if parameters["policy"] == "trim":
                starts, p99 = (figures["windows"][name] for name in ("start_s", "p99_us"))
                p99[:] = [1e6 if s == start_s else v for s, v in zip(starts, p99, strict=True)]

        return change

    assert outside("ours", worse_at(0.0)) == []
    assert outside("ours", worse_at(60.0)) == []
    whats = outside("ours", worse_at(10.0))
    assert [what for what in whats if what.startswith("steady")]
    assert len([what for what in whats if "first after a shift left out" in what]) == 4


def test_a_minute_worse_than_hash_is_explained_on_the_page(tmp_path):
    change = _set("smalops", minutes_p99_us=[100, 100, 9000, 100])
    text = keep(tmp_path, "smalops", {"shifting": part("shifting", change)}).read_text("utf-8")
    assert "**Why these minutes are worse than hash.**" in text
    assert "its p99 is 15 times hash's in the worst minute" in text
    calm = keep(tmp_path, "smalops", {"shifting": part("shifting")}).read_text("utf-8")
    assert "**Why" not in calm
    assert "its p99 is 40% below hash's in the worst minute" in calm


def test_the_windows_in_which_trim_is_worse_are_named_on_the_page(tmp_path):
    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        if (parameters["policy"], parameters["window_s"]) == ("trim", 1.0) and parameters["shift"]:
            figures["windows"]["p99_us"][60:63] = [5e6, 1e6, 1e6]

    found = part("ours", change)
    rows = {row.what: row for row in found.rows}
    what = "shift 10, windows of 1 s: p99 of trim by hash's, worst first window after a shift"
    assert rows[what].ours == pytest.approx(5e6 / 600)
    text = keep(tmp_path, "smalops", {"ours": found}).read_text("utf-8")
    assert "windows of 1 s: 4 of the windows that are judged, 2 of them the second" in text


def test_a_workload_with_other_keys_is_outside():
    assert outside("workload", lambda _, figures: figures.update(used_keys=3_300_000)) == [
        "keys used"
    ]
    assert outside("workload", lambda _, figures: figures.update(tracked=[720])) != []


def test_the_best_setting_at_the_same_window_is_what_trim_is_compared_with():
    best = SETTINGS[1.0][-1]

    def change(parameters: dict[str, Any], figures: dict[str, Any]) -> None:
        if parameters["options"] == best.options and parameters["window_s"] == 1.0:
            figures["p99_us"] *= 0.9

    whats = outside("ours", change)
    assert whats
    assert all(best.name in what and "windows of 1 s" in what for what in whats)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_reads_back_and_makes_a_page_with_pictures(name, tmp_path):
    kept = part(name)
    assert part_from(kept.to_json()).to_json() == kept.to_json()
    text = keep(tmp_path, "smalops", {name: kept}).read_text(encoding="utf-8")
    shown = re.findall(r"\(plots/(.+?)\)", text)
    assert sorted(shown) == sorted(path.name for path in (tmp_path / "plots").glob("*"))
    assert bool(shown) == (name != "workload")


def test_no_two_rows_of_the_experiment_have_the_same_name():
    whats = [row.what for name in PARTS for row in part(name).rows]
    assert len(set(whats)) == len(whats)


def test_no_row_has_a_figure_of_ours_as_the_papers():
    known = {*paper.P99_LOWER.values(), paper.USED_KEYS, paper.HOT_KEYS, paper.HOT_RECORDS}
    known.add(100 * paper.TRACKED_SHARE)
    named = {row.paper for name in PARTS for row in part(name).rows}
    assert named <= {*known, None}


def test_the_rate_is_that_of_the_acceptance_layout():
    assert 8 * busiest_share(8) == pytest.approx(1.34, abs=0.01)
    assert DESIGN.rate(0.943) == pytest.approx(112_400, rel=0.002)


def test_a_level_between_two_points_is_found_and_none_beyond_them():
    assert crossing([0.8, 0.9, 1.0], [0.3, 0.5, 0.9], 0.57) == pytest.approx(0.9175)
    assert crossing([0.8, 0.9], [0.3, 0.5], 0.57) is None


def test_every_rival_states_what_it_gives_up():
    assert {each.contestant.policy for each in RIVALS} >= {
        *("hash", "round-robin", "smalops", "trim", "pkg", "d-choices", "w-choices"),
        *("ch-bl-1.25", "ch-bl-1.05", "gedik", "dkg"),
    }
    assert all(each.gives_up for each in RIVALS)
    assert {each.contestant.name for each in RIVALS if not each.whole_keys} == {
        *("round-robin", "pkg", "d-choices", "w-choices"),
    }


def test_windows_hold_all_records_of_their_time():
    stream = KeyStream(rate_s=1000.0, seed=3)
    times = np.concatenate([block.times_s for block in stream.blocks(3.5)])
    keys = np.concatenate([block.keys for block in stream.blocks(3.5)])
    found = list(windows(stream, 3.5, 1.0))
    assert [window.tolist() for window in found] == [
        keys[(times >= second) & (times < second + 1)].tolist() for second in range(3)
    ]


def test_the_workload_is_counted_over_the_run_and_by_window():
    found = counted(
        {
            "records": 40_000,
            "keys": 100_000,
            "duration_s": 4.0,
            "window_s": 1.0,
            "hot_count": 20,
            "seed": 0,
        }
    )
    assert found["records"] == pytest.approx(40_000, rel=0.02)
    assert len(found["tracked"]) == 4
    assert len(found["tracked_in_two"]) == 2
    assert fmean(found["tracked"]) < fmean(found["tracked_in_two"]) < found["hot_keys"]
    assert found["hot_keys"] < found["used_keys"]
    assert found["sketch_entries"] >= found["sketch_hot"] >= found["tracked"][0]
    assert found["first_shares"][0] > found["first_shares"][1] > found["first_shares"][2]
