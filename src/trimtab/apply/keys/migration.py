"""The migration of a key: END to the old partition, START to the new one, in a fixed order.

Promise  END is stored before START, so each wait of a task points back in time. In `low_latency`
         the routing log has the migration before any marker and is told its end before any record
         of the new set, so a gateway that starts again finishes it with the same set id.
Cost     `exactly_once`: one wait within the transaction. `low_latency`: two commits and two waits;
         meanwhile the records of this key wait, other keys flow.

                 PREPARE ──▶ END ──▶ START ──▶ FINISH ──▶ records of the new set
  exactly_once      –        acks      –         –        all in one transaction
  low_latency     commit     acks     acks     commit     (what is waited for)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import assert_never

from trimtab.apply.keys.key_route import (
    GatewayMode,
    GatewayShard,
    KeyRoute,
    RoutePhase,
    partition_of,
)
from trimtab.apply.keys.message_sets import EndMarker, StartMarker


class MigrationStage(StrEnum):
    """A step of a migration."""

    PREPARE = "prepare"
    END = "end"
    START = "start"
    FINISH = "finish"


class StageWait(StrEnum):
    """What must have happened before the next stage.

    ACKS: everything sent for the key so far is acknowledged, the markers too.
    """

    NOTHING = "nothing"
    ACKS = "acks"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class StageRule:
    """A stage and its wait."""

    stage: MigrationStage
    wait: StageWait


MIGRATION_STAGES: Mapping[GatewayMode, tuple[StageRule, ...]] = {
    GatewayMode.EXACTLY_ONCE: (
        StageRule(MigrationStage.END, StageWait.ACKS),
        StageRule(MigrationStage.START, StageWait.NOTHING),
        StageRule(MigrationStage.FINISH, StageWait.NOTHING),
    ),
    GatewayMode.LOW_LATENCY: (
        StageRule(MigrationStage.PREPARE, StageWait.COMMIT),
        StageRule(MigrationStage.END, StageWait.ACKS),
        StageRule(MigrationStage.START, StageWait.ACKS),
        StageRule(MigrationStage.FINISH, StageWait.COMMIT),
    ),
}


@dataclass(frozen=True, slots=True)
class RouteWrite:
    """A key's entry in `.assign`, a tombstone if None, and the shard's counter beside it."""

    route: KeyRoute | None
    next_set: int


@dataclass(frozen=True, slots=True)
class MarkerSend:
    """A marker for a partition of the data topic."""

    partition: int
    marker: EndMarker | StartMarker


MigrationEffect = RouteWrite | MarkerSend


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMigration:
    """A migration and the stages that are left; `route` is the prepared one."""

    route: KeyRoute
    home: int
    old_set: int
    stages: tuple[StageRule, ...]
    end_offset: int = -1

    @property
    def source(self) -> int:
        """The partition that the key leaves."""
        source = self.route.source
        return self.home if source is None else source

    @property
    def route_after(self) -> KeyRoute | None:
        """The route when all is done; a key that is home needs none."""
        if self.route.partition == self.home:
            return None
        return KeyRoute(self.route.partition, self.route.set_id)


def begin_migration(
    shard: GatewayShard,
    route: KeyRoute | None,
    home: int,
    target: int,
    stages: tuple[StageRule, ...],
) -> tuple[GatewayShard, KeyMigration]:
    """A new migration, with the next set id; `move_refusal` comes before this."""
    prepared = KeyRoute(target, shard.next_set, RoutePhase.PREPARED, partition_of(route, home))
    old_set = 0 if route is None else route.set_id
    migration = KeyMigration(route=prepared, home=home, old_set=old_set, stages=stages)
    return replace(shard, next_set=shard.next_set + 1), migration


def resume_migration(
    route: KeyRoute, home: int, stages: tuple[StageRule, ...]
) -> KeyMigration | None:
    """What a gateway that starts does with a route that it finds; None if it is done.

    Markers are sent again with the same set id; tasks drop those that they have seen.
    """
    if route.phase is not RoutePhase.PREPARED:
        return None
    left = tuple(rule for rule in stages if rule.stage is not MigrationStage.PREPARE)
    return KeyMigration(route=route, home=home, old_set=0, stages=left)


def next_stage(
    shard: GatewayShard, migration: KeyMigration
) -> tuple[KeyMigration, tuple[MigrationEffect, ...], StageWait]:
    """The effects of the first stage that is left, and what to wait for behind them.

    After END is acknowledged, its offset belongs into `end_offset`.
    """
    rule, *rest = migration.stages
    effects = (_effect(shard, migration, rule.stage),)
    return replace(migration, stages=tuple(rest)), effects, rule.wait


def _effect(shard: GatewayShard, migration: KeyMigration, stage: MigrationStage) -> MigrationEffect:
    route = migration.route
    match stage:
        case MigrationStage.PREPARE:
            return RouteWrite(route, shard.next_set)
        case MigrationStage.END:
            end = EndMarker(
                shard=shard.shard,
                gen=shard.gen,
                set_id=migration.old_set,
                next_set=route.set_id,
                to=route.partition,
            )
            return MarkerSend(migration.source, end)
        case MigrationStage.START:
            start = StartMarker(
                shard=shard.shard,
                gen=shard.gen,
                set_id=route.set_id,
                source=migration.source,
                end_offset=migration.end_offset,
            )
            return MarkerSend(route.partition, start)
        case MigrationStage.FINISH:
            return RouteWrite(migration.route_after, shard.next_set)
        case _:
            assert_never(stage)
