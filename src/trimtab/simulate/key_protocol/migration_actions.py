"""What a gateway does for a migration in the model: it takes moves and carries out their stages."""

from __future__ import annotations

from collections.abc import Iterator

from trimtab.apply.keys.key_route import move_refusal, partition_of
from trimtab.apply.keys.migration import KeyMigration, MigrationStage, RouteWrite, StageWait
from trimtab.simulate.key_protocol.exploration import Action, BadState
from trimtab.simulate.key_protocol.scenario import ProtocolFault
from trimtab.simulate.key_protocol.world import (
    MODES,
    GatewayInstance,
    ModelTables,
    Outcome,
    World,
    put,
)
from trimtab.simulate.key_protocol.world_changes import (
    in_assign,
    sent,
    shard_of,
    stored,
    with_gateway,
)

_COMMITS = (MigrationStage.PREPARE, MigrationStage.FINISH)


class MigrationActions:
    """Moves and migrations of one gateway instance."""

    def __init__(self, tables: ModelTables) -> None:
        self.tables = tables
        self.scenario = tables.scenario
        self.protocol = tables.protocol

    def written(
        self, world: World, at: int, after: GatewayInstance, letters: list[tuple[int, int]]
    ) -> World:
        """Records into the open transaction, which is committed at once without batches."""
        if self.scenario.batch:
            return with_gateway(
                world, at, after._replace(transaction=(*after.transaction, *letters))
            )
        return with_gateway(in_assign(stored(world, letters), after), at, after)

    def moves(
        self, world: World, gateway: GatewayInstance
    ) -> Iterator[tuple[int, int, int | None]]:
        """Key, target and the number of the move in `.moves`, of all moves that are possible."""
        scenario = self.scenario
        if scenario.moves:
            move = gateway.moves
            if move < len(scenario.moves):
                yield 0, scenario.moves[move][1], move
            return
        if not world.budget.migrations:
            return
        for key in range(scenario.keys):
            route = self.tables.routes.values[gateway.routes[key]]
            here = partition_of(route, scenario.home(key))
            for target in range(scenario.partitions):
                refused = move_refusal(
                    route,
                    scenario.home(key),
                    source=here,
                    target=target,
                    migrating=gateway.migrations[key] != 0,
                )
                if refused is None:
                    yield key, target, None

    def _taken(
        self, world: World, at: int, key: int, target: int, move: int | None
    ) -> tuple[World, GatewayInstance, bool] | BadState:
        """The gateway after it has taken a move, and whether it carries it out."""
        gateway = world.gateways[at]
        if move is None:
            budget = world.budget._replace(migrations=world.budget.migrations - 1)
            return world._replace(budget=budget), gateway, True
        gateway = gateway._replace(moves=move + 1)
        route = self.tables.routes.values[gateway.routes[key]]
        refused = move_refusal(
            route,
            self.scenario.home(key),
            source=self.scenario.moves[move][0],
            target=target,
            migrating=gateway.migrations[key] != 0,
        )
        if refused is not None:
            return world, gateway, False
        assign = world.assign
        if move in assign.carried_out:
            return BadState(ProtocolFault.MOVE_TWICE.name, f"Move {move + 1} is carried out again.")
        moves = gateway.moves if self.protocol.moves_with_routes else assign.moves
        assign = assign._replace(carried_out=(*assign.carried_out, move), moves=moves)
        return world._replace(assign=assign), gateway, True

    def begin(self, world: World, at: int, key: int, target: int, move: int | None) -> Outcome:
        """Takes a move, with the first stage of its migration; low latency."""
        number = world.gateways[at].number
        taken = self._taken(world, at, key, target, move)
        if isinstance(taken, BadState):
            return ("gateway", number, "migrates", key, target), taken, False
        world, gateway, accepted = taken
        if not accepted:
            return (
                ("gateway", number, "skips", key, target),
                with_gateway(world, at, gateway),
                True,
            )
        gateway, migration = self._new_migration(gateway, key, target)
        if migration is None:
            reached = with_gateway(in_assign(world, gateway, offsets=False), at, gateway)
            return ("gateway", number, "changes_route", key, target), reached, False
        pair = self.tables.migrations.number((migration, StageWait.NOTHING))
        gateway = gateway._replace(migrations=put(gateway.migrations, key, pair))
        action, after = self.next_stage(with_gateway(world, at, gateway), at, key)
        return (*action[:2], "migrates", key, target, action[3:]), after, False

    def begin_in_transaction(
        self, world: World, at: int, key: int, target: int, move: int | None
    ) -> Outcome:
        """Takes a move, with all stages of its migration; exactly once."""
        number = world.gateways[at].number
        action = ("gateway", number, "migrates", key, target)
        taken = self._taken(world, at, key, target, move)
        if isinstance(taken, BadState):
            return action, taken, False
        world, gateway, accepted = taken
        if not accepted:
            return (
                ("gateway", number, "skips", key, target),
                with_gateway(world, at, gateway),
                True,
            )
        gateway, migration = self._new_migration(gateway, key, target)
        if migration is None:
            return (
                (*action[:2], "changes_route", key, target),
                self.written(world, at, gateway, []),
                False,
            )
        letters: list[tuple[int, int]] = []
        while migration.stages:
            gateway, migration, letters_now, _ = self.stage(gateway, key, migration)
            letters += letters_now
        return action, self.written(world, at, gateway, letters), False

    def _new_migration(
        self, gateway: GatewayInstance, key: int, target: int
    ) -> tuple[GatewayInstance, KeyMigration | None]:
        """A new migration; None if the variant only changes the route."""
        tables, home = self.tables, self.scenario.home(key)
        route = tables.routes.values[gateway.routes[key]]
        if self.protocol.route_changes(route, home, target):
            return gateway._replace(routes=put(gateway.routes, key, 0)), None
        shard, migration = self.protocol.begin_migration(
            shard_of(gateway), route, home, target, self.protocol.stages[MODES[gateway.mode]]
        )
        return gateway._replace(next_set=shard.next_set), migration

    def whole_migration(
        self, world: World, gateway: GatewayInstance, key: int, migration: KeyMigration
    ) -> tuple[World, GatewayInstance]:
        """All stages of a migration in one transaction."""
        letters: list[tuple[int, int]] = []
        while migration.stages:
            gateway, migration, letters_now, _ = self.stage(gateway, key, migration)
            letters += letters_now
        return in_assign(stored(world, letters), gateway), gateway

    def stage(
        self, gateway: GatewayInstance, key: int, migration: KeyMigration
    ) -> tuple[GatewayInstance, KeyMigration, list[tuple[int, int]], StageWait]:
        """The next stage in memory: what is sent, and what is waited for."""
        after, effects, wait = self.protocol.next_stage(shard_of(gateway), migration)
        letters = []
        for effect in effects:
            if isinstance(effect, RouteWrite):
                next_set = effect.next_set
                if effect.route is None and not self.protocol.set_ids_survive_cooling:
                    next_set = 1
                gateway = gateway._replace(
                    routes=put(gateway.routes, key, self.tables.routes.number(effect.route)),
                    next_set=next_set,
                )
            else:
                letter = self.tables.letters.number((key, effect.marker))
                letters.append((effect.partition, letter))
        return gateway, after, letters, wait

    def next_stage(self, world: World, at: int, key: int) -> tuple[Action, World]:
        """The next stage of a migration at low latency."""
        gateway = world.gateways[at]
        pair = self.tables.migrations.values[gateway.migrations[key]]
        assert pair is not None  # noqa: S101
        stage = pair[0].stages[0].stage
        action = ("gateway", gateway.number, "stage", key, stage, pair[0].route.set_id)
        gateway, migration, letters, wait = self.stage(gateway, key, pair[0])
        if stage in _COMMITS:
            world = in_assign(world, gateway, offsets=False)
        gateway = sent(gateway, letters)
        left = 0
        if migration.stages or wait is StageWait.ACKS:
            left = self.tables.migrations.number((migration, wait))
        gateway = gateway._replace(migrations=put(gateway.migrations, key, left))
        return action, with_gateway(world, at, gateway)

    def can_go_on(self, gateway: GatewayInstance, number: int) -> bool:
        """Whether the next stage can be done: a fenced gateway cannot commit."""
        pair = self.tables.migrations.values[number]
        if pair is None or not pair[0].stages:
            return False
        if gateway.fenced and pair[0].stages[0].stage in _COMMITS:
            return False
        if pair[1] is not StageWait.ACKS:
            return True
        if not self.protocol.waits_for_all_acks:
            return not gateway.flights[pair[0].route.partition]
        return not any(gateway.flights)
