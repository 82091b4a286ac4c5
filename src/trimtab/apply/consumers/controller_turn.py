"""One step of the controller while it is computed: the state so far, and the effects so far."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from trimtab.apply.consumers.controller_state import (
    PHASES,
    ControllerState,
    Effect,
    Note,
    Persist,
    Phase,
    Remove,
    Send,
)
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.control import GroupState, StateQuery


class ControllerTurn:
    """The state as it changes during one step, and the effects collected so far."""

    def __init__(self, state: ControllerState) -> None:
        self.state = state
        self.effects: list[Effect] = []

    def set(self, **changes: object) -> None:
        """Changes fields of the state."""
        self.state = replace(self.state, **changes)  # type: ignore[arg-type]

    def enter(self, phase: Phase, **changes: object) -> None:
        """Enters another phase; raises if the table does not allow it."""
        if phase not in PHASES[self.state.phase]:
            raise AssertionError(f"{self.state.phase} cannot become {phase}")
        self.set(phase=phase, entered=self.state.now, **changes)

    def member(self, consumer: int, **changes: object) -> None:
        """Changes what is known of one consumer."""
        known = self.state.members[consumer]
        changed = replace(known, **changes)  # type: ignore[arg-type]
        self.set(members={**self.state.members, consumer: changed})

    def note(
        self,
        what: str,
        consumer: int | None = None,
        partitions: Iterable[TopicPartition] = (),
        *,
        violation: bool = False,
    ) -> None:
        """Adds a note for the log."""
        self.effects.append(Note(what, consumer, tuple(sorted(partitions)), violation))

    def query(self, consumer: int) -> None:
        """Asks a consumer which partitions it reads."""
        query = StateQuery(epoch=self.state.epoch, query_id=self.state.query_id)
        self.effects.append(Send(consumer, query))

    def release(self, idle: frozenset[int]) -> None:
        """Removes consumers that read nothing and are not kept as spares."""
        if idle:
            self.set(leaving=self.state.leaving | idle)
            self.effects.append(Remove(tuple(sorted(idle))))

    def persist_settled(self) -> None:
        """Persists the assignment; it is clean if all consumers have reported their partitions.

        After a clean state, the next controller need not wait for consumers without partitions.
        """
        self.set(clean=not self.state.unknown)
        self.persist()

    def persist(self, assignment: Assignment | None = None) -> None:
        """Persists an assignment, by default the present one."""
        if assignment is None:
            assignment = Assignment(dict(sorted(self.state.held.items())))
        kept = GroupState(epoch=self.state.epoch, clean=self.state.clean, assignment=assignment)
        self.effects.append(Persist(kept))
