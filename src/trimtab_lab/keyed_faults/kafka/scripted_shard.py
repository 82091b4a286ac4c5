"""A gateway that follows a schedule: real records, markers and routes, in both of its manners.

Why      It drives keyed consumers before there is a gateway, and does on purpose what a real one
         does by accident: chains of migrations, crashes between markers, repeats, late leftovers.
Promise  END is stored before START, which has its offset. After a crash everything in memory is
         dropped: routes, counters and the position come from `.assign`, the generation rises, and
         FENCE goes to all partitions before anything else. What is below `position` at the end is
         stored once in `exactly_once`, at least once in `low_latency`.
"""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka import KafkaException, Producer

from trimtab.apply.keys.key_route import (
    GatewayMode,
    GatewayShard,
    move_refusal,
    partition_of,
    routed,
)
from trimtab.apply.keys.message_sets import CloseMarker, DataRecord, EndMarker, StartMarker
from trimtab.apply.keys.migration import (
    MIGRATION_STAGES,
    KeyMigration,
    MarkerSend,
    MigrationStage,
    RouteWrite,
    StageWait,
    begin_migration,
    next_stage,
    resume_migration,
)
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.start_up import fences, raise_generation
from trimtab.kafka.cluster import Cluster
from trimtab.model.murmur2 import home
from trimtab.model.record import Headers
from trimtab.observe.clock import wall_clock_us
from trimtab_lab.keyed_faults.kafka.shard_routes import (
    ANSWER_S,
    GEN,
    NEXT_SET,
    POSITION,
    GatewayCrashed,
    ShardRoutes,
    read_routes,
    route_node,
)
from trimtab_lab.keyed_faults.schedule import (
    ForcedMove,
    GatewayCrash,
    ScheduleRules,
    ScriptedRecord,
    ShardSchedule,
)

_POSITION_EVERY = 5  # steps: a `low_latency` gateway that crashes repeats up to so many


