"""Consumers that fall silent, under the controller's own policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.laws.group_world import World, towards
from tests.laws.policy_cases import P, aim_of, measured
from tests.laws.test_startup import turns
from trimtab.apply.consumers.controller import step
from trimtab.apply.consumers.controller_state import GroupObserved, MoveStage, PartitionMove, Phase
from trimtab.apply.consumers.policy import verdict
from trimtab.model.assignment import Assignment
from trimtab.model.control import Action


def of_two() -> World:
    """Two consumers with two partitions each."""
    world = World(frozenset(P[:4]))
    world.settle(Assignment(dict(zip(P, (0, 0, 1, 1), strict=False))))
    return world


def test_nothing_is_taken_from_a_consumer_for_one_that_is_silent():
    world = of_two()
    world.thaw(1, frozen=True)
    for _ in range(7):
        world.turn(lambda _: None)

    swapped = towards(Assignment(dict(zip(P, (0, 1, 0, 1), strict=False))))
    for _ in range(5):
        world.turn(swapped)
    waited = world.owners[P[1]]
    world.thaw(1)
    for _ in range(5):
        world.turn(swapped)

    assert waited == 0
    assert dict(world.owners) == dict(zip(P, (0, 1, 0, 1), strict=False))


def test_a_consumer_that_dies_silent_costs_others_nothing():
    """What was to go to it stays where it is read."""
    world = of_two()
    world.thaw(1, frozen=True)
    for _ in range(7):
        world.turn(lambda _: None)
    unread = 0
    for _ in range(40):
        world.turn(towards(Assignment(dict(zip(P, (0, 1, 0, 1), strict=False)))))
        unread += not {P[0], P[1]} <= world.owners.keys()

    assert world.killed == [1]
    assert unread <= 1  # for the hand-over to the consumer that took its place


def test_a_consumer_that_cannot_be_ended_is_named_with_what_it_holds_up():
    world = of_two()
    world.unkillable = frozenset({1})
    world.thaw(1, frozen=True)

    reasons = turns(world, [40.0] * 4, 60)

    held_up = "consumer 1 has not exited yet: orders-2, orders-3 cannot be read"
    assert reasons[-1].endswith(held_up)
    world.reasons = {1: "its node does not answer"}
    assert any("(its node does not answer)" in r for r in turns(world, [40.0] * 4, 20))


def test_it_is_named_too_where_nobody_else_reads_anything():
    world = World(frozenset(P[:2]))
    world.settle(Assignment(dict.fromkeys(P[:2], 0)))
    world.unkillable = frozenset({0})
    world.thaw(0, frozen=True)
    aim, loads = aim_of("trim"), [40.0, 40.0]

    reasons = turns(world, loads, 60)

    assert reasons[-1] == "consumer 0 has not exited yet: orders-0, orders-1 cannot be read"
    assert world.decisions[-1].action is Action.NONE
    assert len([r for r in reasons if "not exited" in r]) <= 60 / aim.max_quiet_s
    assert world.controller is not None
    assert verdict(world.controller.view(), measured(loads), aim, ts=0) is None  # said just now


# ------------------------------------------------------------ a hand-over that cannot end


def test_a_consumer_that_cannot_be_ended_does_not_hold_up_the_help_for_others():
    world = World(frozenset(P[:6]))
    world.settle(Assignment(dict(zip(P, (0, 0, 1, 1, 2, 2), strict=False))))
    world.unkillable = frozenset({1})
    world.thaw(1, frozen=True)
    for _ in range(45):  # it was told to stop one, and then could not be ended
        world.turn(towards(Assignment(dict(zip(P, (0, 0, 0, 1, 2, 2), strict=False)))))
    del world.processes[2]

    for _ in range(30):
        world.turn(towards(Assignment(dict.fromkeys(P, 0))))

    assert {p: c for p, c in world.owners.items() if c == 0}.keys() == {*P[:2], *P[4:6]}
    world.unkillable = frozenset()
    for _ in range(5):
        world.turn(towards(Assignment(dict.fromkeys(P, 0))))
    assert dict(world.owners) == dict.fromkeys(P[:6], 0)


@pytest.mark.parametrize(
    ("move", "held_by", "left"),
    [
        (PartitionMove(target=1, stage=MoveStage.STARTING, asked=1, seq=9), 1, None),
        (PartitionMove(target=0, stage=MoveStage.STOPPING, asked=1, seq=9), 1, None),
        (PartitionMove(target=1), 0, None),
        (PartitionMove(target=0), 1, None),
        (
            PartitionMove(target=1, stage=MoveStage.STOPPING, asked=0, seq=9),
            0,
            PartitionMove(target=None, stage=MoveStage.STOPPING, asked=0, seq=9),
        ),
    ],
)
def test_what_a_consumer_that_cannot_be_ended_may_read_stays_its_own(move, held_by, left):
    """A partition that it was told to start may be read by it; one told to stop may be, too."""
    world = of_two()
    state = world.controller
    assert state is not None
    held = {p: c for p, c in state.held.items() if p != P[0]}
    if move.stage is not MoveStage.STARTING:
        held[P[0]] = held_by
    began = state.now - state.rules.sync_timeout_s - 1
    state = replace(
        state,
        phase=Phase.MANAGE,
        entered=began,
        moves={P[0]: move},
        held=held,
        killing=frozenset({1}),
    )
    looked = GroupObserved(now=state.now, running=world.running(), partitions=world.partitions)

    after, _ = step(state, looked, lambda _: None)

    assert after.held[P[0]] == held_by
    assert after.moves.get(P[0]) == left
    assert after.phase is (Phase.SENTINEL if left is None else Phase.MANAGE)
    assert (P[0] in after.frozen) is (held_by == 1)


def test_a_consumer_that_never_answered_is_not_forgotten_by_the_controller_after_next():
    """What it reads is unknown, so nobody may write down that all is settled."""
    world = of_two()
    world.unkillable = frozenset({1})
    world.thaw(1, frozen=True)
    to_0 = towards(Assignment(dict.fromkeys(P, 0)))

    for _ in range(2):
        world.controller = None
        for _ in range(200):
            world.turn(to_0)  # the referee sees to it that nobody else reads what it has
        assert world.kept is not None
        assert not world.kept.clean
    world.unkillable = frozenset()
    for _ in range(20):
        world.turn(to_0)

    assert dict(world.owners) == dict.fromkeys(P[:4], 0)
    assert world.kept is not None
    assert world.kept.clean


def test_what_was_written_down_is_settled_as_soon_as_the_last_unknown_one_is_gone():
    world = of_two()
    world.unkillable = frozenset({1})
    world.thaw(1, frozen=True)
    world.controller = None
    for _ in range(200):
        world.turn(lambda _: None)

    world.unkillable = frozenset()
    for _ in range(3):
        world.turn(lambda _: None)

    assert world.kept is not None
    assert world.kept.clean
    assert dict(world.kept.assignment) == dict.fromkeys(P[:2], 0)
