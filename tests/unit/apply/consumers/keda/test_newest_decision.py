"""What KEDA is told, and who is there."""

from __future__ import annotations

import pytest

from trimtab.apply.consumers.keda.newest_decision import Members, NewestDecision
from trimtab.apply.consumers.keda.wanted import WantedConsumers
from trimtab.errors import ApplyError
from trimtab.model.control import Action, Decision


def decision(action: Action, after: int, reason: str = "so") -> Decision:
    return Decision(ts=1, group="g", action=action, before=1, after=after, reason=reason)


def told(wish: NewestDecision) -> int:
    found = wish.wanted("g")
    assert found is not None
    assert found.consumers is not None
    return found.consumers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_newest_decision_is_wished_for_while_it_is_fresh():
    clock = Clock()
    wish = NewestDecision("g", fresh_s=30, clock=clock)
    before = wish.wanted("g")
    wish.decided(decision(Action.SCALE_UP, 3))
    wish.decided(decision(Action.NONE, 4))
    fresh = wish.wanted("g")
    clock.now = 31
    old = wish.wanted("g")

    assert before == WantedConsumers(None, "nothing was decided yet")
    assert fresh == WantedConsumers(4)
    assert old == WantedConsumers(None, "the last decision is 31 s old")


def test_a_refusal_lets_the_wish_grow_old_and_then_says_why():
    clock = Clock()
    wish = NewestDecision("g", fresh_s=30, clock=clock)
    wish.decided(decision(Action.SCALE_UP, 3))
    clock.now = 20
    wish.decided(decision(Action.REFUSE, 3, "rates are old"))
    still = wish.wanted("g")
    clock.now = 40
    gone = wish.wanted("g")

    assert still == WantedConsumers(3)
    assert gone == WantedConsumers(None, "rates are old")


@pytest.mark.parametrize("there", range(1, 65))
@pytest.mark.parametrize("more", [1, 2, 7])
def test_the_autoscaler_reaches_what_is_wished_for_in_spite_of_its_tolerance(there, more):
    wish = NewestDecision("g", fresh_s=30)
    wish.look(there)
    wish.decided(decision(Action.SCALE_UP, there + more))

    metric = told(wish)
    now = metric if metric / there > 1.1 else there  # as Kubernetes' autoscaler decides

    assert now >= there + more
    assert now <= 1.1 * (there + more) + 1
    wish.look(now)
    assert told(wish) == there + more  # and does not creep up further


def test_fewer_are_wished_for_as_they_are_decided():
    wish = NewestDecision("g", fresh_s=30)
    wish.look(40)
    wish.decided(decision(Action.SCALE_DOWN, 39))

    assert wish.wanted("g") == WantedConsumers(39)


def test_spares_that_are_there_are_kept_and_none_are_started_for_it():
    wish = NewestDecision("g", fresh_s=30, spares=2)
    wish.decided(decision(Action.NONE, 3))
    wanted = {}
    for there in (2, 3, 4, 5, 9):
        wish.look(there)
        wanted[there] = told(wish)

    assert wanted == {2: 3, 3: 3, 4: 4, 5: 5, 9: 5}


def test_another_group_is_unknown():
    assert NewestDecision("g", fresh_s=30).wanted("h") is None


def test_members_are_numbered_by_name_and_left_alone():
    seen: list[int] = []
    members = Members(lambda: ["b", "a"], on_look=seen.append)
    members.create([2])
    members.remove([0])

    assert members.running() == {0: "a", 1: "b"}
    assert (members.names(), seen) == ({"a", "b"}, [2])
    with pytest.raises(ApplyError, match="KEDA"):
        members.kill(0)
