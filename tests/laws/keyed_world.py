"""A keyed data path in memory: several shards, keys and partitions, with crashes at any commit.

Gateways and tasks are the real step functions; topics are lists. A task works on a copy of what it
has committed, a gateway in `exactly_once` on an open transaction; a crash throws both away. In
`low_latency` records are in flight until they are stored, and those of a gateway that has crashed
may be stored later.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    AppliedRecord,
    EntryStatus,
    KeyEntry,
    KeyHandover,
    ParkedRecord,
    SentHandover,
    UnparkedRecord,
)
from trimtab.apply.keys.key_route import (
    GatewayMode,
    GatewayShard,
    KeyRoute,
    move_refusal,
    partition_of,
    routed,
)
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    FenceMarker,
    StartMarker,
)
from trimtab.apply.keys.migration import (
    MIGRATION_STAGES,
    KeyMigration,
    MarkerSend,
    MigrationStage,
    StageWait,
    begin_migration,
    next_stage,
    resume_migration,
)
from trimtab.apply.keys.partition_fences import PartitionFences, read_marker, refusal
from trimtab.apply.keys.start_up import fences, raise_generation
from trimtab.apply.keys.task import ABSENT, can_replay, read_record, replay_parked, take_handover

Choice = Callable[[], None]
Counted = tuple[int, bytes]


def link(chain: bytes, number: int) -> bytes:
    return hashlib.blake2b(chain + number.to_bytes(4, "big"), digest_size=8).digest()


def counted(value, record):
    """The application: how many records, and their chain."""
    count, chain = value or (0, b"")
    return count + 1, link(chain, record.payload)


@dataclass(frozen=True)
class ReceiptLine:
    key: str
    number: int
    set_id: int
    partition: int
    chain: bytes


@dataclass
class Work:
    """What a task commits: entries, queues, fences, positions, and what it writes elsewhere."""

    entries: dict[str, KeyEntry[Counted]] = field(default_factory=dict)
    queues: dict[str, deque[Any]] = field(default_factory=lambda: defaultdict(deque))
    fences: PartitionFences = field(default_factory=PartitionFences)
    read: int = 0
    taken: int = 0
    sent: list[tuple[int, str, KeyHandover[Counted]]] = field(default_factory=list)
    adopted: list[tuple[str, int]] = field(default_factory=list)
    receipts: list[ReceiptLine] = field(default_factory=list)


@dataclass
class Durable:
    """What a gateway shard finds when it starts: `.assign` and its committed offset."""

    shard: GatewayShard
    routes: dict[str, KeyRoute] = field(default_factory=dict)
    committed: int = 0


@dataclass
class Running:
    """A running gateway shard."""

    mode: GatewayMode
    shard: GatewayShard
    routes: dict[str, KeyRoute]
    position: int
    migrations: dict[str, tuple[KeyMigration, StageWait]] = field(default_factory=dict)
    transaction: list[tuple[int, str | None, object]] = field(default_factory=list)
    flights: list[deque[Any]] = field(default_factory=list)


class KeyedWorld:
    """All topics and processes."""

    def __init__(self, *, partitions: int, shards: int, keys: int, modes: list[GatewayMode]):
        self.partitions = partitions
        self.keys = [f"k{n}" for n in range(keys)]
        self.home = {key: n % partitions for n, key in enumerate(self.keys)}
        self.modes = modes
        self.inputs: list[list[tuple[str, int]]] = [[] for _ in range(shards)]
        self.sent_of: dict[str, int] = defaultdict(int)
        self.logs: list[list[tuple[str | None, object]]] = [[] for _ in range(partitions)]
        self.handovers: list[list[tuple[str, KeyHandover[Counted]]]] = [
            [] for _ in range(partitions)
        ]
        self.live: set[tuple[int, str, int]] = set()
        self.adoptions: list[tuple[str, int, int]] = []
        self.receipts: list[ReceiptLine] = []
        self.committed = [Work() for _ in range(partitions)]
        self.working = [Work() for _ in range(partitions)]
        self.durable = [Durable(GatewayShard(shard=g)) for g in range(shards)]
        self.leftovers: list[tuple[int, deque[Any]]] = []
        self.starts = 0
        self.gateways = [self._start(g) for g in range(shards)]

    # ------------------------------------------------------------ sources

    def append(self, key: str) -> None:
        self.sent_of[key] += 1
        shard = self.keys.index(key) % len(self.inputs)
        self.inputs[shard].append((key, self.sent_of[key]))

    # ------------------------------------------------------------ gateways

    def _start(self, g: int) -> Running:
        """Fences, reads routes and the offset, raises the generation, sends FENCE."""
        mode = self.modes[self.starts % len(self.modes)]
        self.starts += 1
        durable = self.durable[g]
        durable.shard = raise_generation(durable.shard)
        gateway = Running(
            mode,
            durable.shard,
            dict(durable.routes),
            durable.committed,
            flights=[deque() for _ in range(self.partitions)],
        )
        for partition, marker in fences(gateway.shard, self.partitions, durable.committed):
            self.logs[partition].append((None, marker))
        for key, route in durable.routes.items():
            resumed = resume_migration(route, self.home[key], MIGRATION_STAGES[mode])
            if resumed is not None:
                gateway.migrations[key] = (resumed, StageWait.NOTHING)
        return gateway

    def crash_gateway(self, g: int) -> None:
        flights = self.gateways[g].flights
        self.leftovers += [(p, flight) for p, flight in enumerate(flights) if flight]
        self.gateways[g] = self._start(g)

    def route(self, g: int) -> None:
        gateway = self.gateways[g]
        key, number = self.inputs[g][gateway.position]
        found = routed(
            gateway.shard,
            gateway.routes.get(key),
            self.home[key],
            src=gateway.position,
            payload=number,
        )
        assert found is not None
        gateway.position += 1
        self._send(gateway, found.partition, key, found.record)

    def can_route(self, g: int) -> bool:
        gateway = self.gateways[g]
        if gateway.position >= len(self.inputs[g]):
            return False
        return self.inputs[g][gateway.position][0] not in gateway.migrations

    def _send(self, gateway: Running, partition: int, key: str | None, record: object) -> None:
        if gateway.mode is GatewayMode.EXACTLY_ONCE:
            gateway.transaction.append((partition, key, record))
        else:
            gateway.flights[partition].append((key, record))

    def migrate(self, key: str, target: int) -> None:
        g = self.keys.index(key) % len(self.inputs)
        gateway, route = self.gateways[g], self.gateways[g].routes.get(key)
        source = partition_of(route, self.home[key])
        refused = move_refusal(
            route,
            self.home[key],
            source=source,
            target=target,
            migrating=key in gateway.migrations,
        )
        if refused is None:
            stages = MIGRATION_STAGES[gateway.mode]
            gateway.shard, migration = begin_migration(
                gateway.shard, route, self.home[key], target, stages
            )
            gateway.migrations[key] = (migration, StageWait.NOTHING)

    def can_go_on(self, g: int, key: str) -> bool:
        gateway = self.gateways[g]
        _, wait = gateway.migrations[key]
        return wait is not StageWait.ACKS or not any(gateway.flights)

    def go_on(self, g: int, key: str) -> None:
        """The next stage of a migration."""
        gateway = self.gateways[g]
        migration, _ = gateway.migrations[key]
        stage = migration.stages[0].stage
        migration, effects, wait = next_stage(gateway.shard, migration)
        for effect in effects:
            if isinstance(effect, MarkerSend):
                self._send(gateway, effect.partition, key, effect.marker)
            elif effect.route is None:
                gateway.routes.pop(key, None)
            else:
                gateway.routes[key] = effect.route
        if gateway.mode is GatewayMode.LOW_LATENCY and stage in (
            MigrationStage.PREPARE,
            MigrationStage.FINISH,
        ):
            self._write_routes(g)
        if migration.stages:
            gateway.migrations[key] = (migration, wait)
        else:
            del gateway.migrations[key]

    def _write_routes(self, g: int) -> None:
        self.durable[g].routes = dict(self.gateways[g].routes)
        self.durable[g].shard = self.gateways[g].shard

    def commit_gateway(self, g: int) -> None:
        """A transaction, or the offsets of what is stored; not within a migration."""
        gateway = self.gateways[g]
        for partition, key, record in gateway.transaction:
            self.logs[partition].append((key, record))
        gateway.transaction.clear()
        self._write_routes(g)
        self.durable[g].committed = gateway.position

    def can_commit(self, g: int) -> bool:
        gateway = self.gateways[g]
        behind = gateway.transaction or gateway.position > self.durable[g].committed
        return bool(behind) and not any(gateway.flights) and not gateway.migrations

    def store(self, flight: deque[Any], partition: int) -> None:
        self.logs[partition].append(flight.popleft())

    # ------------------------------------------------------------ tasks

    def read(self, p: int) -> None:
        work = self.working[p]
        key, record = self.logs[p][work.read]
        work.read += 1
        if key is None:
            assert isinstance(record, FenceMarker)
            work.fences = read_marker(work.fences, record)
            return
        assert isinstance(record, DataRecord | EndMarker | StartMarker)
        if refusal(work.fences, record) is None:
            entry = work.entries.get(key, ABSENT)
            self._done(p, key, record, read_record(entry, record, counted, p))

    def take(self, p: int) -> None:
        work = self.working[p]
        key, handover = self.handovers[p][work.taken]
        work.taken += 1
        self._done(p, key, None, take_handover(work.entries.get(key, ABSENT), handover))

    def replay(self, p: int, key: str) -> None:
        work = self.working[p]
        record = work.queues[key][0]
        self._done(p, key, record, replay_parked(work.entries[key], record, counted, p))

    def _done(self, p: int, key: str, record, step) -> None:
        work = self.working[p]
        work.entries[key], effects = step
        for effect in effects:
            match effect:
                case AppliedRecord(record=applied, set_id=set_id):
                    _, chain = work.entries[key].value or (0, b"")
                    assert isinstance(applied.payload, int)
                    work.receipts.append(ReceiptLine(key, applied.payload, set_id, p, chain))
                case SentHandover(to=to, handover=handover):
                    work.sent.append((to, key, handover))
                case AdoptedHandover(set_id=set_id):
                    work.adopted.append((key, set_id))
                case ParkedRecord():
                    work.queues[key].append(effect.record)
                case UnparkedRecord():
                    work.queues[key].popleft()
                case _:
                    pass

    def commit_task(self, p: int) -> None:
        work = self.working[p]
        for to, key, handover in work.sent:
            self.handovers[to].append((key, handover))
            self.live.add((to, key, handover.set_id))
        for key, set_id in work.adopted:
            self.live.discard((p, key, set_id))
            self.adoptions.append((key, set_id, p))
        self.receipts += work.receipts
        self.committed[p] = replace(deepcopy(work), sent=[], adopted=[], receipts=[])
        self.working[p] = deepcopy(self.committed[p])

    def crash_task(self, p: int) -> None:
        self.working[p] = deepcopy(self.committed[p])

    # ------------------------------------------------------------ what can happen

    def expected(self) -> list[Choice]:
        """What the processes do by themselves."""
        found: list[Choice] = []
        for g, gateway in enumerate(self.gateways):
            if self.can_route(g):
                found.append(partial(self.route, g))
            found += [
                partial(self.go_on, g, key) for key in gateway.migrations if self.can_go_on(g, key)
            ]
            if self.can_commit(g):
                found.append(partial(self.commit_gateway, g))
            found += [
                partial(self.store, flight, p) for p, flight in enumerate(gateway.flights) if flight
            ]
        for p, work in enumerate(self.working):
            if work.read < len(self.logs[p]):
                found.append(partial(self.read, p))
            if work.taken < len(self.handovers[p]):
                found.append(partial(self.take, p))
            found += [
                partial(self.replay, p, key)
                for key, entry in work.entries.items()
                if can_replay(entry)
            ]
            at = self.committed[p]
            if (work.read, work.taken) != (at.read, at.taken) or work.queues != at.queues:
                found.append(partial(self.commit_task, p))
        return found

    def moves(self) -> list[Choice]:
        """Any key to any partition; those that are refused change nothing."""
        return [partial(self.migrate, key, p) for key in self.keys for p in range(self.partitions)]

    def faults(self) -> list[Choice]:
        """What may also happen: crashes, and records of gateways that are gone."""
        found: list[Choice] = [partial(self.crash_task, p) for p in range(self.partitions)]
        found += [partial(self.crash_gateway, g) for g in range(len(self.gateways))]
        found += [partial(self.store, flight, p) for p, flight in self.leftovers if flight]
        return found

    def settle(self) -> None:
        """Does all that is expected, until nothing is left to do."""
        while choices := self.expected():
            for choice in choices[:1]:
                choice()

    # ------------------------------------------------------------ the invariants

    def owners(self, key: str) -> list[int]:
        return [
            p
            for p, work in enumerate(self.committed)
            if (entry := work.entries.get(key)) and entry.status is EntryStatus.OWN and entry.value
        ]

    def markers(self, key: str, kind: type) -> list[tuple[int, object]]:
        """The partition and marker of each END or START of a key, repeats and fenced ones too."""
        return [
            (p, record)
            for p, log in enumerate(self.logs)
            for name, record in log
            if name == key and isinstance(record, kind)
        ]
