"""The rules by which a group's health is judged, each row a history and its verdict."""

from __future__ import annotations

import pytest

from trimtab.measure.lag_rules import LagState, Reading, verdict

U = None


@pytest.mark.parametrize(
    ("ends", "committed", "state"),
    [
        # end of the log        committed            verdict
        ([10, 20, 30], [10, 20, 30], LagState.OK),  # keeps up
        ([10, 20, 30], [10, 18, 25], LagState.OK),  # was level once, and moves
        ([10, 20, 30], [5, 17, 29], LagState.OK),  # the lag shrinks
        ([10, 10, 10], [10, 10, 10], LagState.OK),  # nothing to do
        ([10, 20, 30], [5, 5, 5], LagState.STOPPED),  # records come, none is read
        ([30, 30, 30], [5, 5, 5], LagState.STALLED),  # there is work, nobody moves
        ([10, 20, 30], [5, 14, 22], LagState.WARNING),  # lag 5, 6, 8: grows slowly
        ([10, 20, 40], [5, 10, 20], LagState.ERROR),  # lag 5, 10, 20: doubles
        ([10, 20, 30], [9, 4, 30], LagState.REWOUND),  # went back, whatever came after
        ([10, 20, 30], [9, 4, 5], LagState.REWOUND),
        ([10, 20, U], [5, 6, 7], LagState.UNKNOWN),  # no end
        ([10, 20, 30], [5, 6, U], LagState.UNKNOWN),  # never committed
        ([10, U, 30], [5, 6, 30], LagState.OK),  # a hole in the middle
        ([30], [30], LagState.OK),  # one look is enough when nothing is left
        ([30], [5], LagState.UNKNOWN),  # and too little otherwise
        ([], [], LagState.UNKNOWN),
    ],
)
def test_the_first_rule_that_says_yes_gives_the_state(
    ends: list[int | None], committed: list[int | None], state: LagState
) -> None:
    history = [Reading(e, c) for e, c in zip(ends, committed, strict=True)]
    assert verdict(history) is state


def test_a_group_that_commits_now_and_then_is_judged_by_the_floor_of_its_lag() -> None:
    """Commits every third look: the lag is a saw, 10 30 50 20 40 60 30 …, and it rises."""
    history = [Reading(20 * i + 10, 20 * i - 20 * (i % 3) - 10 * (i // 3)) for i in range(15)]
    assert verdict(history) is LagState.ERROR


def test_every_state_but_unknown_is_reached_by_a_rule_or_by_none() -> None:
    from trimtab.measure.lag_rules import RULES

    assert {state for _, state in RULES} | {LagState.UNKNOWN} == set(LagState)
