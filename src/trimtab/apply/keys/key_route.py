"""Where a gateway shard sends the records of a key, and which moves it refuses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trimtab.apply.keys.message_sets import DataRecord


class GatewayMode(StrEnum):
    """How a gateway writes: in transactions, or at once."""

    EXACTLY_ONCE = "exactly_once"
    LOW_LATENCY = "low_latency"


class RoutePhase(StrEnum):
    """Whether a migration is under way."""

    PREPARED = "prepared"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class KeyRoute:
    """An entry of the routing table; a key without one is at home.

    `source` is the partition that a prepared migration leaves.
    """

    partition: int
    set_id: int
    phase: RoutePhase = RoutePhase.DONE
    source: int | None = None

    def __post_init__(self) -> None:
        if (self.source is None) is (self.phase is RoutePhase.PREPARED):
            raise ValueError("A prepared route has a source, and no other route has one.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayShard:
    """What a shard keeps under the reserved keys of `.assign`.

    One counter of set ids serves all keys of the shard and never goes back: ids that are forgotten
    with a key's route would be used twice.
    """

    shard: int
    gen: int = 0
    next_set: int = 1


@dataclass(frozen=True, slots=True)
class RoutedRecord:
    """A record and the partition it is sent to."""

    partition: int
    record: DataRecord


def partition_of(route: KeyRoute | None, home: int) -> int:
    """The partition of a key; while a migration is prepared, the one it leaves."""
    if route is None:
        return home
    return route.partition if route.source is None else route.source


def routed(
    shard: GatewayShard, route: KeyRoute | None, home: int, *, src: int, payload: object = None
) -> RoutedRecord | None:
    """The record with its headers and its partition; None while it has to wait in the gateway."""
    if route is not None and route.phase is RoutePhase.PREPARED:
        return None
    set_id = None if route is None else route.set_id
    record = DataRecord(shard=shard.shard, gen=shard.gen, src=src, set_id=set_id, payload=payload)
    return RoutedRecord(partition_of(route, home), record)


def move_refusal(
    route: KeyRoute | None, home: int, *, source: int, target: int, migrating: bool
) -> str | None:
    """Why a move is skipped; None if it is done."""
    if migrating or (route is not None and route.phase is RoutePhase.PREPARED):
        return "the key is migrating"
    here = partition_of(route, home)
    if here != source:
        return f"the key is on partition {here}, the move is from partition {source}"
    if target == source:
        return "the key is there already"
    return None


def committable(position: int, *, unacknowledged: int | None, waiting: int | None) -> int:
    """The input offset that a `low_latency` gateway may commit.

    Everything below it is acknowledged: neither the oldest record in flight nor the oldest one
    that waits for a migration lies below it.
    """
    return min(offset for offset in (position, unacknowledged, waiting) if offset is not None)
