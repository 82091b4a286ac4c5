"""`trimtab simulate`, from files to what is printed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.simulate.recorded import warehouse
from trimtab.cli.main import run
from trimtab.evaluate.rscore import TWELVE
from trimtab.model.codec import read_loads
from trimtab.model.load import Loads
from trimtab.simulate.tables import read_stream

STREAM: dict[str, Any] = {
    "v": 1,
    "capacity": 100,
    "steps": [
        {"loads": {"orders": {"0": 60, "1": 40}, "pay": {"0": 50}}},
        {"loads": {"orders": {"0": 70, "1": 40}, "pay": {"0": 50}}},
    ],
}


@pytest.fixture
def trimtab(tmp_path, monkeypatch, capsys):
    """Runs the command line in a folder of its own; returns exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")

    def command(*arguments):
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return command


@pytest.fixture
def packing(trimtab, tmp_path):
    def command(content, *options, planner="mwf"):
        path = tmp_path / "stream.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        names = [planner] if isinstance(planner, str) else planner
        chosen = [word for name in names for word in ("--planner", name)]
        return trimtab("simulate", "packing", "--stream", str(path), *chosen, *options)

    return command


def test_one_planner_prints_the_shape_of_the_contract(packing):
    code, out, _ = packing(STREAM, "--json")
    assert code == 0
    assert json.loads(out) == {
        "planner": "mwf",
        "steps": [
            {
                "consumers": 2,
                "rscore": 0.0,
                "moves": 0,
                "assignment": {"orders": {"0": 0, "1": 1}, "pay": {"0": 1}},
            },
            {
                "consumers": 2,
                "rscore": 0.0,
                "moves": 0,
                "assignment": {"orders": {"0": 0, "1": 1}, "pay": {"0": 1}},
            },
        ],
        "summary": {
            "mean_consumers": 2.0,
            "e_rscore": 0.0,
            "moves": 0,
            "moved_fraction": 0.0,
            "utilisation": pytest.approx((0.75 + 0.8) / 2),
        },
    }


def test_the_same_command_prints_the_same_bytes(packing):
    options = ("--order", "shuffle", "--nf-first-bin", "zero", "--seed", "3", "--json")
    first, again = (packing(STREAM, *options, planner="nf") for _ in range(2))
    assert first == again
    assert first[0] == 0


def test_the_conditions_of_a_comparison_are_no_mistake_for_planners_without_chance(packing):
    code, _, _ = packing(STREAM, "--order", "shuffle", "--seed", "1", "--json", planner="bfd")
    assert code == 0


def test_several_planners_are_a_list(packing, tmp_path):
    code, out, _ = packing(STREAM, "--json", "-o", "out.json", planner=["bfd", "mwf", "bfd"])
    assert code == 0
    assert [one["planner"] for one in json.loads(out)] == ["bfd", "mwf"]
    assert json.loads((tmp_path / "out.json").read_text()) == json.loads(out)


def test_people_get_the_summary_and_every_step_of_a_short_stream(packing):
    code, out, _ = packing(STREAM)
    assert code == 0
    assert "2 steps" in out
    assert "77.5%" in out
    assert out.count("│") > 10


def test_a_long_stream_is_drawn_in_few_lines(packing):
    code, out, _ = packing({**STREAM, "steps": STREAM["steps"] * 100})
    assert code == 0
    assert len(out.splitlines()) < 20
    assert "▁" in out


def test_all_twelve_side_by_side_have_their_cardinal_bin_score(packing):
    code, out, _ = packing(STREAM, planner=list(TWELVE))
    assert code == 0
    assert "CBS" in out
    assert "mwf *" in out


@pytest.mark.parametrize(
    ("options", "planner", "line"),
    [
        (("--slack", "0.1"), "mwf", "error: --slack is not supported by mwf."),
        (("--consumers", "3"), "bfd", "error: --consumers is not supported by bfd."),
        (("--sla", "5s"), "nf", "error: --sla is not supported by nf."),
        (("--lag-threshold", "5"), "mwf", "error: --lag-threshold is not supported by mwf."),
        (("--dead", "7:0"), "mwf", "error: --dead takes STEP:N such as 3:0"),
        (("--dead", "x"), "mwf", "error: --dead takes STEP:N such as 3:0"),
        (("--slack", "inf"), "trim", "inf is not a finite number"),
    ],
)
def test_an_option_that_means_nothing_is_refused(packing, options, planner, line):
    code, out, err = packing(STREAM, *options, planner=planner)
    assert (code, out) == (2, "")
    assert line in err


def test_an_option_needs_only_one_planner_that_reads_it(packing):
    code, out, _ = packing(
        STREAM, "--consumers", "3", "--json", planner=["bfd", "kafka-round-robin"]
    )
    assert code == 0
    assert [one["steps"][0]["consumers"] for one in json.loads(out)] == [2, 3]


