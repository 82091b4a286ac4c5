"""`trimtab experiment`: what is asked for is checked before Spark starts."""

from __future__ import annotations

import pytest

from trimtab.cli import experiment as cli
from trimtab.cli.main import run
from trimtab.experiments import ezzeddine, landau


@pytest.fixture(autouse=True)
def no_spark(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr(cli, "spark_session", refuse)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["landau", "--what", "tabels"], 'no part "tabels"'),
        (["landau", "--deltas", "5;10"], "--deltas takes numbers"),
        (["landau", "--deltas", "2.5"], "--deltas takes whole numbers"),
        (["landau", "--starts", "uniform,2"], "--starts takes uniform"),
        (["landau", "--slacks", "-0.1"], "--slacks takes numbers"),
        (["landau", "--slacks", "0.1,nan"], "--slacks takes numbers"),
        (["landau", "--starts", "nan"], "--starts takes numbers"),
        (["landau", "--planners", "kafka-sticky"], "the paper has no figures"),
        (["ezzeddine", "--what", "tables"], 'no part "tables"'),
        (["ezzeddine", "--intervals", ""], "--intervals takes numbers"),
        (["ezzeddine", "--intervals", "0"], "--intervals takes numbers from 0.1 up"),
        (["ezzeddine", "--cooldowns", "inf"], "--cooldowns takes numbers"),
    ],
)
def test_what_cannot_be_run_is_refused(arguments, complaint, capsys):
    assert run(["experiment", *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_an_unknown_planner_is_named(capsys):
    assert run(["experiment", "landau", "--planners", "mwff"]) == 4
    assert 'Did you mean "mwf"' in capsys.readouterr().err


def test_the_parts_that_can_be_asked_for_are_those_there_are():
    assert tuple(landau.PARTS) == cli.LANDAU_PARTS
    assert tuple(ezzeddine.PARTS) == cli.EZZEDDINE_PARTS


def test_what_is_asked_for_twice_is_run_once():
    assert cli._numbers("5, 10,5", "--deltas", whole=True) == (5, 10)
    assert cli._planners("mwf,bfd,mwf") == ("mwf", "bfd")
