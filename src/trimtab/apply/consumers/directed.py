"""Executes commands for a directed consumer: pure, so that any order of commands can be tested.

Why      Brokers do not fence a reader that assigns partitions manually. It is safe because it reads
         only what it was told to, and reports it only after that is true.
Promise  A command of an older epoch, or for another process with the same index, is ignored. A
         repeated command gets the same answer again and is not executed again. Taking an owned
         partition and dropping another are harmless. A new process owns nothing, whatever an
         earlier process with the same index had.
Cost     O(partitions of the command); the answers of one epoch are kept, `REMEMBERED` at most.
Paper    Landau et al., section on the consumer's metadata; packing.md §11.3 for epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import assert_never

from trimtab.model.cluster import TopicPartition
from trimtab.model.control import (
    Command,
    Hello,
    Partitions,
    ReadingStarted,
    ReadingStopped,
    Report,
    Start,
    StateQuery,
    StateReport,
    Stop,
)

REMEMBERED = 1000
"""Answers kept for repeats; a controller repeats its last commands, never old ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerProcess:
    """One consumer process as the controller sees it."""

    consumer: int
    incarnation: str
    epoch: int = 0
    owned: frozenset[TopicPartition] = frozenset()
    answers: Mapping[int, ReadingStarted | ReadingStopped] = field(default_factory=dict)

    @property
    def hello(self) -> Hello:
        """The first report of the process."""
        return Hello(consumer=self.consumer, incarnation=self.incarnation)


@dataclass(frozen=True, slots=True)
class Take:
    """Start reading these from their committed offsets."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Drop:
    """Stop reading these, and drop their records that were read but not handled."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class SendReport:
    """Send a report to the controller, after all earlier actions are done."""

    report: Report


Action = Take | Drop | SendReport


def execute(
    state: ConsumerProcess, command: Command, committed: Mapping[TopicPartition, int]
) -> tuple[ConsumerProcess, tuple[Action, ...]]:
    """The state after a command, and the actions to perform, in order.

    `committed` holds the current committed offsets; all handled records must be committed before.
    """
    if command.epoch < state.epoch:
        return state, ()
    if command.epoch > state.epoch:
        state = replace(state, epoch=command.epoch, answers={})
    match command:
        case StateQuery():
            return state, (SendReport(_state_of(state, command)),)
        case Start() | Stop() if command.incarnation not in (None, state.incarnation):
            return state, ()  # for an earlier process
        case Start() | Stop():
            before = state.answers.get(command.seq)
            if before is not None:
                return state, (SendReport(before),)
            return _executed(state, command, committed)
        case _:
            assert_never(command)


def _executed(
    state: ConsumerProcess, command: Start | Stop, committed: Mapping[TopicPartition, int]
) -> tuple[ConsumerProcess, tuple[Action, ...]]:
    action: Action
    answer: ReadingStarted | ReadingStopped
    if isinstance(command, Start):
        changed = tuple(dict.fromkeys(p for p in command.partitions if p not in state.owned))
        action = Take(changed)
        owned = state.owned | set(changed)
        answer = ReadingStarted(
            consumer=state.consumer,
            incarnation=state.incarnation,
            epoch=command.epoch,
            seq=command.seq,
            partitions=command.partitions,
        )
    else:
        changed = tuple(dict.fromkeys(p for p in command.partitions if p in state.owned))
        action = Drop(changed)
        owned = state.owned - set(changed)
        answer = ReadingStopped(
            consumer=state.consumer,
            incarnation=state.incarnation,
            epoch=command.epoch,
            seq=command.seq,
            partitions=command.partitions,
            committed={p: committed.get(p) for p in command.partitions},
        )
    answers = dict([*state.answers.items(), (command.seq, answer)][-REMEMBERED:])
    after = replace(state, owned=owned, answers=answers)
    return after, ((action,) if changed else ()) + (SendReport(answer),)


def _state_of(state: ConsumerProcess, query: StateQuery) -> StateReport:
    return StateReport(
        consumer=state.consumer,
        incarnation=state.incarnation,
        query_id=query.query_id,
        partitions=tuple(sorted(state.owned)),
    )


def without(state: ConsumerProcess, lost: frozenset[TopicPartition]) -> ConsumerProcess:
    """The state after partitions of this consumer were deleted."""
    return replace(state, owned=state.owned - lost)


def without_old_queries(commands: Sequence[Command]) -> tuple[Command, ...]:
    """The commands in order, without queries other than the newest: older ones are obsolete."""
    queries = [at for at, command in enumerate(commands) if isinstance(command, StateQuery)]
    newest = max(queries, key=lambda at: (commands[at].epoch, at), default=None)
    return tuple(
        command
        for at, command in enumerate(commands)
        if at == newest or not isinstance(command, StateQuery)
    )
