"""What tasks do in a state of the model, one transaction per step (`TaskKind.ATOMIC`).

The steps themselves are shared with the other kinds of tasks (`owner_actions`): each input is
given to the protocol's functions once, the result is kept as numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    AppliedRecord,
    AwaitedEnd,
    EntryEffect,
    EntryStatus,
    KeyEntry,
    ParkedRecord,
    SentHandover,
    UnparkedRecord,
)
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    FenceMarker,
    PlainRecord,
    StartMarker,
)
from trimtab.apply.keys.migration import MigrationStage, StageRule, StageWait
from trimtab.apply.keys.partition_fences import read_marker
from trimtab.apply.keys.task import ABSENT, ParkingLimits, adopt_empty, must_pause
from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.scenario import History, ProtocolFault
from trimtab.simulate.key_protocol.world import (
    KeyFacts,
    ModelTables,
    Numbers,
    Outcome,
    TaskMemory,
    World,
    put,
)

APPLIED, SENT, ADOPTED, PARKED, UNPARKED = range(5)


class EntryResult(NamedTuple):
    """The number of the entry after a step, and its effects as numbers."""

    entry: int
    effects: tuple[tuple[int, ...], ...]


class TaskSteps:
    """The protocol's steps of tasks on numbered values."""

    def __init__(self, tables: ModelTables) -> None:
        self.tables = tables
        self.protocol = tables.protocol
        self._records: dict[tuple[int, int, int, int, bool], EntryResult] = {}
        self._handovers: dict[tuple[int, int], EntryResult] = {}
        self._fences: dict[tuple[int, int], int] = {}

    @cached_property
    def _apply(self) -> object:
        stateless = self.tables.scenario.stateless

        def listed(value: History | None, record: DataRecord | PlainRecord) -> History | None:
            """The application of the model: the numbers of all records so far."""
            number = record.payload
            assert isinstance(number, int)  # noqa: S101
            return None if stateless else (*(value or ()), number)

        return listed

    def read(self, partition: int, memory: TaskMemory, letter: int) -> tuple[int, EntryResult]:
        """The key of a record and the step for it, when it is read from the partition."""
        key, _ = self.tables.letters.values[letter]
        assert key is not None  # noqa: S101
        return key, self._step(partition, memory.entries[key], memory.fences, letter, parked=False)

    def replay(self, partition: int, entry: int, letter: int) -> EntryResult:
        """The step for the first parked record."""
        return self._step(partition, entry, 0, letter, parked=True)

    def can_replay(self, entry: int) -> bool:
        """Whether the first parked record of a key can be processed."""
        return self.protocol.can_replay(self.tables.entries.values[entry])

    def _step(
        self, partition: int, entry: int, fences: int, letter: int, *, parked: bool
    ) -> EntryResult:
        known = (partition, entry, fences, letter, parked)
        found = self._records.get(known)
        if found is None:
            found = self._records[known] = self._first_step(*known)
        return found

    def _first_step(
        self, partition: int, entry: int, fences: int, letter: int, parked: bool
    ) -> EntryResult:
        tables = self.tables
        key, record = tables.letters.values[letter]
        before = tables.entries.values[entry]
        refused = None if parked else self.protocol.refusal(tables.fences.values[fences], record)
        if refused is not None:
            return EntryResult(entry, ())
        step = self.protocol.replay_parked if parked else self.protocol.read_record
        after, effects = step(before, record, self._apply, partition)
        return self._numbered(key or 0, letter, before, after, effects)

    def take(self, memory: TaskMemory, handover: int) -> tuple[int, EntryResult]:
        """The key of a hand-over and the step for it."""
        key, value = self.tables.handovers.values[handover]
        known = (memory.entries[key], handover)
        found = self._handovers.get(known)
        if found is None:
            before = self.tables.entries.values[memory.entries[key]]
            after, effects = self.protocol.take_handover(before, value)
            found = self._handovers[known] = self._numbered(key, 0, before, after, effects)
        return key, found

    def _numbered(
        self,
        key: int,
        letter: int,
        before: KeyEntry[History],
        after: KeyEntry[History],
        effects: tuple[EntryEffect[History], ...],
    ) -> EntryResult:
        numbers: list[tuple[int, ...]] = []
        for effect in effects:
            match effect:
                case AppliedRecord(record=record, set_id=set_id):
                    assert isinstance(record.payload, int)  # noqa: S101
                    size = -1 if self.tables.scenario.stateless else len(before.value or ())
                    numbers.append((APPLIED, key, record.payload, set_id, size))
                case SentHandover(to=to, handover=handover):
                    number = self.tables.handovers.number((key, handover))
                    numbers.append((SENT, key, to, number, handover.set_id))
                case AdoptedHandover(set_id=set_id, held=held):
                    removed = self.protocol.early_tombstones or not held
                    numbers.append((ADOPTED, key, set_id, int(removed)))
                case ParkedRecord():
                    numbers.append((PARKED, key, letter))
                case UnparkedRecord():
                    numbers.append((UNPARKED, key))
                case _:
                    pass  # without a trace in the model
        return EntryResult(self.tables.entries.number(after), tuple(numbers))

    def adopt_empty(self, key: int, entry: int) -> EntryResult:
        """The step of a waiting key whose END counts as unreadable."""
        before = self.tables.entries.values[entry]
        after, effects = adopt_empty(before)
        return self._numbered(key, 0, before, after, effects)

    def fence(self, memory: TaskMemory, letter: int) -> TaskMemory:
        """The memory of a task after FENCE."""
        known = (memory.fences, letter)
        number = self._fences.get(known)
        _, marker = self.tables.letters.values[letter]
        if number is None:
            fences = read_marker(self.tables.fences.values[memory.fences], marker)
            number = self._fences[known] = self.tables.fences.number(fences)
        entries = memory.entries
        if self.tables.scenario.stateless and isinstance(marker, FenceMarker):
            entries = tuple(self._after_fence(entry, marker) for entry in entries)
        return memory._replace(fences=number, entries=entries)

    def _after_fence(self, entry: int, marker: FenceMarker) -> int:
        value = self.tables.entries.values[entry]
        if self.protocol.can_forget(value, marker.shard, marker.committed):
            return self.tables.entries.number(ABSENT)
        return entry


