"""Laws of plans that are ordered: carried out once, journalled, and never at the cost of order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.laws.group_world import World, towards
from trimtab.apply.consumers import plan_execution
from trimtab.apply.consumers.controller_state import ControllerRules, GroupView, Policy
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action
from trimtab.model.journal import TRANSITIONS, PlanState
from trimtab.model.load import GroupLimits
from trimtab.model.plan import ConsumerPlan
from trimtab.model.plan_codec import plan_id
from trimtab.plan.consumers.plan import described
from trimtab.plan.consumers.rollback import rollback_of

P = tuple(TopicPartition("orders", n) for n in range(6))
BEFORE = Assignment({p: n % 2 for n, p in enumerate(P)})
AFTER = Assignment({P[0]: 0, P[1]: 1, P[2]: 2, P[3]: 2, P[4]: 0, P[5]: 1})
CRASHES = 60


def quiet(_: GroupView) -> None:
    """A policy that finds nothing to do."""


def a_plan(before: Assignment = BEFORE, after: Assignment = AFTER) -> ConsumerPlan:
    return described(
        *(after, dict.fromkeys(P, 10.0), before, GroupLimits(capacity=100.0)),
        planner="trim",
        made_ts=1,
        group="g",
    )


def a_world(**more: object) -> World:
    world = World(frozenset(P), **more)  # type: ignore[arg-type]
    world.settle(BEFORE)
    return world


def turn(world: World, policy: Policy = quiet, turns: int = 400) -> World:
    """Turns until every order has ended."""
    for _ in range(turns):
        if world.journal and world.journal[-1].ended and world.controller is not None:
            return world
        world.turn(policy)
    raise AssertionError(f"the order did not end: {world.journal}")


def states(world: World, plan: ConsumerPlan) -> list[PlanState]:
    return [entry.state for entry in world.journal if entry.plan == plan_id(plan)]


def check_journal(world: World) -> None:
    """Entries of a plan follow one another as the table allows, and steps never go back."""
    for name in {entry.plan for entry in world.journal}:
        own = [entry for entry in world.journal if entry.plan == name]
        for before, after in pairwise(own):
            assert after.state in TRANSITIONS[before.state], own
            assert after.step <= after.of


def test_an_ordered_plan_is_carried_out_journalled_and_decided() -> None:
    world, plan = a_world(), a_plan()

    world.order(plan, quiet)
    turn(world)

    assert world.owners == AFTER
    assert states(world, plan)[:2] == [PlanState.MADE, PlanState.RUNNING]
    assert states(world, plan)[-1] is PlanState.DONE
    assert world.journal[-1].step == world.journal[-1].of == 2
    assert (world.decisions[-1].action, world.decisions[-1].plan) == (
        *(Action.SCALE_UP, plan_id(plan)),
    )
    check_journal(world)


@pytest.mark.parametrize("at", range(CRASHES))
def test_a_plan_goes_on_when_the_controller_crashes_at_any_step(at: int) -> None:
    world, plan = a_world(), a_plan()
    world.crash_at = world.steps + at
    world.order(plan, quiet)
    if states(world, plan) == [PlanState.MADE] and world.controller is None:
        return  # it was never taken: whoever ordered it hears nothing, and says so

    turn(world)

    assert world.owners == AFTER
    assert states(world, plan).count(PlanState.DONE) == 1
    check_journal(world)


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("consumer", [0, 1, 2])
def test_a_plan_ends_in_the_truth_when_a_consumer_dies_meanwhile(at: int, consumer: int) -> None:
    world, plan = a_world(), a_plan()
    world.order(plan, quiet)
    for _ in range(at):
        world.turn(quiet)
    world.processes.pop(consumer, None)

    turn(world)

    last = states(world, plan)[-1]
    assert last is PlanState.DONE or world.owners != AFTER
    assert states(world, plan).count(last) == 1
    check_journal(world)


@pytest.mark.parametrize(
    "plan",
    [
        a_plan(before=Assignment({p: 1 - c for p, c in BEFORE.items()})),
        a_plan(before=Assignment(dict.fromkeys(P, 0))),
    ],
)
def test_a_plan_for_another_group_state_moves_nothing(plan: ConsumerPlan) -> None:
    world = a_world()
    commands = sum(map(len, world.commands.values()))

    world.order(plan, quiet)
    turn(world)

    assert states(world, plan) == [PlanState.MADE, PlanState.FAILED]
    assert "was made for snapshot" in world.journal[-1].why
    assert world.owners == BEFORE
    assert sum(map(len, world.commands.values())) == commands
    assert world.decisions[-1].action is Action.REFUSE


def test_a_controller_that_did_not_check_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan_execution, "unfit", lambda *_, **__: "")
    world, plan = a_world(), a_plan(before=Assignment(dict.fromkeys(P, 0)))

    world.order(plan, quiet)
    turn(world)

    assert world.owners != BEFORE


def test_a_plan_that_leaves_a_partition_without_a_consumer_is_refused() -> None:
    world, whole = a_world(), a_plan()
    plan = replace(whole, assignment=Assignment({p: c for p, c in AFTER.items() if p != P[0]}))

    world.order(plan, quiet)
    turn(world)

    assert states(world, plan) == [PlanState.MADE, PlanState.FAILED]
    assert "it assigns no consumer to orders-0" in world.journal[-1].why
    assert world.owners == BEFORE


def test_more_consumers_than_there_may_be_are_refused() -> None:
    world, plan = a_world(rules=ControllerRules(max_consumers=2)), a_plan()

    world.order(plan, quiet)
    turn(world)

    assert "--max-consumers is 2" in world.journal[-1].why
    assert world.owners == BEFORE


def test_an_order_that_is_repeated_is_carried_out_once_and_another_one_is_refused() -> None:
    world, plan = a_world(slow={2: 5.0}), a_plan()
    other = a_plan(after=Assignment(dict.fromkeys(P, 0)))
    world.order(plan, quiet)
    world.turn(quiet)

    world.order(plan, quiet)
    world.order(other, quiet)
    turn(world)
    for _ in range(30):
        world.turn(quiet)

    assert states(world, other) == [PlanState.MADE, PlanState.FAILED]
    assert "is being carried out" in next(e.why for e in world.journal if e.why)
    assert states(world, plan).count(PlanState.DONE) == 1
    assert world.owners == AFTER


def test_an_order_that_finds_the_group_unsettled_for_too_long_is_refused() -> None:
    world, plan = a_world(unkillable=frozenset({1})), a_plan()
    world.thaw(1, frozen=True)
    for _ in range(40):  # it counts as dead, and cannot be ended
        world.turn(quiet)

    world.order(plan, quiet, within_s=10.0)
    turn(world)

    assert states(world, plan) == [PlanState.MADE, PlanState.FAILED]
    assert "not settled in time" in world.journal[-1].why


def test_a_plan_whose_consumer_does_not_start_says_why() -> None:
    world, plan = a_world(reasons={2: "no such handler"}), a_plan()

    world.order(plan, quiet)
    turn(world)

    assert states(world, plan)[-1] is PlanState.FAILED
    assert "moves were not done: consumer 2 did not start: no such handler" in world.journal[-1].why


def test_what_the_policy_decides_meanwhile_ends_the_plan_as_failed() -> None:
    world, plan = a_world(slow={2: 20.0}), a_plan()
    world.order(plan, quiet)
    world.turn(quiet)

    turn(world, towards(Assignment(dict.fromkeys(P, 0))))

    assert states(world, plan)[-1] is PlanState.FAILED
    assert "another decision came first" in world.journal[-1].why


def test_a_plan_is_held_after_it_is_done_also_by_the_next_controller() -> None:
    world, plan = a_world(), a_plan()
    world.order(plan, quiet)
    turn(world)
    assert world.controller is not None
    assert 0 < world.controller.view().hold.left_s <= 60
    assert world.controller.view().hold.plan == plan_id(plan)

    world.controller = None
    world.lead()

    assert world.controller is not None
    assert 0 < world.controller.view().hold.left_s <= 60


def test_a_rollback_restores_who_read_what() -> None:
    world, plan = a_world(), a_plan()
    world.order(plan, quiet)
    turn(world)
    back = rollback_of(plan, made_ts=2)

    world.order(back, quiet)
    turn(world)

    assert world.owners == BEFORE
    assert (states(world, back)[-1], states(world, plan)[-1]) == (
        *(PlanState.DONE, PlanState.ROLLED_BACK),
    )
    check_journal(world)
    assert back.params["rollback_of"] == plan_id(plan)
    assert (back.before, back.after) == (plan.after, plan.before)


def test_a_refused_order_does_not_hide_the_plan_in_progress_from_the_next_controller() -> None:
    world, plan = a_world(slow={2: 5.0}), a_plan()
    other = a_plan(after=Assignment(dict.fromkeys(P, 0)))
    world.order(plan, quiet)
    world.turn(quiet)
    world.order(other, quiet)
    assert states(world, other)[-1] is PlanState.FAILED

    world.controller = None  # it crashes
    world.turn(quiet)
    turn(world)

    assert states(world, plan)[-1] is PlanState.DONE
    assert world.owners == AFTER


def test_a_refused_order_does_not_end_the_hold_of_a_plan_for_the_next_controller() -> None:
    world, plan = a_world(), a_plan()
    world.order(plan, quiet)
    turn(world)
    world.order(a_plan(after=Assignment(dict.fromkeys(P, 0))), quiet)

    world.controller = None
    world.lead()

    assert world.controller is not None
    assert world.controller.view().hold.left_s > 0


def test_an_order_that_is_repeated_leaves_the_journal_as_it_was() -> None:
    world, plan = a_world(slow={2: 5.0}), a_plan()
    world.order(plan, quiet)
    world.turn(quiet)

    world.order(plan, quiet)  # a second `apply` writes `made` over `running`
    assert states(world, plan)[-1] is PlanState.RUNNING

    world.controller = None
    world.turn(quiet)
    world.order(plan, quiet)  # the next controller has not started it yet
    assert states(world, plan)[-1] is PlanState.RUNNING
    turn(world)
    assert world.owners == AFTER


def test_an_order_that_has_expired_is_not_started_when_the_group_settles() -> None:
    before = Assignment(dict.fromkeys(P, 0))
    world = World(frozenset(P))
    world.settle(before)
    plan = a_plan(before=before)
    world.lead()
    world.look(quiet)
    world.order(plan, quiet, within_s=30.0)
    while world.work(0):
        pass

    world.now += 60.0  # the controller was suspended; the answer is the first event that it sees
    while world.hear(quiet):
        pass

    assert states(world, plan) == [PlanState.MADE, PlanState.FAILED]
    assert "not settled in time" in world.journal[-1].why


def test_a_plan_waits_for_the_exit_of_a_consumer_that_it_needs_again() -> None:
    world, plan = a_world(), a_plan(after=Assignment(dict.fromkeys(P, 0)))
    world.order(plan, quiet)
    while states(world, plan)[-1] is not PlanState.DONE:
        world.breathe()
        for consumer in sorted(world.processes):
            while world.work(consumer):
                pass
        while world.hear(quiet):
            pass
    world.thaw(1, frozen=True)  # it is told to end, and takes its time
    while world.orchestrate(quiet):
        pass
    back = rollback_of(plan, made_ts=2)

    world.order(back, quiet)
    world.turn(quiet)
    world.thaw(1)
    turn(world)

    assert states(world, back)[-1] is PlanState.DONE, world.journal[-1].why
    assert world.owners == BEFORE


def test_a_plan_in_progress_ends_if_its_topic_is_deleted_before_the_next_controller() -> None:
    world, plan = a_world(slow={2: 5.0}), a_plan()
    world.order(plan, quiet)
    world.turn(quiet)
    world.controller, world.partitions = None, frozenset()
    world.turn(quiet)

    turn(world)

    assert states(world, plan)[-1] is PlanState.FAILED
