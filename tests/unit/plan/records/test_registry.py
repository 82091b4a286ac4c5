"""Partitioners are found by name."""

from __future__ import annotations

import pytest

from trimtab.errors import UnknownPlanner
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import OURS, PARTITIONERS, PEERS, partitioner_of


def test_the_names_are_those_that_were_agreed():
    assert list(OURS) == ["default", "improved", "node", "sqf", "weighted-node"]
    assert list(PEERS) == ["sticky", "uniform-sticky", "adaptive", "rack-aware"]
    assert PARTITIONERS == {**OURS, **PEERS}


@pytest.mark.parametrize("name", PARTITIONERS)
def test_each_call_makes_another_one(name):
    assert partitioner_of(name) is not partitioner_of(name, RoutingOptions())


def test_an_unknown_name_is_answered_with_those_there_are_and_the_closest():
    with pytest.raises(UnknownPlanner, match=r"default, improved, node, sqf") as raised:
        partitioner_of("Nodes")
    assert raised.value.hint == 'Did you mean "node"?'


def test_a_name_close_to_none_gets_no_guess():
    with pytest.raises(UnknownPlanner) as raised:
        partitioner_of("quantum")
    assert raised.value.hint is None