def with_result(memory: TaskMemory, key: int, result: EntryResult) -> TaskMemory:
    """The memory of a task after a step, with its parked queue."""
    queues = memory.queues
    for effect in result.effects:
        if effect[0] == PARKED:
            queues = put(queues, key, (*queues[key], effect[2]))
        elif effect[0] == UNPARKED:
            queues = put(queues, key, queues[key][1:])
    return TaskMemory(put(memory.entries, key, result.entry), queues, memory.fences)


def published(world: World, partition: int, effects: tuple[tuple[int, ...], ...]) -> World:
    """The world after the effects of a committed step; raises `BadState` if they are wrong."""
    handovers, live, facts = world.handovers, world.live, world.facts
    for effect in effects:
        if effect[0] == APPLIED:
            facts = put(facts, effect[1], _applied(facts[effect[1]], partition, effect))
        elif effect[0] == SENT:
            _, key, to, number, set_id = effect
            handovers = put(handovers, to, (*handovers[to], number))
            live = tuple(sorted({*live, (to, key, set_id)}))
        elif effect[0] == ADOPTED:
            _, key, set_id, removed = effect
            if removed:
                live = tuple(one for one in live if one != (partition, key, set_id))
            if set_id <= facts[key].set_id:
                raise BadState(
                    ProtocolFault.ADOPTED_TWICE.name,
                    f"Partition {partition} adopts set {set_id}; set {facts[key].set_id} was "
                    "adopted before.",
                )
            facts = put(facts, key, KeyFacts(facts[key].applied, partition, set_id))
    return world._replace(handovers=handovers, live=live, facts=facts)


def _applied(facts: KeyFacts, partition: int, effect: tuple[int, ...]) -> KeyFacts:
    _, _, number, set_id, size = effect
    if number <= facts.applied:
        raise BadState(
            ProtocolFault.REPEAT.name,
            f"Record {number} takes effect again on partition {partition}.",
        )
    if number > facts.applied + 1:
        raise BadState(
            ProtocolFault.GAP.name,
            f"Record {number} is applied on partition {partition}, "
            f"record {facts.applied + 1} was not.",
        )
    if size >= 0 and size != facts.applied:
        raise BadState(
            ProtocolFault.STALE_STATE.name,
            f"Record {number} is applied on partition {partition} to a state of {size} records; "
            f"{facts.applied} took effect.",
        )
    if (partition, set_id) != (facts.partition, facts.set_id):
        raise BadState(
            ProtocolFault.OTHER_OWNER.name,
            f"Record {number} is applied on partition {partition} in set {set_id}; the key is on "
            f"partition {facts.partition} in set {facts.set_id}.",
        )
    return facts._replace(applied=number)


def _opens(marker: EndMarker | StartMarker) -> int:
    """The set that a migration opens."""
    return marker.next_set if isinstance(marker, EndMarker) else marker.set_id


def _knows_end(stages: tuple[StageRule, ...]) -> bool:
    """Whether START is sent when the offset of END is known."""
    names = [rule.stage for rule in stages]
    end = names.index(MigrationStage.END)
    return end < names.index(MigrationStage.START) and stages[end].wait is StageWait.ACKS


