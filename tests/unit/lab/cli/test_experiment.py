"""`trimtab experiment`: what is asked for is checked before Spark starts."""

from __future__ import annotations

import json

import pytest

from trimtab.cli.main import run
from trimtab_lab.cli import experiment_brokers as on_brokers
from trimtab_lab.cli import experiment_simulated as cli
from trimtab_lab.papers.ezzeddine import experiment as ezzeddine
from trimtab_lab.papers.landau import experiment as landau
from trimtab_lab.papers.live.experiment import LandauPart
from trimtab_lab.papers.live.plan import Strategy
from trimtab_lab.papers.registry import EXPERIMENTS
from trimtab_lab.papers.smalops import experiment as smalops


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(cli, "spark_session", refuse)
    monkeypatch.setattr(on_brokers, "spark_session", refuse)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["landau", "--what", "tabels"], 'Unknown part "tabels"'),
        (["landau", "--deltas", "5;10"], "--deltas takes comma-separated numbers"),
        (["landau", "--deltas", "2.5"], "--deltas takes whole numbers"),
        (["landau", "--starts", "uniform,2"], "--starts takes uniform"),
        (["landau", "--slacks", "-0.1"], "--slacks takes numbers"),
        (["landau", "--slacks", "0.1,nan"], "--slacks takes numbers"),
        (["landau", "--starts", "nan"], "--starts takes numbers"),
        (["landau", "--planners", "kafka-sticky"], "The paper has no figures for kafka-sticky"),
        (["ezzeddine", "--what", "tables"], 'Unknown part "tables"'),
        (["ezzeddine", "--intervals", ""], "takes durations of at least 0.1s"),
        (["ezzeddine", "--intervals", "0"], "takes durations of at least 0.1s"),
        (["ezzeddine", "--cooldowns", "inf"], "invalid duration 'inf'"),
        (["smalops", "--what", "delay"], 'Unknown part "delay"'),
        (["smalops", "--duration", "10s"], "--duration must be at least 20s"),
        (["smalops", "--duration", "0"], "the duration must be greater than 0"),
        (["landau-live", "--what", "bytes"], 'Unknown part "bytes"'),
        (["landau-live", "--strategies", "ll-ffd-group"], 'no strategy "ll-ffd-group"'),
        (["ezzeddine-live", "--strategies", "mwff"], 'no strategy "mwff"'),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, complaint, capsys):
    assert run(["experiment", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_an_unknown_planner_is_named(capsys):
    assert run(["experiment", "landau", "--planners", "mwff"]) == 4
    assert 'Did you mean "mwf"' in capsys.readouterr().err


def test_the_parts_that_can_be_asked_for_are_those_there_are():
    assert tuple(landau.PARTS) == EXPERIMENTS["landau"].parts
    assert tuple(ezzeddine.PARTS) == EXPERIMENTS["ezzeddine"].parts
    assert tuple(smalops.PARTS) == EXPERIMENTS["smalops"].parts
    assert tuple(map(str, LandauPart)) == EXPERIMENTS["landau-live"].parts


def test_every_strategy_is_named_by_the_help(capsys):
    assert run(["experiment", "ezzeddine-live", "--help"]) == 0
    told = capsys.readouterr().out
    assert all(str(strategy) in told for strategy in Strategy)


def test_what_is_asked_for_twice_is_run_once():
    assert cli._numbers("5, 10,5", "--deltas", whole=True) == (5, 10)
    assert cli._planners("mwf,bfd,mwf") == ("mwf", "bfd")


@pytest.mark.parametrize("experiment", ["landau", "ezzeddine-live", "burato"])
def test_results_of_an_older_version_are_refused_before_anything_is_run(
    experiment, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "home"))
    row = {"what": "x", "published": 1, "ours": 1, "tolerance": 0, "verdict": "within"}
    old = {"experiment": experiment, "parts": {"a": {"settings": {}, "rows": [row], "figures": {}}}}
    place = tmp_path / "results" / f"{experiment}.json"
    place.parent.mkdir()
    place.write_text(json.dumps(old), encoding="utf-8")

    assert run(["experiment", experiment, "--into", str(tmp_path)]) == 2
    assert "not a valid experiment result of this version" in capsys.readouterr().err


def test_a_strategy_that_none_of_the_chosen_parts_has_is_refused(capsys):
    asked = ["landau-live", "--what", "bytes-5", "--strategies", "keda-lag"]
    assert run(["experiment", *asked]) == 2
    assert 'This experiment has no strategy "keda-lag"' in capsys.readouterr().err