@dataclass(frozen=True, slots=True)
class _Sent:
    """A record as it was given to the producer."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class ScriptedShard:
    """One shard of the gateway; used by one thread.

    `position` is the number of the next step; `starts` counts how often the shard began.
    """

    def __init__(
        self, cluster: Cluster, topic: str, rules: ScheduleRules, shard: int, mode: GatewayMode
    ) -> None:
        self.position = 0
        self.starts = 0
        self.moved = 0
        self._cluster = cluster
        self._topic = topic
        self._rules = rules
        self._number = shard
        self._mode = mode
        self._schedule = ShardSchedule(rules, shard)
        self._crashed_at: set[int] = set()
        self._kept = ShardRoutes(GatewayShard(shard=shard))
        self._assign: Producer | None = None
        self._data: Producer | None = None
        self._step_sent: list[_Sent] = []
        self._errors: list[str] = []

    @property
    def truth(self) -> Counter[bytes]:
        """How many records of each key the steps so far have."""
        return self._schedule.sent_before(self.position)

    # ------------------------------------------------------------ running

    def run(self, stop: threading.Event) -> None:
        """Follows the schedule at its pace until `stop` is set, and finishes what was begun."""
        began = time.monotonic() - self.position / self._rules.steps_per_s
        while not stop.is_set():
            self.run_steps(1)
            ahead_s = began + self.position / self._rules.steps_per_s - time.monotonic()
            if ahead_s > 0:
                stop.wait(ahead_s)
        self.finish()

    def run_steps(self, count: int) -> None:
        """Does the next steps, at once; crashes and their restarts included."""
        goal = self.position + count
        while self.position < goal:
            try:
                if self._assign is None:
                    self._start()
                self._do_step(self.position)
                self.position += 1
            except (GatewayCrashed, KafkaException):
                self._crash()

    def finish(self) -> None:
        """Makes sure that every step so far is stored, and ends."""
        goal = self.position
        while True:
            try:
                if self._assign is None:
                    self._start()
                self.run_steps(max(0, goal - self.position))
                if self._mode is GatewayMode.LOW_LATENCY:
                    self._commit_position(self.position)
                break
            except (GatewayCrashed, KafkaException):
                self._crash()
        self._assign, self._data = None, None

    def _do_step(self, number: int) -> None:
        step = self._schedule.step(number)
        crash = step.crash if number not in self._crashed_at else None
        if crash is not None:
            self._crashed_at.add(number)
        self._step_sent = []
        exact = self._mode is GatewayMode.EXACTLY_ONCE
        if exact:
            self._tx.begin_transaction()
        for wave in _waves(step.moves):
            self._migrate(wave, crash)
        for record in step.records:
            self._route(record)
        if crash is GatewayCrash.SENT:
            self._flush()
            raise GatewayCrashed
        if exact:
            self._keep(POSITION, {"position": number + 1})
            self._flush()
            self._tx.commit_transaction(ANSWER_S)
            self._kept.position = number + 1
        elif (number + 1) % _POSITION_EVERY == 0:
            self._commit_position(number + 1)

    def _commit_position(self, position: int) -> None:
        """Says in `.assign` that everything below is stored, as soon as it is."""
        self._flush()
        with self._transaction():
            self._keep(POSITION, {"position": position})
        self._kept.position = position

    # ------------------------------------------------------------ start and crash

    def _crash(self) -> None:
        """Drops everything; a `low_latency` predecessor may still send what it had in hand."""
        late, leftovers = self._data, tuple(self._step_sent)
        self._assign, self._data = None, None
        if self._mode is GatewayMode.EXACTLY_ONCE or late is None:
            return
        with suppress(GatewayCrashed, KafkaException):
            self._start()
            for sent in leftovers:
                late.produce(
                    self._topic,
                    sent.value,
                    sent.key,
                    sent.partition,
                    headers=list(sent.headers),
                )
            late.flush(ANSWER_S)

    def _start(self) -> None:
        self._assign = None
        assign = self._cluster.producer(
            f"scripted-{self._number}",
            {
                "transactional.id": f"trimtab-gw-{self._topic}-{self._number}",
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
                "partitioner": "murmur2",
            },
        )
        assign.init_transactions(ANSWER_S)
        self._kept = read_routes(self._cluster, self._topic, self._number)
        first = self._kept.shard.gen == 0
        self._kept.shard = raise_generation(self._kept.shard)
        self._assign = assign
        try:
            self._fence(first=first)
            self.position = self._kept.position
            self.starts += 1
            self._finish_prepared()
        except BaseException:
            self._assign = None
            raise

    def _fence(self, *, first: bool) -> None:
        shard = self._kept.shard
        markers: list[tuple[int, Any]] = list(fences(shard, self._rules.partitions, self._src))
        if first:  # from here on only routed records are taken
            close = CloseMarker(shard.shard, shard.gen)
            markers += [(partition, close) for partition in range(self._rules.partitions)]
        kept = {"gen": shard.gen, "mode": str(self._mode)}
        if self._mode is GatewayMode.EXACTLY_ONCE:
            self._data = self._assign
            with self._transaction():
                self._keep(GEN, kept)
                self._send_markers(markers)
            return
        with self._transaction():
            self._keep(GEN, kept)
        self._data = self._cluster.producer(
            f"scripted-{self._number}-data",
            {
                "enable.idempotence": True,
                "acks": "all",
                "message.timeout.ms": 0,
                "linger.ms": 0,
                "partitioner": "murmur2",
            },
        )
        self._send_markers(markers)
        self._flush()

    @property
    def _src(self) -> int:
        """The input offset below which nothing is sent again."""
        return sum(self._schedule.sent_before(self._kept.position).values()) + 1

    def _finish_prepared(self) -> None:
        """Repeats what a predecessor had begun, with the same set ids, then moves these keys on."""
        stages = MIGRATION_STAGES[self._mode]
        resumed = {}
        for key, route in self._kept.routes.items():
            migration = resume_migration(route, self._home(key), stages)
            if migration is not None:
                resumed[key] = migration
        if not resumed:
            return
        again = [
            ForcedMove(key, (one.route.partition + 1) % self._rules.partitions)
            for key, one in resumed.items()
        ]
        if self._mode is GatewayMode.EXACTLY_ONCE:
            with self._transaction():
                self._advance(resumed, None)
            return
        self._advance(resumed, None)
        self._migrate(again, None)

    # ------------------------------------------------------------ migrations

    def _migrate(self, moves: Iterable[ForcedMove], crash: GatewayCrash | None) -> None:
        stages = MIGRATION_STAGES[self._mode]
        begun = {}
        for move in moves:
            route, at_home = self._kept.routes.get(move.key), self._home(move.key)
            here = partition_of(route, at_home)
            if move_refusal(route, at_home, source=here, target=move.target, migrating=False):
                continue
            shard, migration = begin_migration(
                self._kept.shard, route, at_home, move.target, stages
            )
            self._kept.shard = shard
            begun[move.key] = migration
        self.moved += len(begun)
        self._advance(begun, crash)

    def _advance(self, migrations: dict[bytes, KeyMigration], crash: GatewayCrash | None) -> None:
        """Does the stages of these migrations side by side: each wait serves all of them."""
        offsets: dict[bytes, int] = {}
        while migrations and any(migration.stages for migration in migrations.values()):
            stage = next(iter(migrations.values())).stages[0].stage
            wait = StageWait.NOTHING
            effects = {}
            for key, migration in list(migrations.items()):
                rest, done, wait = next_stage(self._kept.shard, migration)
                migrations[key] = rest
                effects[key] = done
            if wait is StageWait.COMMIT:
                with self._transaction():
                    self._perform(effects, offsets)
            else:
                self._perform(effects, offsets)
            if wait is StageWait.ACKS:
                self._flush()
            if stage is MigrationStage.END:
                for key, migration in list(migrations.items()):
                    migrations[key] = replace(migration, end_offset=offsets[key])
            if crash is not None and crash is _CRASH_AFTER.get(stage):
                self._flush()
                raise GatewayCrashed

    def _perform(self, effects: dict[bytes, tuple[Any, ...]], offsets: dict[bytes, int]) -> None:
        for key, listed in effects.items():
            for effect in listed:
                if isinstance(effect, RouteWrite):
                    self._write_route(key, effect)
                elif isinstance(effect, MarkerSend):
                    self._send_marker(key, effect.partition, effect.marker, offsets)

    def _write_route(self, key: bytes, write: RouteWrite) -> None:
        route = write.route
        if route is None:
            self._kept.routes.pop(key, None)
        else:
            self._kept.routes[key] = route
        self._keep(b"k" + key, None if route is None else route_node(route))
        self._keep(NEXT_SET, {"next": write.next_set})

    # ------------------------------------------------------------ sending

    def _route(self, record: ScriptedRecord) -> None:
        route, at_home = self._kept.routes.get(record.key), self._home(record.key)
        found = routed(self._kept.shard, route, at_home, src=record.src)
        assert found is not None  # noqa: S101 - migrations are finished before records
        extra = (("tt-seq", _number(record.seq)), ("tt-ts", _number(wall_clock_us())))
        self._send(found.partition, record.key, b"v", (*headers_for(found.record), *extra))

    def _send_markers(self, markers: Iterable[tuple[int, Any]]) -> None:
        for partition, marker in markers:
            self._send(partition, None, None, headers_for(marker))

    def _send_marker(
        self,
        key: bytes,
        partition: int,
        marker: EndMarker | StartMarker | DataRecord,
        offsets: dict[bytes, int],
    ) -> None:
        def landed(offset: int) -> None:
            if isinstance(marker, EndMarker):
                offsets[key] = offset

        self._send(partition, key, None, headers_for(marker), landed)

    def _send(
        self,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        landed: Callable[[int], None] | None = None,
    ) -> None:
        def delivered(error: Any, message: Any) -> None:
            if error is not None:
                self._errors.append(str(error))
            elif landed is not None:
                landed(message.offset())

        data = self._data
        assert data is not None  # noqa: S101 - see `_start`
        self._step_sent.append(_Sent(partition, key, value, headers))
        data.produce(
            self._topic, value, key, partition, on_delivery=delivered, headers=list(headers)
        )
        data.poll(0)

    def _keep(self, key: bytes, node: dict[str, Any] | None) -> None:
        value = None if node is None else json.dumps({"v": 1, **node}, separators=(",", ":"))
        self._tx.produce(f"{self._topic}.assign", value, key, self._number)

    @property
    def _tx(self) -> Producer:
        assert self._assign is not None  # noqa: S101 - see `_start`
        return self._assign

    def _transaction(self) -> _Transaction:
        return _Transaction(self._tx)

    def _flush(self) -> None:
        """Waits until all that was sent is stored."""
        for producer in {id(p): p for p in (self._data, self._assign) if p is not None}.values():
            if producer.flush(ANSWER_S):
                raise GatewayCrashed
        if self._errors:
            self._errors.clear()
            raise GatewayCrashed

    def _home(self, key: bytes) -> int:
        return home(key, self._rules.partitions)


_CRASH_AFTER = {
    MigrationStage.PREPARE: GatewayCrash.PREPARED,
    MigrationStage.END: GatewayCrash.ENDED,
    MigrationStage.START: GatewayCrash.STARTED,
}


class _Transaction:
    """A transaction for the length of a block; a block that fails leaves it open, as a crash."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def __enter__(self) -> None:
        self._producer.begin_transaction()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            if self._producer.flush(ANSWER_S):
                raise GatewayCrashed
            self._producer.commit_transaction(ANSWER_S)


def _waves(moves: tuple[ForcedMove, ...]) -> list[list[ForcedMove]]:
    """The moves in groups that have each key once: those of one key follow each other."""
    waves: list[list[ForcedMove]] = []
    seen: Counter[bytes] = Counter()
    for move in moves:
        wave = seen[move.key]
        seen[move.key] += 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append(move)
    return waves


def _number(value: int) -> bytes:
    return struct.pack(">q", value)
