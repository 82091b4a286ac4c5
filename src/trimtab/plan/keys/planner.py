"""The planner protocol of the keys layer: which partition each hot key goes to.

A rule is a pure function of the counts of one window, its options and the `KeyContext`; it
calculates in integers, so two machines make the same plan. To run one in a loop, as a gateway or
a simulator does: count a window, call the planner, make `decision.routes` the routing table, and
list all of its keys in the counts of the next window, with `routed` set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Protocol, TypeVar

from trimtab.measure.counters import Threshold
from trimtab.model.key_counts import KeyCounts
from trimtab.model.plan import KeyMove
from trimtab.plan.planner import NamedPlanner

_OptionsT_contra = TypeVar("_OptionsT_contra", contravariant=True)


class InitialPlace(StrEnum):
    """Where a key goes that has become hot."""

    TWO_CHOICES = "two-choices"  # to the less loaded of two partitions that its hash chooses
    HOME = "home"  # it stays, and rebalancing decides


class BalancedLoad(StrEnum):
    """The load of a partition that is balanced."""

    HOT = "hot"  # the records of hot keys, as in the paper
    TOTAL = "total"  # all records


class CoolBelow(StrEnum):
    """Below which count a key of the routing table goes home."""

    THRESHOLD = "threshold"  # as in the paper
    HALF = "half"  # half the threshold, so that keys near it do not go to and fro


class WorthTest(StrEnum):
    """How a move is tested before it is made."""

    NONE = "none"  # every move is made
    EQ4 = "eq4"  # the paper's inequality (4), as printed
    DELAY = "delay"  # the waiting saved over one window against the time that the key waits


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyOptions:
    """The options of every planner for keys."""

    threshold: Annotated[
        Threshold | None,
        "From when a key is hot: count:N records per window, share:F of all records, or "
        "coverage:F, the fewest keys that together have this share. Default: as counted.",
    ] = None
    cool_below: Annotated[
        CoolBelow, "A routed key goes home when its count is below the threshold, or half of it."
    ] = CoolBelow.HALF
    worth: Annotated[
        WorthTest | None,
        "How a move is tested. Default: delay if a state cost is given, else none.",
    ] = None
    service_s: Annotated[
        float | None, "Processing time of one record, in seconds, for the test of moves."
    ] = None
    state_s: Annotated[
        float | None, "Time to move the state of a key, in seconds, for the test of moves."
    ] = None
    max_moves: Annotated[int | None, "Most keys that one plan may move."] = None

    @property
    def balances(self) -> BalancedLoad:
        """The load that the planner makes even."""
        return BalancedLoad.TOTAL


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyContext:
    """Facts beyond the counts.

    Attributes:
        plan_number: Number of earlier plans in a series; varies the two choices.
        busy: Keys whose last move is not finished: they stay where they are.
    """

    plan_number: int = 0
    busy: frozenset[bytes] = frozenset()


FIRST_PLAN = KeyContext()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyDecision:
    """What a rule decided.

    Attributes:
        moves: The moves in order, at most one per key.
        routes: The whole routing table after the moves.
        skipped: Number of keys that could not move because their last move is not finished.
    """

    moves: tuple[KeyMove, ...]
    routes: Mapping[bytes, int] = field(default_factory=dict)
    skipped: int = 0


class KeyRule(Protocol[_OptionsT_contra]):
    """Key → partition: a pure function that does not depend on the order of its input."""

    def __call__(
        self, counts: KeyCounts, options: _OptionsT_contra, context: KeyContext, /
    ) -> KeyDecision:
        """Decides which keys move."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlanner(NamedPlanner[KeyRule[Any], KeyOptions]):
    """A planner of the keys layer by name; `uses` are fields of `KeyContext`."""

    def __call__(self, counts: KeyCounts, context: KeyContext = FIRST_PLAN, /) -> KeyDecision:
        """Decides which keys move."""
        return self.rule(counts, self.options, context)
