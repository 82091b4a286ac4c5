"""Consumers that take long to start, or do not start at all, under the controller's own policy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.laws.group_world import World
from tests.laws.policy_cases import P, aim_of, measured
from trimtab.apply.consumers.controller_state import ControllerRules, Phase, Policy
from trimtab.apply.consumers.policy import verdict
from trimtab.model.control import Action


def group(loads: list[float], *, patience_s: float = 300.0, **more: object) -> World:
    world = World(frozenset(P[: len(loads)]), rules=ControllerRules(start_timeout_s=patience_s))
    return replace(world, **more)  # type: ignore[arg-type]


def policy(world: World, loads: list[float], planner: str = "trim", **more: Any) -> Policy:
    ts = round(world.now * 1_000_000)
    aim, known = aim_of(planner, **more), measured(loads, ts=ts)
    return lambda view: verdict(view, known, aim, ts=ts)


def turns(world: World, loads: list[float], seconds: int, **more: Any) -> list[str]:
    """Lets time pass; the reasons of the decisions that were made meanwhile."""
    begun = len(world.decisions)
    for _ in range(seconds):
        world.turn(policy(world, loads, **more))
    return [d.reason for d in world.decisions[begun:]]


@pytest.mark.parametrize("planner", ["trim", "mwf", "ll-ffd"])
def test_a_consumer_that_takes_minutes_to_start_is_waited_for(planner):
    loads = [40.0, 40.0]
    world = group(loads)
    turns(world, loads, 20, planner=planner)
    world.slow = {1: 200.0}
    grown = [60.0, 60.0]

    reasons = turns(world, grown, 150, planner=planner)
    ups = [d for d in world.decisions if d.action is Action.SCALE_UP]
    turns(world, grown, 60, planner=planner)

    assert "waiting for consumer 1 to start: 100 s of at most 300 s" in reasons
    assert len(ups) == 2
    assert not world.killed
    assert set(world.owners.consumers) == {0, 1}


def test_each_failed_start_gives_the_next_one_twice_as_long():
    loads = [60.0, 60.0]
    world = group(loads, patience_s=60.0, slow={1: 200.0})

    reasons = turns(world, loads, 600)

    assert world.killed == [1, 1]  # after 60 s, then after 120 s; 240 s were enough
    assert any("at most 240 s" in reason for reason in reasons)
    assert set(world.owners.consumers) == {0, 1}


def test_partitions_promised_to_a_slow_consumer_are_read_by_others_after_a_minute():
    loads = [60.0, 60.0]
    world = group(loads, slow={1: 200.0})

    turns(world, loads, 50)
    early = len(world.owners)
    turns(world, loads, 40)
    shared = dict(world.owners)
    turns(world, loads, 150)

    assert early == 1
    assert shared == dict.fromkeys(P[:2], 0)
    assert set(world.owners.consumers) == {0, 1}
    assert not world.killed


def test_partitions_of_a_consumer_that_dies_meanwhile_are_given_out_at_once():
    loads = [50.0, 50.0, 50.0, 50.0]
    world = group(loads)
    turns(world, loads, 20)
    world.slow = {2: 10_000.0}
    turns(world, [70.0, 50.0, 50.0, 50.0], 5)
    del world.processes[1]

    turns(world, [70.0, 50.0, 50.0, 50.0], 80)

    assert set(world.owners) == set(P[:4])


def test_consumers_that_end_as_they_start_are_tried_with_growing_pauses_and_named():
    loads = [60.0, 60.0]
    world = group(loads, reasons={0: "error: There is no topic orders.", 1: "error: the same"})

    turns(world, loads, 120)

    ups = [d for d in world.decisions if d.action is Action.SCALE_UP]
    waits = [d.reason for d in world.decisions if d.action is Action.NONE]
    assert 3 <= len(ups) <= 9
    assert waits
    assert all("did not start: error: " in reason for reason in waits)
    assert all("the next try is in " in reason for reason in waits)


def test_while_another_cannot_be_started_the_others_share_everything():
    loads = [60.0, 60.0, 60.0]
    world = group(loads, reasons={1: "error: no room", 2: "error: no room"})

    turns(world, loads, 60)

    assert dict(world.owners) == dict.fromkeys(P[:3], 0)
    assert any("3 consumers would be needed" in d.reason for d in world.decisions)
    assert any("did not start: error: no room" in d.reason for d in world.decisions)
    world.reasons = {}
    turns(world, loads, 120)
    assert len(world.owners.consumers) == 3


def test_a_new_controller_neither_waits_for_a_starting_consumer_nor_ends_it():
    loads = [60.0, 20.0]
    world = group(loads)
    turns(world, loads, 20)
    world.slow = {1: 200.0}
    world.start(1)
    world.controller = None

    turns(world, loads, 5)
    grown = turns(world, [60.0, 30.0], 100)

    assert world.owners.consumers == (0,)
    assert grown
    assert not world.killed


def first_told(world: World, loads: list[float]) -> None:
    """Turns until the first consumer is told to read, which the controller has listed before."""
    turns(world, loads, 2)
    world.now += 1
    while world.work(0):
        pass
    while world.hear(policy(world, loads)):
        pass
    assert world.commands[0]
    assert not world.owners


@pytest.mark.parametrize("obeyed", [False, True])
def test_a_consumer_that_restarts_before_it_is_listed_again_is_told_again_what_to_read(obeyed):
    """It may be the process that was told or the next one, which has to say what it reads."""
    loads = [20.0, 20.0]
    world = group(loads)
    first_told(world, loads)
    while obeyed and world.work(0):
        pass
    del world.processes[0]
    world.start(0)

    turns(world, loads, 5)

    assert world.owners.keys() == world.partitions


def test_a_consumer_that_is_asked_what_it_reads_while_it_starts_to_holds_up_nothing():
    loads = [20.0, 20.0]
    world = group(loads)
    first_told(world, loads)
    world.processes[0].identity = "named anew"
    world.look(policy(world, loads))

    turns(world, loads, 5)

    assert world.owners.keys() == world.partitions
    assert world.controller is not None
    assert world.controller.phase is Phase.SENTINEL
