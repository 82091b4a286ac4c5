"""What a dispatching policy is, and what it may be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.simulate.brokers import Ints, QueueWorld, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """What a policy may be told.

    Attributes:
        d: How many queues `jsq-d` looks at.
        refresh: How often `jsq` and `jsq-d` are told the lengths of queues; in between each
            dispatcher adds what it sends itself. None: they always know.
        seed: Of starts, draws and ties.
    """

    d: int = 2
    refresh: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.d < 1:
            raise ValueError(f"at least one queue must be looked at, not {self.d}")
        if self.refresh is not None and not self.refresh > 0:
            raise ValueError(f"time passes between two refreshes, not {self.refresh}")


Choose = Callable[[QueueWorld, Records, DispatchSettings], Ints]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy:
    """A way to choose, what it must know for that, and whether each dispatcher knows its own."""

    name: str
    knows: str
    choose: Choose
    own_view: bool = False
    looks: bool = False

    def alike(self, settings: DispatchSettings) -> bool:
        """Whether it makes no difference how many dispatchers there are."""
        return not self.own_view and not (self.looks and settings.refresh is not None)


DEFAULTS = DispatchSettings()
