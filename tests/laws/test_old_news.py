"""Late words, and words of a process that is no more, never make two readers of a partition."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.laws.group_world import World, towards
from trimtab.apply.consumers.controller_state import ConsumerExited
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

P = [TopicPartition("orders", n) for n in range(2)]
APART = Assignment({P[0]: 0, P[1]: 1})
TOGETHER = Assignment({P[0]: 0, P[1]: 0})


@pytest.mark.parametrize("identity", ["a process before this one", None])
def test_word_of_another_process_does_not_free_what_the_present_one_reads(identity):
    world = World(frozenset(P))
    world.settle(APART)
    world.processes[1].frozen = True  # so that it could not give anything back

    world.feed(ConsumerExited(world.now, 1, identity), towards(TOGETHER))
    for _ in range(5):
        world.turn(towards(TOGETHER))

    assert world.processes[1].state.owned == {P[1]}


def test_a_process_replaced_before_it_is_seen_keeps_what_it_was_given():
    world = World(frozenset(P))
    world.settle(TOGETHER)
    world.start(1)
    world.reports.pop()  # it dies before it says hello
    world.look(towards(APART))
    del world.processes[1]
    world.start(1)
    while any(world.work(c) for c in (0, 1)) or world.hear(towards(APART)):
        pass  # all of the hand-over, between two looks
    assert world.owners == APART

    world.look(towards(TOGETHER))

    assert world.settle(TOGETHER) < 10


def test_a_partition_that_vanishes_is_taken_back_whatever_the_policy_says():
    world = World(frozenset(P))
    world.settle(APART)

    world.partitions = frozenset(P[:1])
    for _ in range(3):
        world.turn(lambda _view: None)

    assert world.owners == Assignment({P[0]: 0})
    world.partitions = frozenset(P)
    assert world.settle(APART) < 10


def test_consumers_that_run_where_the_orchestrator_does_not_look_are_not_taken_for_dead():
    world = World(frozenset(P))
    world.settle(APART)
    world.running = dict  # type: ignore[method-assign]  # another machine has nothing of them
    world.lead()

    for _ in range(60):
        world.turn(towards(TOGETHER))

    assert world.owners == APART
    assert not world.pending


def test_consumers_that_end_as_they_start_are_started_ever_more_rarely():
    world = World(frozenset(P))
    world.settle(TOGETHER)
    began: list[float] = []
    start = world.start

    def stillborn(consumer: int) -> None:
        began.append(world.now)
        start(consumer)
        world.reports.pop()  # not a word of it
        world.look(towards(APART))
        del world.processes[consumer]

    world.start = stillborn  # type: ignore[method-assign]
    for _ in range(300):
        world.turn(towards(APART))
    world.start = start  # type: ignore[method-assign]
    mended = world.settle(APART)

    pauses = [later - earlier for earlier, later in pairwise(began)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 2
    assert 60 <= pauses[-1] <= 62
    assert world.owners == APART
    assert mended <= 62


def test_consumers_that_are_dead_are_waited_for_a_moment_only():
    world = World(frozenset(P))
    world.settle(APART)
    world.processes.clear()
    world.lead()

    assert 10 <= world.settle(APART) < 20
