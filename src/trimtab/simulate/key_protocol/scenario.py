"""What the model of the keyed data path is asked to explore, and the protocol that it runs.

`PROTOCOL` is the real one: the functions of `trimtab.apply.keys`, and clients and brokers as the
settings require them. Broken variants (`broken_variants`) replace parts of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from trimtab.apply.keys.key_entry import DroppedRecord, EntryStep, KeyEntry, RejectedRecord
from trimtab.apply.keys.key_route import GatewayMode, GatewayShard, KeyRoute
from trimtab.apply.keys.message_sets import KeyRecord
from trimtab.apply.keys.migration import (
    MIGRATION_STAGES,
    KeyMigration,
    MigrationEffect,
    StageRule,
    StageWait,
    begin_migration,
    next_stage,
    resume_migration,
)
from trimtab.apply.keys.partition_fences import PartitionFences, refusal
from trimtab.apply.keys.start_up import (
    GATEWAY_START,
    TASK_START,
    GatewayStep,
    InputIdentity,
    TaskStep,
    identity_refusal,
)
from trimtab.apply.keys.task import (
    can_forget,
    can_replay,
    end_is_unreadable,
    read_record,
    replay_parked,
    take_handover,
)

History = tuple[int, ...]
"""The state of a key in the model: the numbers of the records applied, in order."""


class TaskKind(StrEnum):
    """How a task writes.

    ATOMIC: each step is a transaction. A transaction of several steps looks the same from outside
    as several of one step, and a crash is a return to the last commit, so nothing is missed.
    BATCHED: transactions of any number of steps, with crashes and frozen owners.
    SIMPLE: no transactions; parked records are held back, and the store fences old owners.
    """

    ATOMIC = "atomic"
    BATCHED = "batched"
    SIMPLE = "simple"


class ProtocolFault(StrEnum):
    """What can go wrong; the number is that of the invariant in the docs."""

    GAP = "a record was applied before an earlier one (V1)"
    REPEAT = "a record was applied twice (V1)"
    STALE_STATE = "a record was applied to a state that lacks earlier records (V2)"
    LOSS = "a record was never applied (V1)"
    STUCK = "a key waits for ever (V3)"
    OWNERS = "a key does not have exactly one owner (V3)"
    HANDOVER_LEFT = "a state was left in the hand-over topic (V3)"
    ADOPTED_TWICE = "a set was adopted twice or out of order (V4, V6)"
    OTHER_OWNER = "a record was applied on a partition that does not have its set (V5)"
    MOVE_TWICE = "a move was carried out twice"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolScenario:
    """The size of a world and the faults in it.

    Records go to the keys in turn. Each migration chooses any key and target. `moves` are taken
    from `.moves` instead, in order, as (source, target) of the first key. `batch` is the largest
    number of operations in a gateway's transaction; 0 commits each at once.
    """

    records: int
    migrations: int
    partitions: int = 2
    keys: int = 1
    mode: GatewayMode = GatewayMode.EXACTLY_ONCE
    mode_after: GatewayMode | None = None
    tasks: TaskKind = TaskKind.ATOMIC
    gateway_crashes: int = 0
    gateway_freezes: int = 0
    task_crashes: int = 0
    task_freezes: int = 0
    batch: int = 0
    parked_limit: int | None = None
    stateless: bool = False
    moves: tuple[tuple[int, int], ...] = ()
    recreations: int = 0

    def __post_init__(self) -> None:
        if self.records < 0 or self.migrations < 0 or self.keys < 1:
            raise ValueError("A scenario has no negative counts, and at least one key.")
        if self.partitions < (2 if self.migrations or self.moves else 1):
            raise ValueError("A key can move only between at least two partitions.")
        if self.parked_limit is not None and self.parked_limit < 1:
            raise ValueError("A task must be able to park at least one record.")

    def home(self, key: int) -> int:
        """The home partition of a key."""
        return key % self.partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelledProtocol:
    """The step functions that the model calls, and what clients and brokers promise.

    The flags are settings and habits outside the step functions, each named after the good case.
    """

    refusal: Callable[[PartitionFences, KeyRecord], DroppedRecord | RejectedRecord | None] = refusal
    read_record: Callable[..., EntryStep[History]] = read_record
    can_replay: Callable[[KeyEntry[History]], bool] = can_replay
    replay_parked: Callable[..., EntryStep[History]] = replay_parked
    take_handover: Callable[..., EntryStep[History]] = take_handover
    end_is_unreadable: Callable[..., bool] = end_is_unreadable
    can_forget: Callable[[KeyEntry[History], int, int | None], bool] = can_forget
    begin_migration: Callable[..., tuple[GatewayShard, KeyMigration]] = begin_migration
    resume_migration: Callable[..., KeyMigration | None] = resume_migration
    next_stage: Callable[
        [GatewayShard, KeyMigration], tuple[KeyMigration, tuple[MigrationEffect, ...], StageWait]
    ] = next_stage
    stages: Mapping[GatewayMode, tuple[StageRule, ...]] = field(
        default_factory=lambda: MIGRATION_STAGES
    )
    gateway_start: tuple[GatewayStep, ...] = GATEWAY_START
    task_start: tuple[TaskStep, ...] = TASK_START
    fences_in: frozenset[GatewayMode] = frozenset(GatewayMode)
    identity_refusal: Callable[[InputIdentity | None, InputIdentity], str | None] = identity_refusal
    route_changes: Callable[[KeyRoute | None, int, int], bool] = lambda *_: False
    idempotent_producer: bool = True
    unlimited_delivery: bool = True
    waits_for_all_acks: bool = True
    fenced_offsets: bool = True
    fenced_tasks: bool = True
    restart_after_abort: bool = True
    durable_parking: bool = True
    durable_handovers: bool = True
    durable_set_ids: bool = True
    set_ids_survive_cooling: bool = True
    held_at_start: bool = True
    moves_with_routes: bool = True
    early_tombstones: bool = True
    fences_of_offset: bool = True


PROTOCOL = ModelledProtocol()
"""The protocol as it is built."""

Letter = tuple[int | None, Any]
"""A record in a log: its key, None for FENCE, and the record."""
