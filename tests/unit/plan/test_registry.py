import pytest

from trimtab.errors import UnknownPlanner
from trimtab.model.plan import Layer
from trimtab.plan.registry import PLANNERS, planner_of


def test_every_registered_planner_is_found_by_its_name():
    for name, planner in PLANNERS[Layer.CONSUMERS].items():
        assert planner_of(Layer.CONSUMERS, name) is planner


def test_an_unknown_planner_is_answered_with_those_there_are_and_the_closest():
    with pytest.raises(UnknownPlanner, match="bfd, mwf") as raised:
        planner_of(Layer.CONSUMERS, "MWFF")
    assert raised.value.exit_code == 4
    assert raised.value.hint == 'Did you mean "mwf"?'


def test_a_name_close_to_none_gets_no_guess():
    with pytest.raises(UnknownPlanner) as raised:
        planner_of(Layer.CONSUMERS, "quantum")
    assert raised.value.hint is None
