"""Plan ⇄ versioned JSON, for the plans of every layer, and the ids of plans and snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from trimtab.errors import PlanDamaged
from trimtab.model import wire
from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import VERSION, Json, short_hash
from trimtab.model.json_reader import Node, parse_file
from trimtab.model.load import GroupLimits
from trimtab.model.plan import AnyPlan, BrokerPlan, ConsumerPlan, KeyPlan, Layer
from trimtab.model.scalars import key_field

_CLASSES: Mapping[str, type[AnyPlan]] = {
    Layer.CONSUMERS: ConsumerPlan,
    Layer.KEYS: KeyPlan,
    Layer.BROKERS: BrokerPlan,
}


def plan_id(plan: AnyPlan) -> str:
    """First 12 hex digits of SHA-256 over the plan's canonical form."""
    return str(plan_to(plan)["id"])


def consumers_snapshot_id(partitions: Iterable[TopicPartition], assignment: Assignment) -> str:
    """The id of a consumers' plan's input: the topics' partitions and the group's assignment."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        numbers.setdefault(topic, []).append(partition)
    return short_hash({"partitions": numbers, "assignment": wire.by_partition(assignment)})


def keys_snapshot_id(partitions: int, places: Mapping[bytes, int]) -> str:
    """The id of a keys' plan's input: the partition count, and where the keys it moves are."""
    keys = [{**key_field(key), "partition": places[key]} for key in sorted(places)]
    return short_hash({"partitions": partitions, "keys": keys})


def plan_to(plan: AnyPlan) -> Json:
    """A plan file, with its id, which does not depend on the names of members."""
    head = {"v": VERSION, "kind": "plan"}
    body = wire.write(plan)
    hashed = {name: value for name, value in body.items() if name != "members"}
    return {**head, "id": short_hash(head | hashed), **body}


def plan_from(node: Node) -> AnyPlan:
    """Reads a plan of any layer; raises PlanDamaged if its content does not match its id."""
    node.version()
    kind, layer = node.need("kind"), node.need("layer")
    if kind.value != "plan":
        kind.fail(f"should be plan, is {kind.value}")
    if layer.value not in list(Layer):
        layer.fail(f"unknown layer {layer.value}; this release supports {', '.join(Layer)}")
    if layer.value == Layer.CONSUMERS:
        wire.read(GroupLimits, node.need("params"))
    plan: AnyPlan = wire.read_file(_CLASSES[layer.value], node, "v", "kind", "id")
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
