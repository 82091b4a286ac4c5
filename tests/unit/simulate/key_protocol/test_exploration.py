"""Exploring a small model: counters that two processes raise."""

from __future__ import annotations

from trimtab.simulate.key_protocol.exploration import BadState, explore


class Counters:
    """Two counters up to `top`; reaching `bad` is a fault."""

    def __init__(self, top=3, bad=None, good_end=True):
        self.top, self.bad, self.good_end = top, bad, good_end

    def initial(self):
        return (0, 0)

    def successors(self, state):
        found = []
        for which in (0, 1):
            after = tuple(n + (i == which) for i, n in enumerate(state))
            if after[which] <= self.top:
                bad = BadState("BAD", "It is bad.") if after == self.bad else after
                found.append((("counter", which), bad, True))
        return found

    def check_end(self, state):
        return None if self.good_end else BadState("END", "It ends badly.")


def test_all_states_are_explored():
    found = explore(Counters())

    assert (found.states, found.actions, found.ends, found.depth) == (16, 24, 1, 6)
    assert found.is_complete
    assert found.fault is None


def test_a_fault_is_reached_by_a_shortest_way():
    found = explore(Counters(bad=(1, 2)))

    assert found.fault is not None
    assert (found.fault.kind, found.fault.text) == ("BAD", "It is bad.")
    assert [step.before for step in found.fault.trace] == [(0, 0), (1, 0), (1, 1)]
    assert found.fault.trace[-1].after is None
    assert not found.is_complete


def test_a_bad_end_is_a_fault():
    found = explore(Counters(top=1, good_end=False))

    assert found.fault is not None
    assert found.fault.kind == "END"
    assert found.fault.trace[-1].after == (1, 1)


def test_the_limit_ends_an_exploration():
    found = explore(Counters(top=100), limit=50)

    assert 50 <= found.states < 60
    assert not found.is_complete


def test_progress_is_reported():
    seen = []
    explore(Counters(), on_progress=lambda states, waiting: seen.append((states, waiting)), every=8)

    assert [states for states, _ in seen] == [12, 16]
    assert seen[-1][1] == 0
