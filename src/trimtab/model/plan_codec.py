"""Plan ⇄ versioned JSON, for the plans of every layer, and the ids of plans and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, assert_never

from trimtab.errors import PlanDamaged
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.model.codec import (
    VERSION,
    Json,
    by_partition,
    key_field,
    read_by_partition,
    read_capacities,
    read_key,
    read_unit,
    short_hash,
    tidied,
    tidy,
)
from trimtab.model.json_reader import Node, parse_file
from trimtab.model.plan import (
    AnyPlan,
    BrokerCost,
    BrokerPlan,
    BrokerState,
    ConsumerMove,
    ConsumerPlan,
    ConsumerState,
    Cost,
    InverseMove,
    KeyCost,
    KeyInverse,
    KeyMove,
    KeyPlan,
    KeyReason,
    KeyState,
    Layer,
    MemberName,
    Reason,
    ReplicaInverse,
    ReplicaMove,
    ReplicaReason,
    Scope,
    Unplaced,
)

_E = TypeVar("_E", bound=StrEnum)

# ---------------------------------------------------------------- ids


def plan_id(plan: AnyPlan) -> str:
    """First 12 hex digits of SHA-256 over the plan's canonical form."""
    return str(plan_to(plan)["id"])


def consumers_snapshot_id(partitions: Iterable[TopicPartition], assignment: Assignment) -> str:
    """The id of a consumers' plan's input: the topics' partitions and the group's assignment."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers.setdefault(topic, []).append(partition)
    return short_hash({"partitions": numbers, "assignment": by_partition(assignment)})


# ---------------------------------------------------------------- writing


def plan_to(plan: AnyPlan) -> Json:
    """A plan file, with its id."""
    body: Json = {
        "v": VERSION,
        "kind": "plan",
        "layer": str(plan.layer),
        "planner": plan.planner,
        "params": tidied(plan.params),
        "seed": plan.seed,
        "made_ts": plan.made_ts,
        "snapshot": plan.snapshot,
        "scope": {"group": plan.scope.group, "topics": list(plan.scope.topics)},
        **_of_layer(plan),
        "unplaced": [
            {"topic": u.topic, "partition": u.partition, "why": u.why, "load": tidy(u.load)}
            for u in plan.unplaced
        ],
    }
    made = {"v": VERSION, "kind": "plan", "id": short_hash(body)} | body
    if isinstance(plan, ConsumerPlan) and plan.members:
        made["members"] = {str(c): asdict(plan.members[c]) for c in sorted(plan.members)}
    return made


def _of_layer(plan: AnyPlan) -> Json:
    """The fields that differ between layers, in the order of the format."""
    figures = {"before": tidied(asdict(plan.before)), "after": tidied(asdict(plan.after))}
    match plan:
        case ConsumerPlan():
            return {
                "moves": [_consumer_move_to(m) for m in plan.moves],
                "assignment": by_partition(plan.assignment),
                **figures,
                "bound": plan.bound,
                "bound_moved_load": tidy(plan.bound_moved_load),
                "gap": float(plan.gap),
                "cost": tidied(asdict(plan.cost)) | {"rscore": float(plan.cost.rscore)},
                "inverse": [
                    {"topic": m.topic, "partition": m.partition, "from": m.source, "to": m.target}
                    for m in plan.inverse
                ],
            }
        case KeyPlan():
            moves = [
                key_field(m.key)
                | {"from": m.source, "to": m.target, "count": m.count}
                | {"reason": str(m.reason), "numbers": tidied(m.numbers)}
                for m in plan.moves
            ]
            back = [key_field(m.key) | {"from": m.source, "to": m.target} for m in plan.inverse]
        case BrokerPlan():
            moves = [
                _place_to(m)
                | {"bytes": m.bytes, "reason": str(m.reason), "numbers": tidied(m.numbers)}
                for m in plan.moves
            ]
            back = [_place_to(m) for m in plan.inverse]
        case _:
            assert_never(plan)
    return {
        "moves": moves,
        **figures,
        "bound": tidy(plan.bound),
        "gap": float(plan.gap),
        "cost": asdict(plan.cost),
        "inverse": back,
    }


def _consumer_move_to(move: ConsumerMove) -> Json:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": move.source,
        "to": move.target,
        "load": tidy(move.load),
        "reason": str(move.reason),
        "numbers": tidied(move.numbers),
    }


def _place_to(move: ReplicaMove | ReplicaInverse) -> Json:
    return {
        "topic": move.topic,
        "partition": move.partition,
        "from": list(move.source),
        "to": list(move.target),
    }


# ---------------------------------------------------------------- reading


def plan_from(node: Node) -> AnyPlan:
    """Reads a plan of any layer; raises PlanDamaged if its content does not match its id."""
    node.version()
    if node.need("kind").value != "plan":
        node.need("kind").fail(f"should be plan, is {node.need('kind').value}")
    layer = node.need("layer")
    if layer.value not in list(Layer):
        layer.fail(f"unknown layer {layer.value}; this release supports {', '.join(Layer)}")
    plan: AnyPlan
    match Layer(layer.value):
        case Layer.CONSUMERS:
            plan = _consumer_plan(node)
        case Layer.KEYS:
            plan = _key_plan(node)
        case Layer.BROKERS:
            plan = _broker_plan(node)
        case _ as never:
            assert_never(never)
    stated, found = node.need("id").text(), plan_id(plan)
    if stated != found:
        raise PlanDamaged(
            f"{node.origin}: the plan has the id {stated}, but its content has the id {found}.",
            hint="The file was changed or damaged. Create the plan again with "
            f'"trimtab plan {plan.layer}".',
        )
    return plan


def read_plan(path: str | Path) -> tuple[AnyPlan, list[str]]:
    """Reads a plan file; also returns the warnings."""
    node = parse_file(path)
    return plan_from(node), node.warnings


def _envelope(node: Node, layer: Layer) -> dict[str, Any]:
    """The fields that are the same in all layers."""
    return {
        "layer": layer,
        "planner": node.need("planner").text(),
        "params": _params(node.need("params"), layer),
        "seed": node.need("seed").integer(),
        "made_ts": node.need("made_ts").integer(),
        "snapshot": node.need("snapshot").text(),
        "scope": _scope(node.need("scope")),
    }


def _consumer_plan(node: Node) -> ConsumerPlan:
    node.known("v", "kind", "id", *(field.name for field in fields(ConsumerPlan)))
    return ConsumerPlan(
        **_envelope(node, Layer.CONSUMERS),
        moves=tuple(_consumer_move(m) for m in node.need("moves").list()),
        assignment=Assignment(
            read_by_partition(node.need("assignment"), lambda n: n.integer(least=0))
        ),
        before=_consumer_state(node.need("before")),
        after=_consumer_state(node.need("after")),
        bound=node.need("bound").integer(least=0),
        bound_moved_load=node.need("bound_moved_load").number(least=0),
        gap=node.need("gap").number(),
        cost=_cost(node.need("cost")),
        inverse=tuple(_inverse(m) for m in node.need("inverse").list()),
        unplaced=tuple(_unplaced(u) for u in node.need("unplaced").list()),
        members=_members(node.get("members")),
    )


def _key_plan(node: Node) -> KeyPlan:
    node.known("v", "kind", "id", *(field.name for field in fields(KeyPlan)))
    cost = node.need("cost")
    cost.known("moves", "count")
    return KeyPlan(
        **_envelope(node, Layer.KEYS),
        moves=tuple(_key_move(m) for m in node.need("moves").list()),
        before=KeyState(**_numbers(node.need("before"), "e_lb", "imbalance")),
        after=KeyState(**_numbers(node.need("after"), "e_lb", "imbalance")),
        bound=node.need("bound").number(least=0),
        gap=node.need("gap").number(),
        cost=KeyCost(
            moves=cost.need("moves").integer(least=0), count=cost.need("count").integer(least=0)
        ),
        inverse=tuple(_key_inverse(m) for m in node.need("inverse").list()),
        unplaced=tuple(_unplaced(u) for u in node.need("unplaced").list()),
    )


def _broker_plan(node: Node) -> BrokerPlan:
    node.known("v", "kind", "id", *(field.name for field in fields(BrokerPlan)))
    figures, cost = ("f0", "f1", "f2", "f_rack"), node.need("cost")
    cost.known("moves", "bytes")
    return BrokerPlan(
        **_envelope(node, Layer.BROKERS),
        moves=tuple(_replica_move(m) for m in node.need("moves").list()),
        before=BrokerState(**_numbers(node.need("before"), *figures)),
        after=BrokerState(**_numbers(node.need("after"), *figures)),
        bound=node.need("bound").number(least=0),
        gap=node.need("gap").number(),
        cost=BrokerCost(
            moves=cost.need("moves").integer(least=0), bytes=cost.need("bytes").integer(least=0)
        ),
        inverse=tuple(_replica_inverse(m) for m in node.need("inverse").list()),
        unplaced=tuple(_unplaced(u) for u in node.need("unplaced").list()),
    )


def _params(node: Node, layer: Layer) -> Json:
    if layer is Layer.CONSUMERS:
        node.need("capacity").number(above=0)
        own = node.get("capacities")
        if own is not None:
            read_capacities(own)
        read_unit(node.get("unit"))
    node.object()
    params: Json = node.plain()
    return params


def _scope(node: Node) -> Scope:
    node.known("group", "topics")
    group = node.get("group")
    return Scope(
        group=None if group is None else group.text(),
        topics=tuple(t.text() for t in node.need("topics").list()),
    )


def _choice(node: Node, kind: type[_E]) -> _E:
    if node.value not in list(kind):
        node.fail(f"unknown reason {node.value}; this release supports {', '.join(kind)}")
    return kind(node.value)


def _numbers(node: Node, *names: str) -> dict[str, float]:
    node.known(*names)
    return {name: node.need(name).number(least=0) for name in names}


def _named_numbers(node: Node) -> dict[str, float]:
    return {name: value.number() for name, value in node.items()}


def _consumer_move(node: Node) -> ConsumerMove:
    node.known("topic", "partition", "from", "to", "load", "reason", "numbers")
    source, reason = node.get("from"), _choice(node.need("reason"), Reason)
    return ConsumerMove(
        topic=node.need("topic").text(),
        partition=node.need("partition").integer(least=0),
        source=None if source is None else source.integer(least=0),
        target=node.need("to").integer(least=0),
        load=node.need("load").number(least=0),
        reason=reason,
        numbers=_named_numbers(node.need("numbers")),
    )


def _consumer_state(node: Node) -> ConsumerState:
    node.known("consumers", "max_load")
    return ConsumerState(
        consumers=node.need("consumers").integer(least=0),
        max_load=node.need("max_load").number(least=0),
    )


def _cost(node: Node) -> Cost:
    node.known("moves", "moved_load", "rscore", "orphan_load")
    return Cost(
        moves=node.need("moves").integer(least=0),
        moved_load=node.need("moved_load").number(least=0),
        rscore=node.need("rscore").number(least=0),
        orphan_load=node.need("orphan_load").number(least=0),
    )


def _inverse(node: Node) -> InverseMove:
    node.known("topic", "partition", "from", "to")
    return InverseMove(
        topic=node.need("topic").text(),
        partition=node.need("partition").integer(least=0),
        source=node.need("from").integer(least=0),
        target=node.need("to").integer(least=0),
    )


def _unplaced(node: Node) -> Unplaced:
    node.known("topic", "partition", "why", "load")
    return Unplaced(
        topic=node.need("topic").text(),
        partition=node.need("partition").integer(least=0),
        why=node.need("why").text(),
        load=node.need("load").number(least=0),
    )


def _members(node: Node | None) -> dict[int, MemberName]:
    members = {}
    for number, name in () if node is None else node.items():
        if not number.isdecimal():
            name.fail(f"{number} is not a consumer index")
        name.known("client_id", "host", "member_id")
        members[int(number)] = MemberName(
            client_id=name.need("client_id").text(),
            host=name.need("host").text(),
            member_id=name.need("member_id").text(),
        )
    return members


def _key_move(node: Node) -> KeyMove:
    node.known("key", "key_b64", "from", "to", "count", "reason", "numbers")
    return KeyMove(
        **_between(node),
        count=node.need("count").integer(least=0),
        reason=_choice(node.need("reason"), KeyReason),
        numbers=_named_numbers(node.need("numbers")),
    )


def _key_inverse(node: Node) -> KeyInverse:
    node.known("key", "key_b64", "from", "to")
    return KeyInverse(**_between(node))


def _between(node: Node) -> dict[str, Any]:
    return {
        "key": read_key(node),
        "source": node.need("from").integer(least=0),
        "target": node.need("to").integer(least=0),
    }


def _replica_move(node: Node) -> ReplicaMove:
    node.known("topic", "partition", "from", "to", "bytes", "reason", "numbers")
    return ReplicaMove(
        **_replicas(node),
        bytes=node.need("bytes").integer(least=0),
        reason=_choice(node.need("reason"), ReplicaReason),
        numbers=_named_numbers(node.need("numbers")),
    )


def _replica_inverse(node: Node) -> ReplicaInverse:
    node.known("topic", "partition", "from", "to")
    return ReplicaInverse(**_replicas(node))


def _replicas(node: Node) -> Mapping[str, Any]:
    def brokers(name: str) -> tuple[BrokerId, ...]:
        ids = tuple(BrokerId(n.integer(least=0)) for n in node.need(name).list())
        if not ids or len(set(ids)) != len(ids):
            node.need(name).fail("should list at least one replica, and each only once")
        return ids

    return {
        "topic": node.need("topic").text(),
        "partition": node.need("partition").integer(least=0),
        "source": brokers("from"),
        "target": brokers("to"),
    }
