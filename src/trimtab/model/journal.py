"""The journal of a plan: the progress of its execution, to resume after a crash on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from trimtab.model.wire import OMIT_EMPTY, REQUIRED, Count


class PlanState(StrEnum):
    """State of the execution of a plan."""

    MADE = "made"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    ROLLED_BACK = "rolled_back"


TRANSITIONS: Mapping[PlanState, frozenset[PlanState]] = {
    PlanState.MADE: frozenset(
        {PlanState.MADE, PlanState.RUNNING, PlanState.FAILED, PlanState.CANCELLED}
    ),
    PlanState.RUNNING: frozenset(
        {PlanState.RUNNING, PlanState.DONE, PlanState.FAILED, PlanState.CANCELLED}
    ),
    PlanState.DONE: frozenset({PlanState.MADE, PlanState.ROLLED_BACK}),
    PlanState.FAILED: frozenset({PlanState.MADE, PlanState.ROLLED_BACK}),
    PlanState.CANCELLED: frozenset({PlanState.MADE, PlanState.ROLLED_BACK}),
    PlanState.ROLLED_BACK: frozenset({PlanState.MADE}),
}
"""Allowed transitions; a plan that has ended can only be executed again after `made`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """An entry of the journal; it is written before the step that it names.

    `found` holds the settings to restore: where → name → value, None if it was not set. `why` is
    the reason why the execution failed or was cancelled.
    """

    plan: str
    state: PlanState
    step: Count
    of: Count
    found: Annotated[Mapping[str, Mapping[str, str | None]], REQUIRED] = field(default_factory=dict)
    ts: Count
    why: Annotated[str, OMIT_EMPTY] = ""

    @property
    def ended(self) -> bool:
        """Whether the execution of this plan has ended."""
        return self.state not in {PlanState.MADE, PlanState.RUNNING}