def test_a_planner_that_nobody_knows_is_refused(packing):
    code, _, err = packing(STREAM, planner="mwff")
    assert code == 4
    assert 'Did you mean "mwf"?' in err


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({**STREAM, "capacity": 0}, "stream.json: capacity: should be above 0"),
        (
            {**STREAM, "steps": [{"loads": {"t": {"0": -1}}}]},
            "stream.json: steps[0].loads.t.0: is negative: -1",
        ),
        ('{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":NaN}}}]}', "steps[0].loads.t.0"),
        ('{"v":1,"capacity":1,"steps":[{"loads":{"t":{"0":1,"0":2}}}]}', "appears twice"),
        (
            {**STREAM, "steps": [{"loads": {"t": {"0": 1e308, "1": 1e308}}}]},
            "steps[0]: the sum of the loads is too large",
        ),
        ({**STREAM, "steps": []}, "has no steps"),
    ],
)
def test_a_stream_that_is_wrong_is_refused_in_one_line_that_names_the_place(
    packing, content, complaint
):
    code, out, err = packing(content)
    assert (code, out) == (2, "")
    assert complaint in err
    assert err.count("error:") == 1


def test_a_consumer_may_die_on_the_way(packing):
    code, out, _ = packing(STREAM, "--dead", "1:1", "--json")
    assert code == 0
    assert json.loads(out)["steps"][1]["moves"] == 0


def test_ll_ffd_reads_lags_and_sla_of_the_file(packing):
    lags = {"lags": {"orders": {"0": 400}, "pay": {"0": 400}}}
    content = {
        **STREAM,
        "unit": "records/s",
        "sla_s": 5,
        "steps": [STREAM["steps"][0] | lags],
    }
    code, out, err = packing(content, "--json", planner="ll-ffd")
    assert (code, err) == (0, "")
    owners = json.loads(out)["steps"][0]["assignment"]
    assert owners["orders"]["0"] != owners["pay"]["0"]


def test_ll_ffd_without_an_sla_says_what_is_missing(packing):
    code, _, err = packing(STREAM, planner="ll-ffd")
    assert code == 4
    assert "--sla" in err
    assert "warning: ll-ffd compares loads in bytes/s with lags" in err


def stream(*options, partitions=5):
    made = ("--partitions", str(partitions), "--iterations", "3", "--seed", "7", *options)
    return ("simulate", "stream", *made)


def test_a_stream_is_the_same_as_json_and_as_parquet(trimtab, tmp_path):
    code, out, _ = trimtab(*stream("-o", "s.parquet", "--json"))
    assert code == 0
    (tmp_path / "s.json").write_text(out)
    assert read_stream(tmp_path / "s.parquet") == read_stream(tmp_path / "s.json")
    code, _, err = trimtab(*stream("-o", "t.json"))
    assert code == 0
    assert "4 steps of 5 partitions written to t.json" in err
    assert (tmp_path / "t.json").read_text() == out


def test_a_stream_keeps_to_what_was_asked_for(trimtab, tmp_path):
    options = ("--capacity", "10", "--start", "0.5", "--delta", "0", "--topic", "x")
    trimtab(*stream(*options, "-o", "s.json"))
    found = read_loads(tmp_path / "s.json")[0]
    assert isinstance(found, Loads)
    assert found.capacity == 10
    assert {load for step in found.steps for load in step.loads.values()} == {5}
    assert {p.topic for step in found.steps for p in step.loads} == {"x"}


def test_a_made_stream_can_be_simulated(trimtab):
    trimtab(*stream("-o", "s.parquet", "--real", "--cap", "none"))
    code, out, _ = trimtab(
        "simulate", "packing", "--stream", "s.parquet", "--planner", "bfd", "--json"
    )
    assert code == 0
    assert len(json.loads(out)["steps"]) == 4


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ((), "No output selected"),
        (("--start", "full", "--json"), "--start takes uniform or a number"),
        (("--start", "2", "--json"), "Invalid stream"),
        (("--delta", "0.5", "--json"), "whole loads need a whole step"),
    ],
)
def test_a_stream_that_cannot_be_made_is_refused(trimtab, options, complaint):
    code, out, err = trimtab(*stream(*options))
    assert (code, out) == (2, "")
    assert complaint in err


def test_recorded_rates_are_replayed_side_by_side(trimtab, tmp_path):
    warehouse(tmp_path / "w")
    options = ("--history", "w", "--capacity", "8", "--planner", "mwf", "--planner", "ll-ffd")
    code, out, _ = trimtab("simulate", "replay", *options, "--json")
    assert code == 0
    found = json.loads(out)
    assert (found["windows"], found["window_s"], found["partitions"]) == (1, 30, 1)
    assert [one["planner"] for one in found["planners"]] == ["mwf", "ll-ffd"]
    assert found["planners"][0]["replica_minutes"] == pytest.approx(0.5)
    # 10 come in a second and 9.6 are read: 12 wait after 30 s, which is a delay of 1.25 s.
    assert found["planners"][0]["max_s"] == pytest.approx(1.3, abs=0.1)
    code, out, _ = trimtab("simulate", "replay", *options)
    assert code == 0
    assert "within SLA" in out


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--capacity", "0"), "0 is not greater than 0"),
        (("--capacity", "8", "--service-rate", "-1"), "-1 is not greater than 0"),
        (("--capacity", "nan"), "nan is not a finite number"),
        (("--capacity", "8", "--window", "5s"), "no windows of 5 s"),
        (("--capacity", "8", "--group", "h"), 'no lag of group "h"'),
    ],
)
def test_a_replay_that_cannot_be_is_refused(trimtab, tmp_path, options, complaint):
    warehouse(tmp_path / "w")
    code, out, err = trimtab("simulate", "replay", "--history", "w", "--planner", "mwf", *options)
    assert (code, out) == (2, "")
    assert complaint in err
