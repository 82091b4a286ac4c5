"""Changes of the modelled world that several actions share."""

from __future__ import annotations

from collections.abc import Iterable

from trimtab.apply.keys.key_route import GatewayShard
from trimtab.simulate.key_protocol.world import GatewayInstance, Numbers, World, put


def shard_of(gateway: GatewayInstance) -> GatewayShard:
    """What the protocol needs to know of a gateway."""
    return GatewayShard(shard=0, gen=gateway.gen, next_set=gateway.next_set)


def with_gateway(world: World, at: int, gateway: GatewayInstance) -> World:
    """The world with a gateway changed; one that is gone and has nothing in flight is left out."""
    if not gateway.alive and not any(gateway.flights):
        return world._replace(gateways=(*world.gateways[:at], *world.gateways[at + 1 :]))
    return world._replace(gateways=put(world.gateways, at, gateway))


def stored(world: World, letters: Iterable[tuple[int, int]]) -> World:
    """The world with records at the end of their partitions."""
    logs = list(world.logs)
    for partition, letter in letters:
        logs[partition] = (*logs[partition], letter)
    return world._replace(logs=tuple(logs))


def sent(gateway: GatewayInstance, letters: list[tuple[int, int]]) -> GatewayInstance:
    """The gateway with records in flight."""
    flights: list[Numbers] = list(gateway.flights)
    for partition, letter in letters:
        flights[partition] = (*flights[partition], letter)
    return gateway._replace(flights=tuple(flights))


def in_assign(world: World, gateway: GatewayInstance, *, offsets: bool = True) -> World:
    """The world in which `.assign` has the routes of a gateway, and perhaps its offsets."""
    assign = world.assign._replace(routes=gateway.routes, next_set=gateway.next_set)
    if offsets:
        assign = assign._replace(committed=gateway.position)
    return world._replace(assign=assign)