class AtomicTasks:
    """The actions of tasks whose every step is a transaction."""

    def __init__(self, tables: ModelTables) -> None:
        self.tables = tables
        self.protocol = tables.protocol
        self.steps = TaskSteps(tables)
        self._end_is_known = all(map(_knows_end, self.protocol.stages.values()))

    def of(self, world: World) -> Iterator[Outcome]:
        """All actions of tasks."""
        for partition in range(len(world.tasks)):
            yield from self._of_partition(world, partition)

    def _of_partition(self, world: World, partition: int) -> Iterator[Outcome]:
        memory, log = world.tasks[partition], world.logs[partition]
        if log and not is_paused(self.tables, memory):
            rest = world._replace(logs=put(world.logs, partition, log[1:]))
            action: Action = ("task", partition, "reads", log[0])
            key, _ = self.tables.letters.values[log[0]]
            if key is None:
                fenced = self.steps.fence(memory, log[0])
                yield action, rest._replace(tasks=put(rest.tasks, partition, fenced)), True
            else:
                key, result = self.steps.read(partition, memory, log[0])
                yield action, self._after(rest, partition, key, result), True
        if world.handovers[partition]:
            first, *others = world.handovers[partition]
            key, result = self.steps.take(memory, first)
            rest = world._replace(handovers=put(world.handovers, partition, tuple(others)))
            yield (
                ("task", partition, "takes", first),
                self._after(rest, partition, key, result),
                True,
            )
        for key, queue in enumerate(memory.queues):
            if queue and self.steps.can_replay(memory.entries[key]):
                result = self.steps.replay(partition, memory.entries[key], queue[0])
                action = ("task", partition, "replays", queue[0])
                yield action, self._after(world, partition, key, result), True

        for key, number in enumerate(memory.entries):
            awaited = self.tables.entries.values[number].awaited
            if awaited is not None and self._gives_up(world, partition, key, awaited.partition):
                result = self.steps.adopt_empty(key, number)
                action = ("task", partition, "adopts_empty", key)
                yield action, self._after(world, partition, key, result), False

    def _gives_up(self, world: World, partition: int, key: int, source: int) -> bool:
        """Whether the END of a waiting key counts as unreadable; no retention removes it here."""
        letters, handovers = self.tables.letters.values, self.tables.handovers.values
        set_id = self.tables.entries.values[world.tasks[partition].entries[key]].set_id

        def has(marker: type[EndMarker | StartMarker], numbers: Numbers) -> bool:
            found = (record for of, record in map(letters.__getitem__, numbers) if of == key)
            return any(isinstance(record, marker) and _opens(record) == set_id for record in found)

        route = self.tables.routes.values[world.assign.routes[key]]
        prepared = route is not None and route.source is not None and route.set_id == set_id
        unread = (handovers[number] for number in world.handovers[partition])
        return self.protocol.end_is_unreadable(
            AwaitedEnd(source, 0 if self._end_is_known else -1),
            markers_final=not prepared and not has(StartMarker, world.logs[partition]),
            log_start=0,
            group_committed=0 if has(EndMarker, world.logs[source]) else 1,
            end_parked=has(EndMarker, world.tasks[source].queues[key]),
            handovers_read=not any(
                of == key and value is not None and value.set_id == set_id for of, value in unread
            ),
        )

    def _after(
        self, world: World, partition: int, key: int, result: EntryResult
    ) -> World | BadState:
        memory = with_result(world.tasks[partition], key, result)
        world = world._replace(tasks=put(world.tasks, partition, memory))
        try:
            return published(world, partition, result.effects) if result.effects else world
        except BadState as bad:
            return bad


def is_paused(tables: ModelTables, memory: TaskMemory) -> bool:
    """Whether a task must not read data because too much is parked."""
    limit = tables.scenario.parked_limit
    if limit is None:
        return False
    limits = ParkingLimits(records=limit, size_bytes=1)
    return must_pause(limits, records=sum(map(len, memory.queues)), size_bytes=0)


def check_memory(
    tables: ModelTables, world: World, tasks: tuple[TaskMemory, ...]
) -> BadState | None:
    """What is wrong with the tasks at rest."""
    scenario = tables.scenario
    for key, facts in enumerate(world.facts):
        entries = [tables.entries.values[memory.entries[key]] for memory in tasks]
        for partition, entry in enumerate(entries):
            if entry.status is EntryStatus.WAIT:
                return BadState(
                    ProtocolFault.STUCK.name,
                    f"Key {key} waits on partition {partition} for the state of set "
                    f"{entry.set_id}, which does not come.",
                )
            if tasks[partition].queues[key]:
                return BadState(
                    ProtocolFault.STUCK.name,
                    f"Records of key {key} stay parked on partition {partition}.",
                )
        total = len(range(key, scenario.records, scenario.keys))
        if facts.applied < total:
            return BadState(
                ProtocolFault.LOSS.name,
                f"Record {facts.applied + 1} of key {key} was never applied.",
            )
        if scenario.stateless or not total:
            continue
        holders = [p for p, entry in enumerate(entries) if entry.value]
        whole = [p for p in holders if entries[p].value == tuple(range(1, total + 1))]
        if len(holders) != 1 or whole != holders:
            return BadState(
                ProtocolFault.OWNERS.name,
                f"The state of key {key} is on partitions {holders}, complete on {whole}.",
            )
    return None
