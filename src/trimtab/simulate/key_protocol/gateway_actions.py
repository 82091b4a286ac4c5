"""What gateways can do in a state of the model: start, route, migrate, commit, crash, freeze.

A transaction of an `exactly_once` gateway is one event: its records appear in the logs when it
commits, and nobody else writes transactions there. In `low_latency` records are in flight until a
broker stores them, in order per partition; those of a gateway that is gone may be stored later, or
never.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trimtab.apply.keys.key_route import RoutePhase, committable, routed
from trimtab.apply.keys.message_sets import DataRecord
from trimtab.apply.keys.migration import MigrationStage, StageWait
from trimtab.apply.keys.start_up import (
    GatewayStep,
    InputIdentity,
    fences,
    raise_generation,
)
from trimtab.simulate.key_protocol.exploration import Action
from trimtab.simulate.key_protocol.migration_actions import MigrationActions
from trimtab.simulate.key_protocol.world import (
    EXACTLY_ONCE,
    LOW_LATENCY,
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

_QUIET = {
    GatewayStep.FENCE_PREDECESSOR,
    GatewayStep.READ_ROUTES,
    GatewayStep.FETCH_POSITION,
    GatewayStep.RAISE_GENERATION,
}
"""Steps that concern nobody else while no other gateway can write to `.assign`."""


class GatewayActions:
    """The actions of all gateway instances."""

    def __init__(self, tables: ModelTables) -> None:
        self.tables = tables
        self.scenario = tables.scenario
        self.protocol = tables.protocol
        self.migrations = MigrationActions(tables)

    def of(self, world: World) -> Iterator[Outcome]:
        """All actions of gateways."""
        newest = len(world.gateways) - 1
        for at, gateway in enumerate(world.gateways):
            yield from self._deliveries(world, at, expected=at == newest)
            if at == newest and gateway.fenced:  # by one that was frozen while it started
                restarted = self._replaced(world, at, frozen=False, is_fault=False)
                yield ("gateway", gateway.number, "is_fenced"), restarted, True
            if gateway.alive and not world.assign.refused:
                if gateway.step < len(self.protocol.gateway_start):
                    yield from self._start(world, at, expected=at == newest)
                else:
                    yield from self._run(world, at, expected=at == newest)
        if not world.assign.refused:
            yield from self._faults(world, newest)

    # ------------------------------------------------------------ start

    def _start(self, world: World, at: int, *, expected: bool) -> Iterator[Outcome]:
        gateway = world.gateways[at]
        step = self.protocol.gateway_start[gateway.step]
        if any(gateway.flights) and step is GatewayStep.FINISH_PREPARED:
            return  # FENCE is not acknowledged everywhere
        if gateway.fenced and self._commits(gateway, step):
            return
        after = self._start_step(world, at)
        # Nothing can come between steps that concern only this gateway.
        while self._is_quiet(after, at):
            after = self._start_step(after, at)
        if after.assign.refused:
            yield ("gateway", gateway.number, "refuses"), after, expected
        else:
            names = self.protocol.gateway_start[gateway.step : after.gateways[at].step]
            yield ("gateway", gateway.number, "start", names), after, expected

    def _is_refused(self, world: World) -> bool:
        """Whether a gateway that looks at its topics now refuses to run."""
        if not world.assign.recreated_at:
            return False
        stored = InputIdentity(
            input_id="first", shards=1, output_id="out", partitions=self.scenario.partitions
        )
        found = replace(stored, input_id="second")
        return self.protocol.identity_refusal(stored, found) is not None

    def _commits(self, gateway: GatewayInstance, step: GatewayStep) -> bool:
        """Whether a step of a start is a transaction."""
        if step is GatewayStep.RAISE_GENERATION:
            return True
        last = step in (GatewayStep.SEND_FENCES, GatewayStep.FINISH_PREPARED)
        return last and gateway.mode == EXACTLY_ONCE

    def _is_quiet(self, world: World, at: int) -> bool:
        """Whether the next step of a start concerns nobody else."""
        steps, done = self.protocol.gateway_start, world.gateways[at].step
        if world.assign.refused or world.gateways[at].fenced:
            return False
        if done >= len(steps) or steps[done] not in _QUIET:
            return False
        others = (other for i, other in enumerate(world.gateways) if i != at)
        return not any(other.alive and not other.fenced for other in others)

    def _start_step(self, world: World, at: int) -> World:
        gateway = world.gateways[at]
        step = self.protocol.gateway_start[gateway.step]
        gateway = gateway._replace(step=gateway.step + 1)
        match step:
            case GatewayStep.FENCE_PREDECESSOR:
                others = tuple(
                    g if i == at else g._replace(fenced=True, transaction=())
                    for i, g in enumerate(world.gateways)
                )
                world = world._replace(gateways=others)
            case GatewayStep.READ_ROUTES:
                gateway = self._read_routes(world, gateway)
            case GatewayStep.FETCH_POSITION:
                assign = world.assign
                if self._is_refused(world):
                    return world._replace(assign=assign._replace(refused=True))
                gateway = gateway._replace(position=assign.committed, moves=assign.moves)
            case GatewayStep.RAISE_GENERATION:
                shard = raise_generation(shard_of(gateway))
                gateway = gateway._replace(gen=shard.gen)
                world = world._replace(assign=world.assign._replace(gen=gateway.gen))
            case GatewayStep.SEND_FENCES:
                if MODES[gateway.mode] in self.protocol.fences_in:
                    return self._send_fences(world, at, gateway)
            case GatewayStep.FINISH_PREPARED:
                return self._finish_prepared(world, at, gateway)
        return with_gateway(world, at, gateway)

    def _read_routes(self, world: World, gateway: GatewayInstance) -> GatewayInstance:
        assign = world.assign
        next_set = assign.next_set
        if not self.protocol.durable_set_ids:
            known = [route for n in assign.routes if (route := self.tables.routes.values[n])]
            next_set = 1 + max((route.set_id for route in known), default=0)
        return gateway._replace(routes=assign.routes, next_set=next_set, gen=assign.gen)

    def _send_fences(self, world: World, at: int, gateway: GatewayInstance) -> World:
        tables = self.tables
        markers = fences(shard_of(gateway), self.scenario.partitions, gateway.position)
        letters = [
            (partition, tables.letters.number((None, marker))) for partition, marker in markers
        ]
        if gateway.mode == LOW_LATENCY:
            return with_gateway(world, at, sent(gateway, letters))
        return with_gateway(stored(world, letters), at, gateway)

    def _finish_prepared(self, world: World, at: int, gateway: GatewayInstance) -> World:
        for key, number in enumerate(gateway.routes):
            route = self.tables.routes.values[number]
            if route is None or route.phase is not RoutePhase.PREPARED:
                continue
            mode = MODES[gateway.mode]
            home = self.scenario.home(key)
            migration = self.protocol.resume_migration(route, home, self.protocol.stages[mode])
            if migration is None:
                continue
            if gateway.mode == EXACTLY_ONCE:
                world, gateway = self.migrations.whole_migration(world, gateway, key, migration)
                continue
            pair = (migration, StageWait.NOTHING)
            gateway = gateway._replace(
                migrations=put(gateway.migrations, key, self.tables.migrations.number(pair))
            )
        return with_gateway(world, at, gateway)

    # ------------------------------------------------------------ running

    def _run(self, world: World, at: int, *, expected: bool) -> Iterator[Outcome]:
        gateway = world.gateways[at]
        number = gateway.number
        if self._is_refused(world):
            refused = world._replace(assign=world.assign._replace(refused=True))
            yield ("gateway", number, "refuses"), refused, expected
            return
        if gateway.mode == EXACTLY_ONCE:
            yield from self._run_transactions(world, at, expected=expected)
            return
        routed_to = self._routed(world, gateway)
        if routed_to is not None:
            key, partition, letter = routed_to
            after = sent(gateway, [(partition, letter)])._replace(position=gateway.position + 1)
            action = ("gateway", number, "routes", letter, partition)
            yield action, with_gateway(world, at, after), expected
        for key, pair in enumerate(gateway.migrations):
            if pair and self.migrations.can_go_on(gateway, pair):
                action, reached = self.migrations.next_stage(world, at, key)
                yield action, reached, expected
        if not gateway.fenced:
            for key, target, move in self.migrations.moves(world, gateway):
                yield self.migrations.begin(world, at, key, target, move)
        yield from self._offset_commits(world, at)

    def _routed(self, world: World, gateway: GatewayInstance) -> tuple[int, int, int] | None:
        """Key, partition and record of the next input; None if it has to wait."""
        scenario, index = self.scenario, gateway.position
        if index >= scenario.records:
            return None
        key = index % scenario.keys
        pair = self.tables.migrations.values[gateway.migrations[key]]
        if pair is not None and any(r.stage is MigrationStage.FINISH for r in pair[0].stages):
            return None
        route = self.tables.routes.values[gateway.routes[key]]
        found = routed(
            shard_of(gateway),
            route,
            scenario.home(key),
            src=index - world.assign.recreated_at,
            payload=index // scenario.keys + 1,
        )
        if found is None:
            return None
        return key, found.partition, self.tables.letters.number((key, found.record))

    def _run_transactions(self, world: World, at: int, *, expected: bool) -> Iterator[Outcome]:
        gateway = world.gateways[at]
        if gateway.fenced:
            return  # its commit would fail
        room = not self.scenario.batch or len(gateway.transaction) < self.scenario.batch
        routed_to = self._routed(world, gateway) if room else None
        if routed_to is not None:
            key, partition, letter = routed_to
            after = gateway._replace(position=gateway.position + 1)
            action: Action = ("gateway", gateway.number, "routes", letter, partition)
            yield action, self.migrations.written(world, at, after, [(partition, letter)]), expected
        if room:
            for key, target, move in self.migrations.moves(world, gateway):
                yield self.migrations.begin_in_transaction(world, at, key, target, move)
        if gateway.transaction:
            visible = stored(world, gateway.transaction)
            after = gateway._replace(transaction=())
            action = ("gateway", gateway.number, "commits")
            yield action, with_gateway(in_assign(visible, after), at, after), expected

    # ------------------------------------------------------------ offsets, brokers, faults

    def _offset_commits(self, world: World, at: int) -> Iterator[Outcome]:
        """Offsets matter only if another gateway will start."""
        budget = world.budget
        if not (budget.gateway_crashes or budget.gateway_freezes):
            return
        gateway = world.gateways[at]
        if not self.protocol.moves_with_routes and gateway.moves > world.assign.moves:
            moved = world.assign._replace(moves=gateway.moves)
            yield ("gateway", gateway.number, "commits_moves"), world._replace(assign=moved), False
        if gateway.fenced and self.protocol.fenced_offsets:
            return
        sources = [
            record.src
            for flight in gateway.flights
            for letter in flight
            if isinstance(record := self.tables.letters.values[letter][1], DataRecord)
        ]
        offset = committable(
            gateway.position, unacknowledged=min(sources, default=None), waiting=None
        )
        if offset > world.assign.committed:
            assign = world.assign._replace(committed=offset)
            action = ("gateway", gateway.number, "commits_offset", offset)
            yield action, world._replace(assign=assign), False

    def _deliveries(self, world: World, at: int, *, expected: bool) -> Iterator[Outcome]:
        gateway = world.gateways[at]
        for partition, flight in enumerate(gateway.flights):
            if not flight:
                continue
            choices = 1 if self.protocol.idempotent_producer else len(flight)
            for which in range(choices):
                letter = flight[which]
                rest = (*flight[:which], *flight[which + 1 :])
                after = gateway._replace(flights=put(gateway.flights, partition, rest))
                visible = stored(world, [(partition, letter)])
                action = ("broker", partition, "stores", letter, gateway.number)
                yield action, with_gateway(visible, at, after), expected and gateway.alive
            if (
                not self.protocol.unlimited_delivery
                and gateway.alive
                and at == len(world.gateways) - 1
                and world.budget.gateway_crashes
            ):
                cut = gateway._replace(flights=put(gateway.flights, partition, flight[1:]))
                action = ("gateway", gateway.number, "gives_up", flight[0], partition)
                gone = self._replaced(with_gateway(world, at, cut), at, frozen=False)
                yield action, gone, False

    def _faults(self, world: World, at: int) -> Iterator[Outcome]:
        gateway, budget = world.gateways[at], world.budget
        if budget.gateway_crashes:
            number = gateway.number
            yield ("gateway", number, "crashes"), self._replaced(world, at, frozen=False), False
            if gateway.transaction and not self.protocol.restart_after_abort:
                kept = gateway._replace(transaction=(), position=world.assign.committed)
                left = budget._replace(gateway_crashes=budget.gateway_crashes - 1)
                aborted = with_gateway(world._replace(budget=left), at, kept)
                yield ("gateway", number, "aborts"), aborted, False
        if budget.gateway_freezes:
            frozen = self._replaced(world, at, frozen=True)
            yield ("gateway", gateway.number, "freezes"), frozen, False
        if budget.recreations and 0 < world.assign.committed == gateway.position:
            assign = world.assign._replace(recreated_at=world.assign.committed)
            left = budget._replace(recreations=0)
            yield ("input", "recreated"), world._replace(assign=assign, budget=left), False

    def _replaced(self, world: World, at: int, *, frozen: bool, is_fault: bool = True) -> World:
        """The world in which another gateway starts; this one is gone, or may wake up."""
        gateway, budget = world.gateways[at], world.budget
        if frozen:
            budget = budget._replace(gateway_freezes=budget.gateway_freezes - 1)
        else:
            gateway = self.tables.gateway(gateway.number, gateway.mode)._replace(
                alive=False, flights=gateway.flights
            )
            budget = budget._replace(gateway_crashes=budget.gateway_crashes - is_fault)
        mode = self.scenario.mode_after
        new_mode = gateway.mode if mode is None else MODES.index(mode)
        new = self.tables.gateway(gateway.number + 1, new_mode)
        gateways = (*world.gateways[:at], gateway, new)
        return world._replace(
            gateways=tuple(g for g in gateways if g.alive or any(g.flights)), budget=budget
        )
