"""The routing log of a scripted shard: what it wrote to `.assign` before it crashed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import TopicPartition as TheirPartition

from trimtab.apply.keys.key_route import GatewayShard, KeyRoute, RoutePhase
from trimtab.kafka.cluster import Cluster

NEXT_SET, GEN, POSITION = b"\x00next-set", b"\x00gen", b"\x00scripted-position"
ANSWER_S = 30.0


class GatewayCrashed(Exception):
    """The gateway ends here, by its schedule or because the brokers did not answer."""


@dataclass(slots=True)
class ShardRoutes:
    """What `.assign` says of a shard; `position` is the next step of its schedule."""

    shard: GatewayShard
    routes: dict[bytes, KeyRoute] = field(default_factory=dict)
    position: int = 0


def read_routes(cluster: Cluster, topic: str, shard: int) -> ShardRoutes:
    """Everything that the shard has committed; call it after the predecessor was fenced."""
    kept = ShardRoutes(GatewayShard(shard=shard))
    for key, value in _records(cluster, f"{topic}.assign", shard):
        if key[:1] == b"k":
            if value is None:
                kept.routes.pop(key[1:], None)
            else:
                kept.routes[key[1:]] = _route_of(json.loads(value))
        elif value is None:
            continue
        elif key == GEN:
            kept.shard = replace(kept.shard, gen=json.loads(value)["gen"])
        elif key == NEXT_SET:
            kept.shard = replace(kept.shard, next_set=json.loads(value)["next"])
        elif key == POSITION:
            kept.position = json.loads(value)["position"]
    return kept


def _records(cluster: Cluster, topic: str, shard: int) -> Iterable[tuple[bytes, bytes | None]]:
    name = f"scripted-{shard}-routes"
    settings = {
        "group.id": name,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
    }
    found = []
    with closing(cluster.consumer(name, settings)) as reader:
        place = TheirPartition(topic, shard)
        _, end = reader.get_watermark_offsets(place, timeout=ANSWER_S)
        place.offset = OFFSET_BEGINNING
        reader.assign([place])
        deadline = time.monotonic() + ANSWER_S
        while time.monotonic() < deadline:
            for message in reader.consume(500, 0.1):
                if message.error() is None:
                    found.append((message.key() or b"", message.value()))
                elif (message.offset() or 0) >= end:
                    return found
    raise GatewayCrashed


def route_node(route: KeyRoute) -> dict[str, Any]:
    """A route as `.assign` has it."""
    node: dict[str, Any] = {"part": route.partition, "set": route.set_id}
    if route.source is not None:
        node["from"] = route.source
    return {**node, "phase": str(route.phase)}


def _route_of(node: dict[str, Any]) -> KeyRoute:
    return KeyRoute(node["part"], node["set"], RoutePhase(node["phase"]), node.get("from"))
