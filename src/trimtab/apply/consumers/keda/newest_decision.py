"""The number of consumers that a controller wants where KEDA scales, and the members present.

Why      KEDA uses Kubernetes' autoscaler, which changes nothing while the metric is within 10 % of
         the current count: at 11 consumers a wanted 12 would be ignored for ever.
Promise  There will be at least as many consumers as wanted, and at most a tenth plus one more: idle
         ones, which the next plan uses first.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping

from trimtab.apply.consumers.keda.wanted import WantedConsumers
from trimtab.errors import ApplyError
from trimtab.model.control import Action, Decision


class NewestDecision:
    """The newest decision for a group; an old one does not count, and KEDA then changes nothing.

    Up to `spares` of the present members may be idle.
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
        """Stores a decision; after a refusal the last number stays until it is too old."""
        with self._guard:
            if decision.action is Action.REFUSE:
                self._refused = decision.reason
            else:
                self._newest, self._refused = (self._clock(), decision.after), ""

    def look(self, members: int) -> None:
        """Stores how many members the group has."""
        with self._guard:
            self._there = members

    def wanted(self, group: str) -> WantedConsumers | None:
        """How many consumers a group should have; None for another controller's group."""
        if group != self._group:
            return None
        with self._guard:
            if self._newest is None:
                return WantedConsumers(None, self._refused or "nothing was decided yet")
            at, consumers = self._newest
            age_s = self._clock() - at
            if age_s > self._fresh_s:
                return WantedConsumers(
                    None, self._refused or f"the last decision is {age_s:.0f} s old"
                )
            kept = min(self._there, consumers + self._spares)
            return WantedConsumers(stepped(max(consumers, kept), self._there))


def stepped(wanted: int, there: int) -> int:
    """The number to give to the autoscaler so that there are at least as many as wanted.

    >>> [stepped(wanted, 11) for wanted in (9, 11, 12, 13)]
    [9, 11, 13, 13]
    """
    ignored = there * 11 // 10  # up to this number it changes nothing
    return ignored + 1 if there < wanted <= ignored else wanted


class Members:
    """A backend that lists the members of a group, numbered by name; KEDA starts and stops them.

    `on_look` is called with their number.
    """

    def __init__(
        self,
        members: Callable[[], Collection[str]],
        *,
        on_look: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._members, self._on_look = members, on_look

    def running(self) -> Mapping[int, str]:
        """Returns each member with its id."""
        return dict(enumerate(sorted(self._members())))

    def exit_reasons(self) -> Mapping[int, str]:
        """Returns nothing: only KEDA and Kubernetes know it."""
        return {}

    def names(self) -> Collection[str]:
        """Returns the names of the members."""
        names = frozenset(self._members())
        self._on_look(len(names))
        return names

    def create(self, consumers: Collection[int]) -> None:
        """Does nothing: KEDA asks how many consumers are wanted."""

    def remove(self, idle: Collection[int]) -> None:
        """Does nothing: KEDA asks how many consumers are wanted."""

    def kill(self, consumer: int) -> None:
        """Raises ApplyError: consumers that KEDA scales cannot be killed from here."""
        raise ApplyError(f"Consumer {consumer} is managed by KEDA and cannot be killed from here.")

    def close(self) -> None:
        """Does nothing: there are no connections."""
