"""Dispatching policies and their settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trimtab.simulate.brokers import Ints, QueueWorld, Records


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchSettings:
    """Settings of policies.

    Attributes:
        d: Number of queues that `jsq-d` compares.
        refresh: Interval at which `jsq` and `jsq-d` learn the queue lengths; in between each
            dispatcher adds its own records. None: always current.
        seed: Seed of starts, draws and ties.
    """

    d: int = 2
    refresh: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.d < 1:
            raise ValueError(f"d must be at least 1, not {self.d}")
        if self.refresh is not None and not self.refresh > 0:
            raise ValueError(f"refresh must be greater than 0, not {self.refresh}")


Choose = Callable[[QueueWorld, Records, DispatchSettings], Ints]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPolicy:
    """A policy, the knowledge it needs, and whether that differs between dispatchers."""

    name: str
    knows: str
    choose: Choose
    own_view: bool = False
    looks: bool = False

    def alike(self, settings: DispatchSettings) -> bool:
        """Whether the number of dispatchers makes no difference."""
        return not self.own_view and not (self.looks and settings.refresh is not None)


DEFAULTS = DispatchSettings()
