"""The registry of experiments: what it names is there."""

from __future__ import annotations

import pytest

from trimtab_lab.cli.experiment import app
from trimtab_lab.papers.paper_page import PaperPage
from trimtab_lab.papers.registry import EXPERIMENTS, PaperExperiment, loaded

EACH = pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)

OTHERS = {"keyed-faults"}
"""Experiments that belong to no paper."""


def test_the_verbs_are_the_experiments_in_their_order():
    of_papers = [command.name for command in app.registered_commands if command.name not in OTHERS]
    assert of_papers == list(EXPERIMENTS)


@EACH
def test_what_an_experiment_names_is_there(experiment: PaperExperiment):
    assert callable(loaded(experiment.verb))
    assert isinstance(loaded(experiment.page), PaperPage)
    runs = loaded(experiment.runs)
    assert callable(runs) or tuple(runs) == experiment.parts


@EACH
def test_its_examples_call_it(experiment: PaperExperiment):
    assert experiment.examples
    for example in experiment.examples:
        assert f"{example} ".startswith(f"trimtab experiment {experiment.name} ")
