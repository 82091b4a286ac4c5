"""The explicit-state model of the keyed data path: a world without brokers that runs the protocol.

Promise  Every interleaving of the actions of gateways, brokers and tasks within a scenario. The
         state of a key is the list of records applied, so each loss, repeat and inversion shows.
Cost     Some ten thousand states a second.
"""

from __future__ import annotations

from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.gateway_actions import GatewayActions
from trimtab.simulate.key_protocol.owner_actions import BatchedTasks, SimpleTasks
from trimtab.simulate.key_protocol.scenario import (
    PROTOCOL,
    ModelledProtocol,
    ProtocolFault,
    ProtocolScenario,
    TaskKind,
)
from trimtab.simulate.key_protocol.task_actions import AtomicTasks, check_memory
from trimtab.simulate.key_protocol.world import ModelTables, World


class KeyProtocolModel:
    """The states and actions of a scenario."""

    def __init__(self, scenario: ProtocolScenario, protocol: ModelledProtocol = PROTOCOL) -> None:
        self.tables = ModelTables(scenario, protocol)
        self.gateways = GatewayActions(self.tables)
        self.tasks = _tasks(self.tables)

    def initial(self) -> World:
        """The first state."""
        return self.tables.initial()

    def successors(self, state: World) -> list[tuple[Action, World | BadState, bool]]:
        """All actions that are possible, and what they lead to."""
        return [*self.gateways.of(state), *self.tasks.of(state)]

    def check_end(self, state: World) -> BadState | None:
        """What is wrong with a state in which nothing is expected any more."""
        if state.assign.refused:
            return None
        tasks = tuple(owners[-1].memory for owners in state.owners) or state.tasks
        bad = check_memory(self.tables, state, tasks)
        if bad is None and state.live and self.tables.scenario.tasks is not TaskKind.SIMPLE:
            partition, key, set_id = state.live[0]
            bad = BadState(
                ProtocolFault.HANDOVER_LEFT.name,
                f"The hand-over of key {key}, set {set_id}, to partition {partition} was not "
                "removed.",
            )
        return bad


def _tasks(tables: ModelTables) -> AtomicTasks | BatchedTasks | SimpleTasks:
    match tables.scenario.tasks:
        case TaskKind.ATOMIC:
            return AtomicTasks(tables)
        case TaskKind.BATCHED:
            return BatchedTasks(tables)
        case TaskKind.SIMPLE:
            return SimpleTasks(tables)
