"""Carries out a plan step by step, with a journal from which another machine goes on.

Promise  An entry is written before each step, so a crash repeats at most the step that was under
         way; an executor must bear that. A plan that is `running` goes on at the step that its
         journal names. Whatever happens, the settings that were found at the start are restored
         before the plan ends, and they are in the journal until then.
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
    """What a layer does to carry out its moves."""

    def prepare(self) -> Found:
        """Reads the settings that the work will change, before it changes any."""
        ...

    def carry_out(self, batch: Sequence[MoveT]) -> None:
        """Does these moves, and returns when they are done; a repeat changes nothing."""
        ...

    def restore(self, found: Found) -> None:
        """Puts the settings back as they were found; a repeat changes nothing."""
        ...


class Journal(Protocol):
    """Where the entries of plans are kept."""

    def newest(self, plan: str) -> JournalEntry | None:
        """The last entry of a plan."""
        ...

    def write(self, entry: JournalEntry) -> None:
        """Keeps an entry, and returns when it is safe."""
        ...


def check_transition(before: JournalEntry | None, after: PlanState) -> None:
    """Refuses an entry that may not follow the last one."""
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
    """Carries out all batches that the journal does not know as done; returns the last entry.

    A cancelled plan stops after the batch under way. An error of ours ends it as `failed` and is
    raised again once the settings are restored.
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
