"""What a local cluster remembers of itself between two commands: `cluster.json`, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from trimtab.local.processes import ProcessId, process_state

CONTROLLER = 100
"""Node id of the controller; brokers have 1 … N."""


class BrokerProcessState(StrEnum):
    """What a broker is doing; `absent` was stopped in order, or never started."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What was asked for; a cluster keeps its shape for life."""

    brokers: int
    racks: int
    properties: tuple[tuple[str, str], ...] = ()
    sasl: str | None = None
    """A fingerprint of the SASL user, so that another one is noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalNode:
    """A controller or broker: where it listens, and the process that it last was."""

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
        """What its process is doing now."""
        if self.process is None:
            return BrokerProcessState.ABSENT
        return BrokerProcessState(process_state(self.process).value)

    @property
    def is_alive(self) -> bool:
        """Is there a process, running or paused?"""
        return self.state in (BrokerProcessState.RUNNING, BrokerProcessState.PAUSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalClusterState:
    """What `cluster.json` says."""

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
        """The node of this id."""
        return next(node for node in self.nodes if node.id == node_id)

    def with_process(self, node_id: int, process: ProcessId | None) -> LocalClusterState:
        """The same state, one node's process replaced."""
        nodes = (replace(n, process=process) if n.id == node_id else n for n in self.nodes)
        return replace(self, nodes=tuple(nodes))


def state_to_json(state: LocalClusterState) -> dict[str, Any]:
    """Returns the state as `cluster.json` holds it."""
    return {
        "v": 1,
        "cluster_id": state.cluster_id,
        "shape": {**asdict(state.shape), "properties": dict(state.shape.properties)},
        "nodes": [asdict(node) for node in state.nodes],
    }


def state_from_json(value: Mapping[str, Any]) -> LocalClusterState:
    """Returns the state that `cluster.json` holds; ValueError, KeyError or TypeError if none."""
    if value["v"] != 1:
        raise ValueError(f"its version is {value['v']}, this Trimtab reads 1")
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
