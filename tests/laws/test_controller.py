"""The controller's laws: never two readers, and every hand-over ends, whoever crashes when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.laws.group_world import World, towards
from trimtab.apply.consumers import controller as machine
from trimtab.apply.consumers.controller_state import (
    ControllerState,
    Effect,
    Event,
    MoveStage,
    Policy,
    ReportReceived,
    Send,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Start, StateReport

P = [TopicPartition("orders", n) for n in range(6)]


def spread(*consumers: int) -> Assignment:
    return Assignment(dict(zip(P, consumers, strict=False)))


STORY = (spread(0, 0, 0, 0), spread(0, 0, 1, 2), spread(2, 1, 0, 2), spread(1, 1, 1, 1))


def told(*, crash_at: int | None = None, kill_at: int | None = None) -> World:
    """Runs the story, crashing the controller at one step or killing consumer 1 at one turn."""
    world = World(frozenset(P[:4]), crash_at=crash_at)
    turns = 0
    for target in STORY:
        while world.owners != target or set(world.processes) != set(target.consumers):
            turns += 1
            if turns == kill_at:
                world.processes.pop(1, None)
            world.turn(towards(target))
            assert turns < 500, "never settled"
    return world


STEPS = told().steps


@pytest.mark.parametrize("at", range(STEPS))
def test_a_controller_that_crashes_at_any_step_is_replaced_without_two_readers(at):
    world = told(crash_at=at)
    world.turn(towards(STORY[-1]))

    assert world.owners == STORY[-1]
    assert not world.violations
    assert world.reigns == 2


@pytest.mark.parametrize("at", range(1, 25))
def test_a_consumer_killed_at_any_turn_is_replaced_without_two_readers(at):
    world = told(kill_at=at)

    assert world.owners == STORY[-1]
    assert not world.violations


def test_a_frozen_consumer_keeps_its_partitions_until_it_is_gone_for_certain():
    world = World(frozenset(P[:2]))
    world.settle(spread(0, 1))
    world.processes[1].frozen = True

    for _ in range(25):  # silent, but not for long enough
        world.turn(towards(spread(0, 0)))

    assert world.processes[1].state.owned == {P[1]}
    world.settle(spread(0, 0))
    assert 1 not in world.processes


def test_a_frozen_consumer_that_wakes_in_time_obeys_in_order():
    world = World(frozenset(P[:2]))
    world.settle(spread(0, 1))
    world.processes[1].frozen = True
    for _ in range(10):
        world.turn(towards(spread(0, 0)))

    world.processes[1].frozen = False

    assert world.settle(spread(0, 0)) < 10


def test_one_that_neither_answers_nor_ends_keeps_what_nobody_claims_and_the_rest_goes_on():
    world = World(frozenset(P[:3]))
    world.settle(spread(0, 1, 2))
    world.processes[2].frozen = True
    world.unkillable = frozenset({2})
    world.controller = None

    for _ in range(150):
        world.turn(towards(spread(1, 0, 0)))

    assert world.owners == spread(1, 0, 2)
    world.unkillable = frozenset()
    world.settle(spread(1, 0, 0))


def test_a_grown_topic_gets_its_readers_and_a_vanished_partition_loses_its_own():
    world = World(frozenset(P[:2]))
    world.settle(spread(0, 1))

    world.partitions = frozenset(P[:4])
    world.settle(spread(0, 1, 0, 1))
    world.partitions = frozenset(P[1:4])
    world.settle(spread(0, 1, 0, 1))

    assert P[0] not in world.owners


def test_state_is_written_as_unclean_before_the_first_command_of_a_hand_over():
    world = World(frozenset(P[:2]))
    world.settle(spread(0, 1))
    clean = [world.kept.clean if world.kept else None]
    world.processes[1].frozen = True

    world.turn(towards(spread(0, 0)))
    world.turn(towards(spread(0, 0)))
    clean.append(world.kept.clean if world.kept else None)

    assert clean == [True, False]


def hasty(
    state: ControllerState, event: Event, policy: Policy
) -> tuple[ControllerState, tuple[Effect, ...]]:
    """A planted fault: starts a partition on its target without waiting for `stopped`."""
    after, effects = machine.step(state, event, policy)
    starts: list[Effect] = []
    for partition, move in after.moves.items():
        if move.stage is MoveStage.STOPPING and move.target in after.ready:
            start = Start(epoch=after.epoch, seq=after.seq + 100, partitions=(partition,))
            starts.append(Send(move.target, start))
    return after, (*effects, *starts)


def trusting(
    state: ControllerState, event: Event, policy: Policy
) -> tuple[ControllerState, tuple[Effect, ...]]:
    """A planted fault: takes a silent consumer for dead."""
    for consumer, member in state.members.items():
        if event.now - member.last_report > 5:
            state = replace(
                state,
                members={c: m for c, m in state.members.items() if c != consumer},
                held={p: c for p, c in state.held.items() if c != consumer},
            )
    return machine.step(state, event, policy)


def forgetful(
    state: ControllerState, event: Event, policy: Policy
) -> tuple[ControllerState, tuple[Effect, ...]]:
    """A planted fault: what consumers answer about what they read is not listened to."""
    if isinstance(event, ReportReceived) and isinstance(event.report, StateReport):
        event = ReportReceived(event.now, replace(event.report, partitions=()))
    return machine.step(state, event, policy)


def test_the_referee_finds_a_controller_that_does_not_wait_for_stopped():
    world = World(frozenset(P[:2]), take_step=hasty)
    world.settle(spread(0, 1))
    world.processes[1].frozen = True
    with pytest.raises(AssertionError, match="is read by"):
        world.settle(spread(0, 0))


def test_the_referee_finds_a_controller_that_takes_silence_for_death():
    world = World(frozenset(P[:2]), take_step=trusting)
    world.settle(spread(0, 1))
    world.processes[1].frozen = True
    with pytest.raises(AssertionError, match="is read by"):
        world.settle(spread(0, 0))


def test_the_referee_finds_a_controller_that_does_not_listen_to_who_reads_what():
    world = World(frozenset(P[:2]), take_step=forgetful)
    world.settle(spread(0, 1))
    world.controller = None
    with pytest.raises(AssertionError, match="is read by"):
        world.settle(spread(1, 0))


class Group(RuleBasedStateMachine):
    """Anything may happen at any time, in any order; at the end all is healed and must settle."""

    targets = st.lists(st.integers(0, 3), min_size=4, max_size=4).map(lambda cs: spread(*cs))

    @initialize(wish=targets)
    def begin(self, wish: Assignment) -> None:
        self.world = World(frozenset(P[:4]))
        self.target = wish
        self.world.lead()

    @rule(wish=targets)
    def wish_otherwise(self, wish: Assignment) -> None:
        self.target = wish

    @rule(consumer=st.integers(0, 3))
    def a_consumer_obeys(self, consumer: int) -> None:
        self.world.work(consumer)

    @rule()
    def the_controller_hears(self) -> None:
        self.world.hear(towards(self.target))

    @rule()
    def the_controller_looks(self) -> None:
        self.world.look(towards(self.target))

    @rule()
    def the_orchestrator_acts(self) -> None:
        self.world.orchestrate(towards(self.target))

    @rule(seconds=st.sampled_from([1, 5, 31, 61, 301]))
    def time_passes(self, seconds: int) -> None:
        self.world.now += seconds
        self.world.breathe()

    @rule()
    def the_controller_crashes(self) -> None:
        self.world.controller = None

    @precondition(lambda self: self.world.controller is None)
    @rule()
    def another_one_leads(self) -> None:
        self.world.lead()

    @rule(consumer=st.integers(0, 3))
    def a_consumer_dies(self, consumer: int) -> None:
        self.world.processes.pop(consumer, None)

    @rule(consumer=st.integers(0, 3), frozen=st.booleans())
    def a_consumer_freezes_or_wakes(self, consumer: int, frozen: bool) -> None:
        if consumer in self.world.processes:
            self.world.thaw(consumer, frozen=frozen)

    @rule(consumers=st.sets(st.integers(0, 3)))
    def consumers_take_long_to_start_from_now_on(self, consumers: set[int]) -> None:
        self.world.slow = dict.fromkeys(consumers, 1e9)

    @rule(consumer=st.integers(0, 3))
    def the_orchestrator_restarts_one_in_place(self, consumer: int) -> None:
        if consumer in self.world.processes:
            self.world.start(consumer)

    @rule()
    def everybody_does_his_part(self) -> None:
        self.world.turn(towards(self.target))

    @invariant()
    def nobody_reads_what_another_reads(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.slow = {}
        for consumer in list(self.world.processes):
            self.world.thaw(consumer)
        self.world.settle(self.target, turns=800)
        assert not self.world.violations


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
