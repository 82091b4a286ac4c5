"""A consumer group's health on one partition, by small named rules.

Each rule tests the same short history, oldest first; the first rule that is true gives the state.
Offsets alone do not show when a commit was made, so "stopped" and "stalled" differ by whether new
records arrived meanwhile.

>>> verdict([Reading(end=10, committed=5), Reading(end=20, committed=5)])
<LagState.STOPPED: 'stopped'>
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple


class LagState(StrEnum):
    """State of a group on a partition."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"
    STALLED = "stalled"
    STOPPED = "stopped"
    REWOUND = "rewound"
    UNKNOWN = "unknown"


class Reading(NamedTuple):
    """The end of the log and the group's committed offset at one time; None means unknown."""

    end: int | None
    committed: int | None


class _Known(NamedTuple):
    end: int
    committed: int

    @property
    def lag(self) -> int:
        return max(self.end - self.committed, 0)


def is_rewound(history: Sequence[_Known]) -> bool:
    """The committed offset went back."""
    return any(later.committed < earlier.committed for earlier, later in pairwise(history))


def is_keeping_up(history: Sequence[_Known]) -> bool:
    """No lag now, or no lag at some time while the group made progress."""
    moved = history[-1].committed > history[0].committed
    return history[-1].lag == 0 or (moved and min(r.lag for r in history) == 0)


def is_stopped(history: Sequence[_Known]) -> bool:
    """Records arrived all the time, and nothing was committed."""
    still = history[-1].committed == history[0].committed
    return still and history[-1].end > history[0].end


def is_stalled(history: Sequence[_Known]) -> bool:
    """There is lag, no new records arrived, and nothing was committed."""
    return history[-1].committed == history[0].committed and history[-1].end == history[0].end


def is_losing_ground(history: Sequence[_Known]) -> bool:
    """The lag never shrank and has at least doubled."""
    floors = lag_floors(history)
    return is_falling_behind(history) and floors[-1] >= 2 * floors[0]


def is_falling_behind(history: Sequence[_Known]) -> bool:
    """There was always lag, it never shrank, and it grew."""
    floors = lag_floors(history)
    grew = floors[-1] > floors[0] > 0
    return grew and all(later >= earlier for earlier, later in pairwise(floors))


def lag_floors(history: Sequence[_Known]) -> list[int]:
    """The lowest lag in each of up to five parts of the history.

    The lag of a group that commits every few seconds is a sawtooth; its minima show the trend.
    """
    parts = min(len(history), 5)
    cuts = [len(history) * i // parts for i in range(parts + 1)]
    return [min(r.lag for r in history[start:end]) for start, end in pairwise(cuts)]


# The order matters: a rewind explains everything after it, and a group without lag is healthy in
# any case.
RULES: tuple[tuple[Callable[[Sequence[_Known]], bool], LagState], ...] = (
    (is_rewound, LagState.REWOUND),
    (is_keeping_up, LagState.OK),
    (is_stopped, LagState.STOPPED),
    (is_stalled, LagState.STALLED),
    (is_losing_ground, LagState.ERROR),
    (is_falling_behind, LagState.WARNING),
)


def verdict(history: Sequence[Reading]) -> LagState:
    """The state of the first rule that is true; unknown if the newest reading is incomplete."""
    if not history or history[-1].end is None or history[-1].committed is None:
        return LagState.UNKNOWN
    known = [
        _Known(r.end, r.committed) for r in history if r.end is not None and r.committed is not None
    ]
    if len(known) == 1:
        return LagState.OK if known[0].lag == 0 else LagState.UNKNOWN
    return next((state for rule, state in RULES if rule(known)), LagState.OK)
