"""What a controller wishes for where KEDA does the scaling, and who is there."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from trimtab.apply.keda.wanted import Wanted
from trimtab.errors import ApplyError
from trimtab.model.control import Action, Decision


class Wish:
    """The newest decision for a group; too old a one is none, so that KEDA's fallback acts."""

    def __init__(
        self, group: str, *, fresh_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._group, self._fresh_s, self._clock = group, fresh_s, clock
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
            return Wanted(consumers)


class Members:
    """The members that a group has, numbered by name; who starts and stops them is not ours."""

    def __init__(self, members: Callable[[], Collection[str]]) -> None:
        self._members = members

    def living(self) -> Mapping[int, str]:
        """Returns each member with its id."""
        return dict(enumerate(sorted(self._members())))

    def last_words(self) -> Mapping[int, str]:
        """Returns nothing: KEDA and Kubernetes know."""
        return {}

    def names(self) -> Collection[str]:
        """Returns the names of the members."""
        return frozenset(self._members())

    def create(self, consumers: Collection[int]) -> None:
        """Leaves it to KEDA, which asks how many are wanted."""

    def remove(self, idle: Collection[int]) -> None:
        """Leaves it to KEDA, which asks how many are wanted."""

    def kill(self, consumer: int) -> None:
        """Cannot be done here."""
        raise ApplyError(f"Consumer {consumer} is KEDA's: it cannot be ended from here.")

    def close(self) -> None:
        """Holds nothing."""
