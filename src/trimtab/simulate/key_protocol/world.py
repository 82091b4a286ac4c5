"""The state of the modelled world, and the tables that turn its values into small numbers.

States are tuples of integers: they are hashed once per step. Records, entries, hand-overs, routes
and migrations are numbered when they first appear, and the protocol's functions are called once
for each distinct input.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from trimtab.apply.keys.key_entry import KeyEntry, KeyHandover
from trimtab.apply.keys.key_route import GatewayMode, KeyRoute
from trimtab.apply.keys.migration import KeyMigration, StageWait
from trimtab.apply.keys.partition_fences import PartitionFences
from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.scenario import (
    PROTOCOL,
    History,
    Letter,
    ModelledProtocol,
    ProtocolScenario,
    TaskKind,
)

T = TypeVar("T", bound=Hashable)
Numbers = tuple[int, ...]


class GatewayInstance(NamedTuple):
    """A process of the gateway shard; the newest one is expected to run.

    `step` counts the steps of the start that are done. `flights` are sent and not yet stored, by
    partition. An instance that is not alive has only these. `transaction` are the pairs
    (partition, record) of an open transaction.
    """

    number: int
    mode: int
    step: int = 0
    alive: bool = True
    fenced: bool = False
    gen: int = 0
    next_set: int = 1
    position: int = 0
    moves: int = 0
    routes: Numbers = ()
    migrations: Numbers = ()
    flights: tuple[Numbers, ...] = ()
    transaction: tuple[tuple[int, int], ...] = ()


class DurableRoutes(NamedTuple):
    """What `.assign`, the committed offsets and the input topic hold.

    `carried_out` are the moves of `.moves` that were begun; `recreated_at` is the record with which
    a recreated input begins, 0 if it is the first one.
    """

    routes: Numbers
    next_set: int = 1
    gen: int = 0
    committed: int = 0
    moves: int = 0
    carried_out: Numbers = ()
    recreated_at: int = 0
    refused: bool = False


class TaskMemory(NamedTuple):
    """What a task knows: an entry and a parked queue per key, and the fences."""

    entries: Numbers
    queues: tuple[Numbers, ...]
    fences: int = 0


class TaskOwner(NamedTuple):
    """A process that has a partition; only with tasks that are not ATOMIC.

    `pending` are effects of the open transaction. `holds` are, by key, the offset of the START that
    a simple task must not commit past, with the fences at that moment; `early` likewise for
    hand-overs.
    """

    memory: TaskMemory
    read: int = 0
    taken: int = 0
    step: int = 0
    fenced: bool = False
    pending: tuple[tuple[int, ...], ...] = ()
    holds: tuple[tuple[int, int] | None, ...] = ()
    early: tuple[int | None, ...] = ()
    unsaved: bool = False


class KeyFacts(NamedTuple):
    """The truth about a key that no process knows: records applied, and who owns the state."""

    applied: int
    partition: int
    set_id: int = 0


class FaultBudget(NamedTuple):
    """What may still happen."""

    migrations: int
    gateway_crashes: int
    gateway_freezes: int
    task_crashes: int
    task_freezes: int
    recreations: int


class World(NamedTuple):
    """Everything, at one moment.

    With ATOMIC tasks a log begins at the first record not read; otherwise logs are whole, and
    `positions` are the committed offsets of data and hand-overs with the fences there.
    """

    gateways: tuple[GatewayInstance, ...]
    assign: DurableRoutes
    logs: tuple[Numbers, ...]
    handovers: tuple[Numbers, ...]
    live: tuple[tuple[int, int, int], ...]
    tasks: tuple[TaskMemory, ...]
    facts: tuple[KeyFacts, ...]
    budget: FaultBudget
    owners: tuple[tuple[TaskOwner, ...], ...] = ()
    positions: tuple[tuple[int, int, int], ...] = ()


Outcome = tuple[Action, World | BadState, bool]
"""An action, what it leads to, and whether it is expected."""


class NumberTable(Generic[T]):
    """Numbers for values, in the order of their first appearance."""

    def __init__(self, first: T) -> None:
        self.values = [first]
        self._numbers: dict[T, int] = {first: 0}

    def number(self, value: T) -> int:
        """The number of a value."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found


MODES = tuple(GatewayMode)
EXACTLY_ONCE, LOW_LATENCY = 0, 1


class ModelTables:
    """The scenario, the protocol, and the numbered values."""

    def __init__(self, scenario: ProtocolScenario, protocol: ModelledProtocol = PROTOCOL) -> None:
        self.scenario = scenario
        self.protocol = protocol
        self.letters: NumberTable[Letter] = NumberTable((None, None))
        self.entries: NumberTable[KeyEntry[History]] = NumberTable(KeyEntry())
        self.handovers: NumberTable[tuple[int, KeyHandover[History] | None]] = NumberTable(
            (0, None)
        )
        self.fences: NumberTable[PartitionFences] = NumberTable(PartitionFences())
        self.routes: NumberTable[KeyRoute | None] = NumberTable(None)
        self.migrations: NumberTable[tuple[KeyMigration, StageWait] | None] = NumberTable(None)

    def first_gateway(self) -> GatewayInstance:
        """The gateway that starts first."""
        return self.gateway(1, MODES.index(self.scenario.mode))

    def gateway(self, number: int, mode: int) -> GatewayInstance:
        """A gateway that has just started."""
        scenario = self.scenario
        return GatewayInstance(
            number=number,
            mode=mode,
            routes=(0,) * scenario.keys,
            migrations=(0,) * scenario.keys,
            flights=((),) * scenario.partitions,
        )

    def initial(self) -> World:
        """Nothing was sent, nothing has moved; the first gateway starts."""
        scenario = self.scenario
        keys, partitions = scenario.keys, scenario.partitions
        memory = TaskMemory((0,) * keys, ((),) * keys)
        budget = FaultBudget(
            migrations=scenario.migrations,
            gateway_crashes=scenario.gateway_crashes,
            gateway_freezes=scenario.gateway_freezes,
            task_crashes=scenario.task_crashes,
            task_freezes=scenario.task_freezes,
            recreations=scenario.recreations,
        )
        owners: tuple[tuple[TaskOwner, ...], ...] = ()
        positions: tuple[tuple[int, int, int], ...] = ()
        if scenario.tasks is not TaskKind.ATOMIC:
            owners = ((self.owner(memory),),) * partitions
            positions = ((0, 0, 0),) * partitions
        return World(
            gateways=(self.first_gateway(),),
            assign=DurableRoutes((0,) * keys),
            logs=((),) * partitions,
            handovers=((),) * partitions,
            live=(),
            tasks=(memory,) * partitions,
            facts=tuple(KeyFacts(0, scenario.home(key)) for key in range(keys)),
            budget=budget,
            owners=owners,
            positions=positions,
        )

    def owner(self, memory: TaskMemory, *, step: int | None = None) -> TaskOwner:
        """An owner of a partition; without a step it is ready."""
        keys = self.scenario.keys
        done = len(self.protocol.task_start) if step is None else step
        return TaskOwner(memory, step=done, holds=(None,) * keys, early=(None,) * keys)


def put(values: tuple[T, ...], at: int, value: T) -> tuple[T, ...]:
    """The tuple with one value replaced."""
    return (*values[:at], value, *values[at + 1 :])
