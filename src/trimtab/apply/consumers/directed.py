"""What a directed consumer does with a command: pure, so that every order of commands can be tried.

Why      Nothing fences a reader that assigns by hand. It is safe because it reads only what it was
         told to, and says what it reads only after that is so.
Promise  A command of an older epoch, or for another process under the same index, is ignored. A
         command that was obeyed before is answered again, word for word, and not obeyed again.
         Taking what is owned and dropping what is not are harmless. A process begins with nothing,
         whatever one before it under the same index had.
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
    Report,
    Start,
    Started,
    StateQuery,
    StateReport,
    Stop,
    Stopped,
)

REMEMBERED = 1000
"""Answers kept for repeats; a controller repeats its last commands, never old ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Directed:
    """One consumer process as the controller sees it."""

    consumer: int
    incarnation: str
    epoch: int = 0
    owned: frozenset[TopicPartition] = frozenset()
    answers: Mapping[int, Started | Stopped] = field(default_factory=dict)

    @property
    def hello(self) -> Hello:
        """What it says when it begins."""
        return Hello(consumer=self.consumer, incarnation=self.incarnation)


@dataclass(frozen=True, slots=True)
class Take:
    """Read these from where they are committed."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Drop:
    """Read these no more, and forget what was read of them but not handled."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the controller, once all before it is done."""

    report: Report


Action = Take | Drop | Say


def obey(
    state: Directed, command: Command, committed: Mapping[TopicPartition, int]
) -> tuple[Directed, tuple[Action, ...]]:
    """The state after a command, and what is to be done, in order.

    `committed` holds the offsets as they stand now, when all that was handled is committed.
    """
    if command.epoch < state.epoch:
        return state, ()
    if command.epoch > state.epoch:
        state = replace(state, epoch=command.epoch, answers={})
    match command:
        case StateQuery():
            return state, (Say(_state_of(state, command)),)
        case Start() | Stop() if command.incarnation not in (None, state.incarnation):
            return state, ()  # for the process before this one
        case Start() | Stop():
            before = state.answers.get(command.seq)
            if before is not None:
                return state, (Say(before),)
            return _acted(state, command, committed)
        case _:
            assert_never(command)


def _acted(
    state: Directed, command: Start | Stop, committed: Mapping[TopicPartition, int]
) -> tuple[Directed, tuple[Action, ...]]:
    action: Action
    answer: Started | Stopped
    if isinstance(command, Start):
        changed = tuple(dict.fromkeys(p for p in command.partitions if p not in state.owned))
        action = Take(changed)
        owned = state.owned | set(changed)
        answer = Started(
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
        answer = Stopped(
            consumer=state.consumer,
            incarnation=state.incarnation,
            epoch=command.epoch,
            seq=command.seq,
            partitions=command.partitions,
            committed={p: committed.get(p) for p in command.partitions},
        )
    answers = dict([*state.answers.items(), (command.seq, answer)][-REMEMBERED:])
    after = replace(state, owned=owned, answers=answers)
    return after, ((action,) if changed else ()) + (Say(answer),)


def _state_of(state: Directed, query: StateQuery) -> StateReport:
    return StateReport(
        consumer=state.consumer,
        incarnation=state.incarnation,
        query_id=query.query_id,
        partitions=tuple(sorted(state.owned)),
    )


def without(state: Directed, lost: frozenset[TopicPartition]) -> Directed:
    """The state after partitions have vanished under the consumer."""
    return replace(state, owned=state.owned - lost)


def worth_obeying(commands: Sequence[Command]) -> tuple[Command, ...]:
    """The commands in order, without any query but the last: older ones nobody waits for."""
    queries = [at for at, command in enumerate(commands) if isinstance(command, StateQuery)]
    newest = max(queries, key=lambda at: (commands[at].epoch, at), default=None)
    return tuple(
        command
        for at, command in enumerate(commands)
        if at == newest or not isinstance(command, StateQuery)
    )
