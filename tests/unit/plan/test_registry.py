from dataclasses import fields

import pytest

from trimtab.errors import UnknownPlanner
from trimtab.model.plan import Layer
from trimtab.plan.consumers.any_fit import ANY_FIT
from trimtab.plan.consumers.baselines import BASELINES
from trimtab.plan.consumers.ilp import EXACT
from trimtab.plan.consumers.least_loaded_ffd import LATENCY
from trimtab.plan.consumers.modified_any_fit import MODIFIED_ANY_FIT
from trimtab.plan.consumers.planner import PackingOptions
from trimtab.plan.consumers.trim import TRIM
from trimtab.plan.registry import PLANNERS, planner_of


def test_every_registered_planner_is_found_by_its_name():
    for name, planner in PLANNERS[Layer.CONSUMERS].items():
        assert planner_of(Layer.CONSUMERS, name) is planner
        assert planner.name == name


def test_every_option_that_a_planner_reads_exists():
    options = {option.name for option in fields(PackingOptions)}
    for planner in PLANNERS[Layer.CONSUMERS].values():
        assert planner.reads <= options


def test_no_planner_hides_another_of_the_same_name():
    families = (ANY_FIT, MODIFIED_ANY_FIT, LATENCY, EXACT, TRIM, BASELINES)
    assert len(PLANNERS[Layer.CONSUMERS]) == sum(map(len, families))


def test_an_unknown_planner_is_answered_with_those_there_are_and_the_closest():
    with pytest.raises(UnknownPlanner, match=r"bf, bfd, .*mwf, mwfp") as raised:
        planner_of(Layer.CONSUMERS, "MWFF")
    assert raised.value.exit_code == 4
    assert raised.value.hint == 'Did you mean "mwf"?'


def test_a_name_close_to_none_gets_no_guess():
    with pytest.raises(UnknownPlanner) as raised:
        planner_of(Layer.CONSUMERS, "quantum")
    assert raised.value.hint is None
