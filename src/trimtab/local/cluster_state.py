"""The saved state of a local cluster (`cluster.json`), as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from trimtab.local.processes import ProcessId, process_state

CONTROLLER = 100
"""Node id of the controller; brokers have 1 … N."""


class BrokerProcessState(StrEnum):
    """State of a broker's process; `absent` was stopped cleanly, or never started."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The options of a cluster; they do not change during its life."""

    brokers: int
    racks: int
    properties: tuple[tuple[str, str], ...] = ()
    sasl: str | None = None
    """A hash of the SASL user, to notice another user or password."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """A controller or broker: its ports and its last process."""

    id: int
    rack: str | None
    port: int
    sasl_port: int | None
    process: ProcessId | None = None

    @property
    def name(self) -> str:
        """The name of its folder and log file."""
        return "controller" if self.id == CONTROLLER else f"broker-{self.id}"

    @property
    def state(self) -> BrokerProcessState:
        """The current state of its process."""
        if self.process is None:
            return BrokerProcessState.ABSENT
        return BrokerProcessState(process_state(self.process).value)

    @property
    def is_alive(self) -> bool:
        """Whether it has a process, running or paused."""
        return self.state in (BrokerProcessState.RUNNING, BrokerProcessState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterState:
    """The content of `cluster.json`."""

    cluster_id: str
    shape: Shape
    nodes: tuple[LocalNode, ...]
    """The controller first."""

    @property
    def controller(self) -> LocalNode:
        """The controller."""
        return self.nodes[0]

    @property
    def brokers(self) -> tuple[LocalNode, ...]:
        """The brokers, by id."""
        return self.nodes[1:]

    def node(self, node_id: int) -> LocalNode:
        """The node with this id."""
        return next(node for node in self.nodes if node.id == node_id)

    def with_process(self, node_id: int, process: ProcessId | None) -> LocalClusterState:
        """The same state with the process of one node replaced."""
        nodes = (replace(n, process=process) if n.id == node_id else n for n in self.nodes)
        return replace(self, nodes=tuple(nodes))


def state_to_json(state: LocalClusterState) -> dict[str, Any]:
    """Converts the state to the content of `cluster.json`."""
    return {
        "v": 1,
        "cluster_id": state.cluster_id,
        "shape": {**asdict(state.shape), "properties": dict(state.shape.properties)},
        "nodes": [asdict(node) for node in state.nodes],
    }


def state_from_json(value: Mapping[str, Any]) -> LocalClusterState:
    """Parses `cluster.json`; raises ValueError, KeyError or TypeError if it is invalid."""
    if value["v"] != 1:
        raise ValueError(f"its version is {value['v']}, expected 1")
    shape = value["shape"]
    nodes = tuple(
        LocalNode(**{**node, "process": ProcessId(**node["process"]) if node["process"] else None})
        for node in value["nodes"]
    )
    properties = tuple(sorted(shape["properties"].items()))
    return LocalClusterState(
        cluster_id=value["cluster_id"],
        shape=Shape(**{**shape, "properties": properties}),
        nodes=nodes,
    )
