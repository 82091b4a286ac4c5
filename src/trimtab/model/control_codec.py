"""Value ⇄ versioned JSON for the topics of a consumer group: control, state, decisions, receipts.

The formats are in the contracts page of the documentation. Unknown fields of a record are ignored;
an unknown version or type is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import (
    VERSION,
    Json,
    by_partition,
    key_field,
    read_by_partition,
    read_key,
    tidy,
)
from trimtab.model.control import (
    Action,
    ControlMessage,
    Decision,
    GroupState,
    Hello,
    MemberRate,
    PartitionRate,
    Partitions,
    PlanOrder,
    Rate,
    Receipt,
    Start,
    Started,
    StateQuery,
    StateReport,
    Stop,
    Stopped,
    TopicRates,
)
from trimtab.model.json_reader import Node

_TYPES: Mapping[type, str] = {
    Start: "start",
    Stop: "stop",
    StateQuery: "state_query",
    Started: "started",
    Stopped: "stopped",
    StateReport: "state",
    Hello: "hello",
    Rate: "rate",
    MemberRate: "rate",
    PlanOrder: "plan",
}


def control_to(message: ControlMessage, *, ts: int) -> Json:
    """A record of `trimtab.control.<group>`."""
    body: Json = {f.name: getattr(message, f.name) for f in fields(message)}
    committed = body.pop("committed", None)
    if body.get("incarnation", "") is None:
        del body["incarnation"]
    if "partitions" in body:
        body["partitions"] = [
            {"topic": p.topic, "partition": p.partition}
            | ({} if committed is None else {"committed": committed.get(p)})
            for p in body["partitions"]
        ]
    if "hold_s" in body:
        body["hold_s"] = tidy(body["hold_s"])
    return {"v": VERSION, "type": _TYPES[type(message)], "ts": ts, **body}


def control_from(node: Node) -> ControlMessage:
    """Reads a record of `trimtab.control.<group>`."""
    node.version()
    node.need("ts").integer()
    kind = node.need("type")
    read = _READERS.get(kind.text())
    if read is None:
        kind.fail(f"unknown type {kind.value}")
    return read(node)


def _partitions(node: Node) -> Partitions:
    return tuple(_partition(entry) for entry in node.need("partitions").list())


def _partition(entry: Node) -> TopicPartition:
    return TopicPartition(entry.need("topic").text(), entry.need("partition").integer(least=0))


def _command(node: Node) -> dict[str, Any]:
    return {
        "epoch": node.need("epoch").integer(least=0),
        "seq": node.need("seq").integer(least=0),
        "partitions": _partitions(node),
    }


def _addressee(node: Node) -> str | None:
    name = node.get("incarnation")
    return None if name is None else name.text()


def _from(node: Node) -> dict[str, Any]:
    return {
        "consumer": node.need("consumer").integer(least=0),
        "incarnation": node.need("incarnation").text(),
    }


def _stopped(node: Node) -> Stopped:
    committed = {}
    for entry in node.need("partitions").list():
        offset = entry.get("committed")
        committed[_partition(entry)] = None if offset is None else offset.integer(least=0)
    return Stopped(**_from(node), **_command(node), committed=committed)


def _rate(node: Node) -> Rate | MemberRate:
    """A rate: of a consumer by its index, or of a member by its id."""
    most: dict[str, Any] = {
        "max_bytes_s": _number(node.get("max_bytes_s")),
        "max_records_s": _number(node.get("max_records_s")),
    }
    member = node.get("member")
    if member is None:
        return Rate(**_from(node), **most)
    incarnation = node.need("incarnation").text()
    return MemberRate(member=member.text(), incarnation=incarnation, **most)


def _number(node: Node | None) -> float | None:
    return None if node is None else node.number(least=0)


_READERS: Mapping[str, Callable[[Node], ControlMessage]] = {
    "start": lambda n: Start(**_command(n), incarnation=_addressee(n)),
    "stop": lambda n: Stop(**_command(n), incarnation=_addressee(n)),
    "state_query": lambda n: StateQuery(
        epoch=n.need("epoch").integer(least=0), query_id=n.need("query_id").text()
    ),
    "started": lambda n: Started(**_from(n), **_command(n)),
    "stopped": _stopped,
    "state": lambda n: StateReport(
        **_from(n), query_id=n.need("query_id").text(), partitions=_partitions(n)
    ),
    "hello": lambda n: Hello(**_from(n), partitions=_partitions(n)),
    "rate": _rate,
    "plan": lambda n: PlanOrder(
        plan=n.need("plan").text(),
        hold_s=n.need("hold_s").number(least=0),
        expires_ts=n.need("expires_ts").integer(least=0),
    ),
}


def group_state_to(state: GroupState, *, ts: int) -> Json:
    """The record of `trimtab.group.<group>` under the key `state`."""
    return {
        "v": VERSION,
        "epoch": state.epoch,
        "clean": state.clean,
        "assignment": by_partition(state.assignment),
        **({"members": dict(state.members)} if state.members else {}),
        "ts": ts,
    }


def group_state_from(node: Node) -> GroupState:
    """Reads the record of `trimtab.group.<group>`."""
    node.version()
    owners = read_by_partition(node.need("assignment"), lambda n: n.integer(least=0))
    members = node.get("members")
    numbers = {} if members is None else dict(members.items())
    return GroupState(
        epoch=node.need("epoch").integer(least=0),
        clean=node.need("clean").flag(),
        assignment=Assignment(owners),
        members={name: number.integer(least=0) for name, number in numbers.items()},
    )


def decision_to(decision: Decision) -> Json:
    """A record of `trimtab.decisions`."""
    return {
        "v": VERSION,
        "ts": decision.ts,
        "group": decision.group,
        "action": str(decision.action),
        "from": decision.before,
        "to": decision.after,
        "plan": decision.plan,
        "reason": decision.reason,
        "forecast": dict(decision.forecast),
    }


def decision_from(node: Node) -> Decision:
    """Reads a record of `trimtab.decisions`."""
    node.version()
    action, plan = node.need("action"), node.get("plan")
    if action.value not in list(Action):
        action.fail(f"should be one of {', '.join(Action)}, is {action.value}")
    return Decision(
        ts=node.need("ts").integer(),
        group=node.need("group").text(),
        action=Action(action.value),
        before=node.need("from").integer(least=0),
        after=node.need("to").integer(least=0),
        reason=node.need("reason").text(),
        plan=None if plan is None else plan.text(),
        forecast=node.need("forecast").plain(),
    )


def receipt_to(receipt: Receipt) -> Json:
    """A record of `trimtab.receipts`."""
    return {
        "v": VERSION,
        "run": receipt.run,
        "group": receipt.group,
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
        **({"key": None} if receipt.key is None else key_field(receipt.key)),
        "seq": receipt.seq,
        "set_id": receipt.set_id,
        "consumer": receipt.consumer,
        "incarnation": receipt.incarnation,
        "event_ts": receipt.event_ts,
        "started_ts": receipt.started_ts,
        "finished_ts": receipt.finished_ts,
        "chain": receipt.chain,
    }


def receipt_from(node: Node) -> Receipt:
    """Reads a record of `trimtab.receipts`."""
    node.version()
    seq, set_id, chain = node.get("seq"), node.get("set_id"), node.get("chain")
    keyless = node.get("key") is None and node.get("key_b64") is None
    return Receipt(
        run=node.need("run").text(),
        group=node.need("group").text(),
        topic=node.need("topic").text(),
        partition=node.need("partition").integer(least=0),
        offset=node.need("offset").integer(least=0),
        key=None if keyless else read_key(node),
        seq=None if seq is None else seq.integer(),
        set_id=None if set_id is None else set_id.integer(),
        chain=None if chain is None else chain.text(),
        **_from(node),
        event_ts=node.need("event_ts").integer(),
        started_ts=node.need("started_ts").integer(),
        finished_ts=node.need("finished_ts").integer(),
    )


def topic_rates_from(node: Node) -> TopicRates:
    """Reads a record of `trimtab.rates`."""
    node.version()
    partitions = node.need("partitions")
    return TopicRates(
        topic=node.need("topic").text(),
        ts=node.need("ts").integer(),
        partitions={partitions.index(name): _rate_of(entry) for name, entry in partitions.items()},
    )


def _rate_of(entry: Node) -> PartitionRate:
    end, lag = entry.get("end_offset"), entry.get("lag")
    lags = {} if lag is None else dict(lag.items())
    return PartitionRate(
        bytes_s=_number(entry.get("bytes_s")),
        records_s=_number(entry.get("records_s")),
        end_offset=None if end is None else end.integer(least=0),
        lag={g: None if n.value is None else n.integer(least=0) for g, n in lags.items()},
        complete=entry.need("complete").flag(),
        stale=entry.need("stale").flag(),
    )
