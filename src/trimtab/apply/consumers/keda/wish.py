"""What a controller wishes for where KEDA does the scaling, and who is there.

Why      KEDA has Kubernetes' autoscaler do the work, and that leaves a count as it is while the
         metric is within a tenth of it: told 12 it would keep 11 for ever.
Promise  There will be at least as many consumers as are wished for, and at most a tenth and one
         more: idle ones, which the next plan uses first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from trimtab.apply.consumers.keda.wanted import Wanted
from trimtab.errors import ApplyError
from trimtab.model.control import Action, Decision


class Wish:
    """The newest decision for a group; too old a one is none, so that KEDA changes nothing.

    Of the members that are there, `spares` may be idle.
    """

    def __init__(
        self,
        group: str,
        *,
        fresh_s: float,
        spares: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group, self._fresh_s, self._clock = group, fresh_s, clock
        self._spares, self._there = spares, 0
        self._newest: tuple[float, int] | None = None
        self._refused = ""
        self._guard = threading.Lock()

    def decided(self, decision: Decision) -> None:
        """Takes a decision in; a refusal leaves the last wish to grow old."""
        with self._guard:
            if decision.action is Action.REFUSE:
                self._refused = decision.reason
            else:
                self._newest, self._refused = (self._clock(), decision.after), ""

    def look(self, members: int) -> None:
        """Takes in how many members the group has."""
        with self._guard:
            self._there = members

    def wanted(self, group: str) -> Wanted | None:
        """How many consumers a group should have; None for a group that is not ours."""
        if group != self._group:
            return None
        with self._guard:
            if self._newest is None:
                return Wanted(None, self._refused or "nothing was decided yet")
            at, consumers = self._newest
            age_s = self._clock() - at
            if age_s > self._fresh_s:
                return Wanted(None, self._refused or f"the last decision is {age_s:.0f} s old")
            kept = min(self._there, consumers + self._spares)
            return Wanted(stepped(max(consumers, kept), self._there))


def stepped(wanted: int, there: int) -> int:
    """What the autoscaler is to be told, so that there are as many as wanted.

    >>> [stepped(wanted, 11) for wanted in (9, 11, 12, 13)]
    [9, 11, 13, 13]
    """
    unmoved = there * 11 // 10  # up to that it does nothing
    return unmoved + 1 if there < wanted <= unmoved else wanted


class Members:
    """The members that a group has, numbered by name; who starts and stops them is not ours.

    `on_look` is told how many there are.
    """

    def __init__(
        self,
        members: Callable[[], Collection[str]],
        *,
        on_look: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._members, self._on_look = members, on_look

    def living(self) -> Mapping[int, str]:
        """Returns each member with its id."""
        return dict(enumerate(sorted(self._members())))

    def last_words(self) -> Mapping[int, str]:
        """Returns nothing: KEDA and Kubernetes know."""
        return {}

    def names(self) -> Collection[str]:
        """Returns the names of the members."""
        names = frozenset(self._members())
        self._on_look(len(names))
        return names

    def create(self, consumers: Collection[int]) -> None:
        """Leaves it to KEDA, which asks how many are wanted."""

    def remove(self, idle: Collection[int]) -> None:
        """Leaves it to KEDA, which asks how many are wanted."""

    def kill(self, consumer: int) -> None:
        """Cannot be done here."""
        raise ApplyError(f"Consumer {consumer} is KEDA's: it cannot be ended from here.")

    def close(self) -> None:
        """Holds nothing."""
