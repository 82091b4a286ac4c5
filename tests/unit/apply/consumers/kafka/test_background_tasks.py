"""Background tasks of a controller: a slow, failed or late task harms no other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from trimtab.apply.consumers.controller_state import (
    ConsumerExited,
    Event,
    GroupObserved,
    RemovalRefused,
)
from trimtab.apply.consumers.kafka import directed_controller as door
from trimtab.apply.consumers.kafka.leadership import GroupConfig
from trimtab.errors import ApplyError, BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import Group, Member
from trimtab.observe.clock import wait_until

POST = GroupConfig(group="g", topics=("orders",), cluster=Cluster("nowhere:1"), look_every_s=0.01)


class Orchestrator:
    """Processes that exist on paper."""

    def __init__(self, **running: str) -> None:
        self.there = {int(name[1:]): identity for name, identity in running.items()}
        self.stubborn: set[int] = set()
        self.refusals = 0
        self.tried: list[tuple[str, int]] = []
        self.reasons: dict[int, str] = {}
        self.fails = ""

    def names(self) -> None: ...

    def running(self) -> Mapping[int, str]:
        return dict(self.there)

    def exit_reasons(self) -> Mapping[int, str]:
        return self.reasons

    def create(self, consumers: Collection[int]) -> None:
        self.tried += [("create", c) for c in consumers]
        if self.fails:
            raise ApplyError(self.fails)

    def remove(self, idle: Collection[int]) -> None:
        self.tried += [("remove", c) for c in idle]
        if self.refusals:
            self.refusals -= 1
            raise ApplyError("not now")
        for consumer in set(idle) - self.stubborn:
            self.there.pop(consumer, None)

    def kill(self, consumer: int) -> None:
        self.tried.append(("kill", consumer))
        if consumer in self.stubborn:
            raise ApplyError("its node does not answer")
        self.there.pop(consumer, None)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Pauses are short, and the cluster cannot be reached the first time."""
    tried = []

    @contextmanager
    def connect(*_: object) -> Iterator[Any]:
        tried.append(1)
        if len(tried) == 1:
            raise BrokerUnavailable("no broker answers")
        yield NoTopics()

    monkeypatch.setattr(Cluster, "admin", connect)
    monkeypatch.setattr(door, "RESTART_PAUSE_S", 0.01)
    monkeypatch.setattr(door, "_REMOVE_AGAIN_S", 0.01)
    return connect


class NoTopics:
    """A cluster without topics."""

    def topics(self, _names: object) -> tuple[()]:
        return ()

    def groups(self, names: list[str]) -> tuple[Group, ...]:
        member = Member(member_id="m1", client_id="shop", host="/10.0.0.7", partitions=frozenset())
        return tuple(Group(name=name, state="STABLE", members=(member,)) for name in names)


until = partial(wait_until, within_s=20.0, every_s=0.005)


def events_of(tasks: Any, kind: type[Event]) -> list[Event]:
    """All events of a kind, once there is one."""
    found: list[Event] = []

    def one() -> bool:
        found.extend(e for e in tasks.finished() if isinstance(e, kind))
        return bool(found)

    until(one)
    return found


def test_a_look_that_fails_is_not_the_last_one():
    with door._background_tasks(POST, Orchestrator(c0="first")) as tasks:
        [seen, *_] = events_of(tasks, GroupObserved)

    assert isinstance(seen, GroupObserved)
    assert seen.running == {0: "first"}


def test_a_look_brings_last_words_and_the_members_that_subscribe():
    orchestrator = Orchestrator(c0="first")
    orchestrator.reasons = {1: "error: no such handler"}
    with door._background_tasks(POST, orchestrator) as tasks:
        seen = events_of(tasks, GroupObserved)

    first = next(look for look in seen if isinstance(look, GroupObserved))
    assert first.reasons == {1: "error: no such handler"}
    assert first.subscribed == ("shop at /10.0.0.7",)


def test_why_a_consumer_could_not_be_started_is_passed_on():
    orchestrator = Orchestrator()
    orchestrator.fails = "no memory left"
    with door._background_tasks(POST, orchestrator) as tasks:
        tasks.create((3,))
        [gone] = events_of(tasks, ConsumerExited)

    assert isinstance(gone, ConsumerExited)
    assert (gone.consumer, gone.identity, gone.why) == (3, None, "no memory left")


def test_a_process_in_the_place_of_the_one_to_be_killed_is_spared():
    orchestrator = Orchestrator(c1="second")
    with door._background_tasks(POST, orchestrator) as tasks:
        tasks.kill(1, "first")
        [gone] = events_of(tasks, ConsumerExited)

    assert isinstance(gone, ConsumerExited)
    assert (gone.consumer, gone.identity) == (1, "first")
    assert not orchestrator.tried


def test_kills_that_cannot_be_confirmed_hold_up_nobody_else():
    orchestrator = Orchestrator(**{f"c{n}": "there" for n in range(10)})
    orchestrator.stubborn = set(range(10))
    with door._background_tasks(POST, orchestrator) as tasks:
        for consumer in range(10):
            tasks.kill(consumer, "there")
        until(lambda: {c for what, c in orchestrator.tried if what == "kill"} == set(range(10)))
        tasks.create((11,))
        until(lambda: ("create", 11) in orchestrator.tried)
        assert not [event for event in tasks.finished() if isinstance(event, ConsumerExited)]


def test_a_removal_that_fails_is_tried_again_and_says_who_was_kept():
    orchestrator = Orchestrator(c1="first", c2="first")
    orchestrator.refusals, orchestrator.stubborn = 1, {2}
    with door._background_tasks(POST, orchestrator) as tasks:
        orchestrator.there = {1: "first", 2: "first"}
        tasks.remove((1, 2))
        [kept] = events_of(tasks, RemovalRefused)

    assert isinstance(kept, RemovalRefused)
    assert kept.consumers == {2}
    assert orchestrator.there == {2: "first"}


def test_removing_the_last_ones_keeps_nobody():
    orchestrator = Orchestrator(c1="first")
    with door._background_tasks(POST, orchestrator) as tasks:
        tasks.remove((1,))
        until(lambda: not orchestrator.there)

    assert not [event for event in tasks.finished() if isinstance(event, RemovalRefused)]


def test_a_controller_that_lost_leadership_begins_nothing_more():
    orchestrator = Orchestrator(c1="first")
    with door._background_tasks(POST, orchestrator) as tasks:
        tasks.end()
        tasks.create((0,))
        tasks.remove((1,))
        tasks.kill(1, "first")

    assert not orchestrator.tried
