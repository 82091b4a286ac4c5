"""The journal of a plan: how far its execution has come, so that a crash resumes on any machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class PlanState(StrEnum):
    """Where the execution of a plan is."""

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
"""What may follow what; a plan that ended is carried out again only after it is `made` again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """One entry; it is written before the step that it names.

    `found` holds the settings to restore: where → name → value, None where it was not set. `why` is
    the reason of an end that was not wanted.
    """

    plan: str
    state: PlanState
    step: int
    of: int
    ts: int
    found: Mapping[str, Mapping[str, str | None]] = field(default_factory=dict)
    why: str = ""

    @property
    def ended(self) -> bool:
        """Whether nothing more will be done for this plan."""
        return self.state not in {PlanState.MADE, PlanState.RUNNING}
