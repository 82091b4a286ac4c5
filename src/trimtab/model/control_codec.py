"""Value ⇄ versioned JSON for the topics of a consumer group: control, state, decisions, receipts.

The formats are in the contracts page of the documentation. Unknown fields of a record are ignored;
an unknown version or type is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from trimtab.model import wire
from trimtab.model.codec import VERSION, Json
from trimtab.model.control import (
    ControlMessage,
    Decision,
    GroupState,
    Hello,
    MemberRate,
    PlanOrder,
    Rate,
    ReadingStarted,
    ReadingStopped,
    Receipt,
    Start,
    StateQuery,
    StateReport,
    Stop,
    TopicRates,
)
from trimtab.model.json_reader import Node

_TYPES: Mapping[type[ControlMessage], str] = {
    Start: "start",
    Stop: "stop",
    StateQuery: "state_query",
    ReadingStarted: "started",
    ReadingStopped: "stopped",
    StateReport: "state",
    Hello: "hello",
    MemberRate: "rate",
    Rate: "rate",
    PlanOrder: "plan",
}
_CLASSES: Mapping[str, type[ControlMessage]] = {name: cls for cls, name in _TYPES.items()}


def control_to(message: ControlMessage, *, ts: int) -> Json:
    """A record of `trimtab.control.<group>`."""
    body = wire.write(message)
    if isinstance(message, ReadingStopped):
        for partition, entry in zip(message.partitions, body["partitions"], strict=True):
            entry["committed"] = message.committed.get(partition)
    return {"v": VERSION, "type": _TYPES[type(message)], "ts": ts, **body}


def control_from(node: Node) -> ControlMessage:
    """Reads a record of `trimtab.control.<group>`."""
    node.version()
    node.need("ts").integer()
    kind = node.need("type")
    cls = _CLASSES.get(kind.text())
    if cls is None:
        kind.fail(f"unknown type {kind.value}")
    if cls is Rate and node.get("member") is not None:
        cls = MemberRate
    message = wire.read(cls, node)
    return _with_offsets(message, node) if isinstance(message, ReadingStopped) else message


def _with_offsets(message: ReadingStopped, node: Node) -> ReadingStopped:
    """The message with the committed offset of each partition, which is beside its name."""
    offsets = (entry.get("committed") for entry in node.need("partitions").list())
    read = (None if offset is None else offset.integer(least=0) for offset in offsets)
    return replace(message, committed=dict(zip(message.partitions, read, strict=True)))


def group_state_to(state: GroupState, *, ts: int) -> Json:
    """The record of `trimtab.group.<group>` under the key `state`."""
    return {"v": VERSION, **wire.write(state), "ts": ts}


def group_state_from(node: Node) -> GroupState:
    """Reads the record of `trimtab.group.<group>`."""
    node.version()
    return wire.read(GroupState, node)


def decision_to(decision: Decision) -> Json:
    """A record of `trimtab.decisions`."""
    return {"v": VERSION, **wire.write(decision)}


def decision_from(node: Node) -> Decision:
    """Reads a record of `trimtab.decisions`."""
    node.version()
    return wire.read(Decision, node)


def receipt_to(receipt: Receipt) -> Json:
    """A record of `trimtab.receipts`."""
    return {"v": VERSION, **wire.write(receipt)}


def receipt_from(node: Node) -> Receipt:
    """Reads a record of `trimtab.receipts`."""
    node.version()
    return wire.read(Receipt, node)


def topic_rates_from(node: Node) -> TopicRates:
    """Reads a record of `trimtab.rates`; `RateParts` joins those that are split."""
    node.version()
    rates = wire.read(TopicRates, node)
    if rates.part >= rates.of:
        node.need("part").fail(f"is {rates.part}, but there are {rates.of} parts")
    return rates
