"""Tasks with owners that crash or freeze: in transactions, and without them.

BATCHED: a step changes the owner's memory; a commit writes memory, effects and offsets as one. A
new owner fences the old one, restores and fetches offsets, in the order of the protocol.
SIMPLE: hand-overs are sent first, then the entry is saved, and offsets are committed at some time,
never past the START of a key that waits. The fences are those at the committed offset: newer ones
would drop records that are read again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import replace

from trimtab.apply.keys.key_entry import EntryStatus
from trimtab.apply.keys.start_up import TaskStep
from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.scenario import ProtocolFault
from trimtab.simulate.key_protocol.task_actions import (
    APPLIED,
    SENT,
    EntryResult,
    TaskSteps,
    is_paused,
    published,
    with_result,
)
from trimtab.simulate.key_protocol.world import (
    KeyFacts,
    ModelTables,
    Outcome,
    TaskMemory,
    TaskOwner,
    World,
    put,
)


class _OwnedTasks(ABC):
    """What both kinds share: owners that start, read, crash and freeze."""

    def __init__(self, tables: ModelTables) -> None:
        self.tables = tables
        self.protocol = tables.protocol
        self.steps = TaskSteps(tables)

    def of(self, world: World) -> Iterator[Outcome]:
        """All actions of all owners."""
        for partition, owners in enumerate(world.owners):
            newest = len(owners) - 1
            for at, owner in enumerate(owners):
                if owner.step < len(self.protocol.task_start):
                    yield self._start(world, partition, at, expected=at == newest)
                else:
                    yield from self._run(world, partition, at, expected=at == newest)
            yield from self._faults(world, partition)

    def _start(self, world: World, partition: int, at: int, *, expected: bool) -> Outcome:
        first = world.owners[partition][at].step
        while True:
            world, at = self._start_step(world, partition, at)
            owners = world.owners[partition]
            if owners[at].step == len(self.protocol.task_start) or len(owners) > 1:
                break
        names = tuple(self.protocol.task_start[first : world.owners[partition][at].step])
        return ("task", partition, "start", names), world, expected

    def _start_step(self, world: World, partition: int, at: int) -> tuple[World, int]:
        owners = world.owners[partition]
        owner = owners[at]
        match self.protocol.task_start[owner.step]:
            case TaskStep.FENCE_PREDECESSOR:
                if self.protocol.fenced_tasks:
                    owners, at = self._fenced(owners, at), 0 if self._drops_fenced else at
            case TaskStep.RESTORE:
                owner = owner._replace(memory=self._restored(world, partition))
            case TaskStep.FETCH_POSITIONS:
                read, taken, _ = world.positions[partition]
                if not self.protocol.durable_handovers:
                    taken = len(world.handovers[partition])
                owner = owner._replace(read=read, taken=taken)
        owner = owner._replace(step=owner.step + 1)
        return world._replace(owners=put(world.owners, partition, put(owners, at, owner))), at

    _drops_fenced = True

    def _fenced(self, owners: tuple[TaskOwner, ...], at: int) -> tuple[TaskOwner, ...]:
        """The owners that can still do something: a fenced transaction fails."""
        return (owners[at],)

    def _restored(self, world: World, partition: int) -> TaskMemory:
        memory = world.tasks[partition]
        if self.protocol.durable_parking:
            return memory
        return self.without_parked(memory)

    def without_parked(self, memory: TaskMemory) -> TaskMemory:
        """The memory of a task that has kept neither parked records nor early hand-overs."""
        entries = tuple(
            self.tables.entries.number(
                replace(self.tables.entries.values[entry], first_parked=0, next_parked=0, early=())
            )
            for entry in memory.entries
        )
        return memory._replace(entries=entries, queues=((),) * len(memory.queues))

    def _run(self, world: World, partition: int, at: int, *, expected: bool) -> Iterator[Outcome]:
        owner = world.owners[partition][at]
        memory, log = owner.memory, world.logs[partition]
        if owner.read < len(log) and not is_paused(self.tables, memory):
            letter = log[owner.read]
            after = owner._replace(read=owner.read + 1)
            key, _ = self.tables.letters.values[letter]
            action: Action = ("task", partition, "reads", letter)
            if key is None:
                after = after._replace(memory=self.steps.fence(memory, letter))
                yield action, self._stepped(world, partition, at, after, 0, None), expected
            else:
                key, result = self.steps.read(partition, memory, letter)
                after = after._replace(memory=with_result(memory, key, result))
                after = self._held(owner, after, key)
                yield action, self._stepped(world, partition, at, after, key, result), expected
        if owner.taken < len(world.handovers[partition]):
            handover = world.handovers[partition][owner.taken]
            key, result = self.steps.take(memory, handover)
            after = owner._replace(taken=owner.taken + 1, memory=with_result(memory, key, result))
            after = self._held(owner, after, key)
            action = ("task", partition, "takes", handover)
            yield action, self._stepped(world, partition, at, after, key, result), expected
        for key, queue in enumerate(memory.queues):
            if queue and self.steps.can_replay(memory.entries[key]):
                result = self.steps.replay(partition, memory.entries[key], queue[0])
                after = owner._replace(memory=with_result(memory, key, result))
                after = self._held(owner, after, key)
                action = ("task", partition, "replays", queue[0])
                yield action, self._stepped(world, partition, at, after, key, result), expected

    def _held(self, before: TaskOwner, after: TaskOwner, key: int) -> TaskOwner:  # noqa: ARG002
        """The owner with what it must not commit past; transactions need none of it."""
        return after

    @abstractmethod
    def _stepped(
        self,
        world: World,
        partition: int,
        at: int,
        after: TaskOwner,
        key: int,
        result: EntryResult | None,
    ) -> World | BadState:
        """The world after a step of a task; a fault if its effects are wrong."""

    def _faults(self, world: World, partition: int) -> Iterator[Outcome]:
        owners, budget = world.owners[partition], world.budget
        new = self.tables.owner(self._empty(), step=0)
        if budget.task_crashes:
            left = budget._replace(task_crashes=budget.task_crashes - 1)
            changed = put(world.owners, partition, (*owners[:-1], new))
            yield ("task", partition, "crashes"), world._replace(owners=changed, budget=left), False
        if budget.task_freezes:
            left = budget._replace(task_freezes=budget.task_freezes - 1)
            changed = put(world.owners, partition, (*owners, new))
            yield ("task", partition, "freezes"), world._replace(owners=changed, budget=left), False

    def _empty(self) -> TaskMemory:
        keys = self.tables.scenario.keys
        return TaskMemory((0,) * keys, ((),) * keys)


class BatchedTasks(_OwnedTasks):
    """Tasks whose transactions hold any number of steps."""

    def _stepped(
        self,
        world: World,
        partition: int,
        at: int,
        after: TaskOwner,
        key: int,  # noqa: ARG002
        result: EntryResult | None,
    ) -> World | BadState:
        if result is not None:
            visible = tuple(effect for effect in result.effects if effect[0] <= 2)
            after = after._replace(pending=(*after.pending, *visible))
        return _with_owner(world, partition, at, after)

    def _run(self, world: World, partition: int, at: int, *, expected: bool) -> Iterator[Outcome]:
        yield from super()._run(world, partition, at, expected=expected)
        owner = world.owners[partition][at]
        read, taken, _ = world.positions[partition]
        if (owner.read, owner.taken) == (read, taken) and owner.memory == world.tasks[partition]:
            return
        done = world._replace(
            tasks=put(world.tasks, partition, owner.memory),
            positions=put(world.positions, partition, (owner.read, owner.taken, 0)),
        )
        done = _with_owner(done, partition, at, owner._replace(pending=()))
        reached: World | BadState
        try:
            reached = published(done, partition, owner.pending)
        except BadState as bad:
            reached = bad
        who = "commits" if at == len(world.owners[partition]) - 1 else "commits_late"
        yield ("task", partition, who), reached, expected


class SimpleTasks(_OwnedTasks):
    """Tasks without transactions, whose parked records are held back."""

    _drops_fenced = False

    def _fenced(self, owners: tuple[TaskOwner, ...], at: int) -> tuple[TaskOwner, ...]:
        """The store refuses writes of fenced owners; they can still send."""
        return tuple(
            owner if i == at else owner._replace(fenced=True) for i, owner in enumerate(owners)
        )

    def _restored(self, world: World, partition: int) -> TaskMemory:
        if not self.protocol.fences_of_offset:
            return world.tasks[partition]
        _, _, fences = world.positions[partition]
        return world.tasks[partition]._replace(fences=fences)

    def _run(self, world: World, partition: int, at: int, *, expected: bool) -> Iterator[Outcome]:
        owner = world.owners[partition][at]
        if owner.unsaved:
            saved = self._saved(world, partition, at, owner._replace(unsaved=False))
            yield ("task", partition, "saves"), saved, expected
            return
        yield from super()._run(world, partition, at, expected=expected)
        if world.budget.task_crashes or world.budget.task_freezes:
            yield from self._offset_commit(world, partition, owner)

    def _stepped(
        self,
        world: World,
        partition: int,
        at: int,
        after: TaskOwner,
        key: int,
        result: EntryResult | None,
    ) -> World | BadState:
        effects = () if result is None else result.effects
        for effect in effects:
            if effect[0] == APPLIED:
                _, _, number, _, size = effect
                if number != size + 1:
                    kind = ProtocolFault.REPEAT if number <= size else ProtocolFault.GAP
                    return BadState(
                        kind.name,
                        f"Record {number} is applied on partition {partition} to a state of {size} "
                        "records.",
                    )
                facts = world.facts[key]
                known = KeyFacts(max(facts.applied, number), facts.partition, facts.set_id)
                world = world._replace(facts=put(world.facts, key, known))
            elif effect[0] == SENT:
                _, _, to, number, _ = effect
                sent = (*world.handovers[to], number)
                world = world._replace(handovers=put(world.handovers, to, sent))
                after = after._replace(unsaved=True)
        if after.unsaved:
            return _with_owner(world, partition, at, after)
        return self._saved(world, partition, at, after)

    def _saved(self, world: World, partition: int, at: int, owner: TaskOwner) -> World:
        """The world after the entry is in the store; a fenced owner stops there."""
        if owner.fenced:
            owners = world.owners[partition]
            left = (*owners[:at], *owners[at + 1 :])
            return world._replace(owners=put(world.owners, partition, left))
        stored = self.without_parked(owner.memory)
        world = world._replace(tasks=put(world.tasks, partition, stored))
        return _with_owner(world, partition, at, owner)

    def _held(self, before: TaskOwner, after: TaskOwner, key: int) -> TaskOwner:
        """Remembers the offset of START until its key neither waits nor has parked records."""
        entry = self.tables.entries.values[after.memory.entries[key]]
        busy = entry.status is EntryStatus.WAIT or bool(after.memory.queues[key])
        hold = after.holds[key]
        if not busy:
            hold = None
        elif hold is None:
            hold = (before.read, before.memory.fences)
        early = after.early[key]
        if not entry.early:
            early = None
        elif early is None:
            early = before.taken
        return after._replace(holds=put(after.holds, key, hold), early=put(after.early, key, early))

    def _offset_commit(self, world: World, partition: int, owner: TaskOwner) -> Iterator[Outcome]:
        if owner.fenced:
            return
        held = [hold for hold in owner.holds if hold is not None]
        read, fences = min(held, default=(owner.read, owner.memory.fences))
        if not self.protocol.held_at_start:
            read = owner.read - sum(map(len, owner.memory.queues))
            fences = owner.memory.fences
        taken = min([owner.taken, *(at for at in owner.early if at is not None)])
        before = world.positions[partition]
        if (read, taken) != before[:2] and read >= before[0]:
            position = (read, max(taken, before[1]), fences)
            changed = put(world.positions, partition, position)
            yield (
                ("task", partition, "commits_offset", read),
                world._replace(positions=changed),
                False,
            )


def _with_owner(world: World, partition: int, at: int, owner: TaskOwner) -> World:
    owners = put(world.owners[partition], at, owner)
    return world._replace(owners=put(world.owners, partition, owners))
