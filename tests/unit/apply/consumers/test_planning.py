"""Decisions in a thread of their own: nothing waits for a planner, old answers are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.laws.group_world import World
from trimtab.apply.consumers.controller_state import GroupVerdict, GroupView, Startup
from trimtab.apply.consumers.group_facts import NewestRates
from trimtab.apply.consumers.planning import PlanningThread
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import Action, Decision
from trimtab.observe.clock import wait_until

P = [TopicPartition("orders", n) for n in range(2)]
INF = float("inf")
VIEW = GroupView(
    now=0.0,
    quiet_s=0.0,
    since_scaling_s=INF,
    since_decision_s=INF,
    assignment=Assignment({P[0]: 0, P[1]: 0}),
    consumers=frozenset({0}),
    partitions=frozenset(P),
    orphans=frozenset(),
    max_bytes_s={},
    max_records_s={},
)


def spread(reason: str) -> GroupVerdict:
    decision = Decision(ts=0, group="g", action=Action.SCALE_UP, before=1, after=2, reason=reason)
    return GroupVerdict(decision, Assignment({P[0]: 0, P[1]: 1}))


class Solver:
    """Answers when it is let to; says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[GroupView] = []
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.error: Exception | None = None

    def __call__(self, view: GroupView, _measured: NewestRates, _ts: int) -> GroupVerdict | None:
        self.asked.append(view)
        self.begun.release()
        assert self.may_end.acquire(timeout=60)
        if self.error is not None:
            raise self.error
        return spread(f"answer {len(self.asked)}")


@pytest.fixture
def solver() -> Iterator[Solver]:
    made = Solver()
    yield made
    made.may_end.release(100)


def until(ask: Callable[[], GroupVerdict | None]) -> GroupVerdict:
    """Asks again until there is an answer."""
    found = wait_until(ask, within_s=20.0, every_s=0.005, what="an answer")
    assert found is not None
    return found


def test_while_a_planner_works_calls_return_and_it_is_asked_once(solver):
    judge = PlanningThread(solver)

    waited = [judge(VIEW, NewestRates(), 0) for _ in range(5)]
    assert solver.begun.acquire(timeout=60)
    solver.may_end.release()
    found = until(lambda: judge(replace(VIEW, now=9.0, quiet_s=9.0), NewestRates(), 9))

    assert waited == [None] * 5
    assert len(solver.asked) == 1
    assert found.decision.reason == "answer 1"
    judge.close()


@pytest.mark.parametrize(
    "changed",
    [
        {"assignment": Assignment({P[0]: 0}), "orphans": frozenset({P[1]})},
        {"consumers": frozenset({0, 1})},
        {"partitions": frozenset(P[:1])},
        {"subscribed": ("shop at /10.0.0.7",)},
        {"startup": Startup(starting={1: 5.0})},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_an_answer_for_another_group_is_dropped_and_the_question_asked_anew(solver, changed):
    judge = PlanningThread(solver)
    now = replace(VIEW, **changed)
    assert judge(VIEW, NewestRates(), 0) is None
    assert solver.begun.acquire(timeout=60)

    solver.may_end.release(2)
    found = until(lambda: judge(now, NewestRates(), 0))

    assert solver.asked == [VIEW, now]
    assert found.decision.reason == "answer 2"
    judge.close()


def test_an_answer_that_is_fetched_too_late_is_dropped(solver):
    now = [0.0]
    judge = PlanningThread(solver, clock=lambda: now[0])
    assert judge(VIEW, NewestRates(), 0) is None
    assert judge._task is not None
    solver.may_end.release()
    assert judge._task.done.wait(60)

    now[0] = 300.0  # a long hand-over came between
    solver.may_end.release()
    found = until(lambda: judge(VIEW, NewestRates(), 0))

    assert found.decision.reason == "answer 2"
    judge.close()


def test_a_quick_answer_is_there_at_once():
    def asked_once() -> GroupVerdict | None:
        judge = PlanningThread(lambda *_: spread("at once"))
        try:
            return judge(VIEW, NewestRates(), 0)
        finally:
            judge.close()

    assert any(asked_once() for _ in range(50))  # on a busy machine not every time


def test_what_a_planner_raises_is_raised_where_its_answer_was_wanted(solver):
    solver.error = ValueError("no such load")
    judge = PlanningThread(solver)
    assert judge(VIEW, NewestRates(), 0) is None

    solver.may_end.release()
    with pytest.raises(ValueError, match="no such load"):
        until(lambda: judge(VIEW, NewestRates(), 0))
    solver.error = None
    solver.may_end.release()
    assert until(lambda: judge(VIEW, NewestRates(), 0)).target is not None
    judge.close()


def test_a_controller_goes_on_while_its_planner_works(solver):
    """A consumer dies during the search: that is seen at once, and the plan for it is not used."""
    world = World(frozenset(P))
    quick = PlanningThread(lambda *_: GroupVerdict(spread("begin").decision, VIEW.assignment))
    while set(world.owners) != set(P):
        world.turn(lambda view: quick(view, NewestRates(), 0))
    judge = PlanningThread(solver)
    for _ in range(3):
        world.turn(lambda view: judge(view, NewestRates(), 0))
    assert solver.begun.acquire(timeout=60)

    del world.processes[0]
    for _ in range(3):
        world.turn(lambda view: judge(view, NewestRates(), 0))
    state = world.controller
    assert state is not None
    seen_while_planning = dict(state.members), dict(state.held)
    solver.may_end.release(100)
    while world.owners != Assignment({P[0]: 0, P[1]: 1}):
        world.turn(lambda view: judge(view, NewestRates(), 0))

    assert seen_while_planning == ({}, {})
    assert [bool(view.orphans) for view in solver.asked[:2]] == [False, True]
    assert not any(d.reason == "answer 1" for d in world.decisions)
    quick.close()
    judge.close()
