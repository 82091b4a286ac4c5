"""Carries out a plan step by step, with a journal from which another process can continue.

Promise  An entry is written before each step, so a crash repeats at most the current step, which
         executors must allow. A `running` plan continues at the step in its journal. The settings
         found at the start are always restored before the plan ends, and are in the journal until
         then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

from trimtab.errors import ApplyError, TrimtabError
from trimtab.model.journal import TRANSITIONS, JournalEntry, PlanState

MoveT = TypeVar("MoveT", contravariant=True)  # noqa: PLC0105 - as in `model.plan`
Found = Mapping[str, Mapping[str, str | None]]
OnProgress = Callable[[int, int], None]


class Executor(Protocol[MoveT]):
    """Carries out the moves of one layer."""

    def prepare(self) -> Found:
        """Reads the settings that the moves will change, before any is changed."""
        ...

    def carry_out(self, batch: Sequence[MoveT]) -> None:
        """Carries out these moves, and returns when they are done; repeats change nothing."""
        ...

    def restore(self, found: Found) -> None:
        """Restores the settings as they were found; repeats change nothing."""
        ...


class Journal(Protocol):
    """Stores the journal entries of plans."""

    def newest(self, plan: str) -> JournalEntry | None:
        """The last entry of a plan."""
        ...

    def write(self, entry: JournalEntry) -> None:
        """Writes an entry, and returns when it is acknowledged."""
        ...


def check_transition(before: JournalEntry | None, after: PlanState) -> None:
    """Raises if this state may not follow the last entry."""
    if before is not None and after not in TRANSITIONS[before.state]:
        raise ApplyError(f"Plan {before.plan} is {before.state}: it cannot become {after}.")


def execute(
    plan: str,
    batches: Sequence[Sequence[MoveT]],
    executor: Executor[MoveT],
    journal: Journal,
    *,
    clock: Callable[[], int],
    cancelled: Callable[[], bool] = lambda: False,
    on_progress: OnProgress = lambda _done, _total: None,
) -> JournalEntry:
    """Carries out all batches that are not done by the journal; returns the last entry.

    A cancelled plan stops after the current batch. A TrimtabError ends the plan as `failed` and is
    raised again after the settings are restored.
    """
    before, total = journal.newest(plan), len(batches)
    resumes = before is not None and before.state is PlanState.RUNNING
    check_transition(before, PlanState.RUNNING)
    first = before.step if before is not None and resumes else 0
    found = before.found if before is not None and resumes else executor.prepare()
    step = first

    def entry(state: PlanState, why: str = "") -> JournalEntry:
        kept = found if state is PlanState.RUNNING else {}
        made = JournalEntry(
            plan=plan, state=state, step=step, of=total, ts=clock(), found=kept, why=why
        )
        journal.write(made)
        return made

    try:
        for step in range(first, total):
            entry(PlanState.RUNNING)
            on_progress(step, total)
            if cancelled():
                executor.restore(found)
                return entry(PlanState.CANCELLED, "it was cancelled")
            executor.carry_out(batches[step])
        step = total
        entry(PlanState.RUNNING)
        executor.restore(found)
    except TrimtabError as error:
        executor.restore(found)
        entry(PlanState.FAILED, error.message)
        raise
    on_progress(total, total)
    return entry(PlanState.DONE)
