"""Broken variants of the protocol, each of which the model must find.

A variant replaces a step function, an order, or a promise of clients and brokers; production code
knows nothing of them. `kind` is the fault that the model finds first in the smallest scenario.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    Apply,
    AwaitedEnd,
    DroppedRecord,
    DropReason,
    EntryStatus,
    EntryStep,
    KeyEntry,
    KeyHandover,
    SentHandover,
)
from trimtab.apply.keys.key_route import GatewayMode, KeyRoute
from trimtab.apply.keys.message_sets import EndMarker, KeyRecord
from trimtab.apply.keys.migration import MIGRATION_STAGES, MigrationStage, StageRule, StageWait
from trimtab.apply.keys.start_up import GatewayStep, TaskStep
from trimtab.apply.keys.task import (
    can_forget,
    end_is_unreadable,
    process_record,
    read_record,
    replay_parked,
    take_handover,
)
from trimtab.simulate.key_protocol.scenario import (
    PROTOCOL,
    History,
    ModelledProtocol,
    ProtocolFault,
    ProtocolScenario,
    TaskKind,
)

_EXACTLY_ONCE, _LOW_LATENCY = GatewayMode.EXACTLY_ONCE, GatewayMode.LOW_LATENCY
_Entry = KeyEntry[History]
_Step = EntryStep[History]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProtocolVariant:
    """A broken protocol, what is wrong with it, and where the model finds that."""

    name: str
    wrong: str
    protocol: ModelledProtocol
    scenario: ProtocolScenario
    kind: ProtocolFault


# ---------------------------------------------------------------- steps of tasks


def _end_at_once(entry: _Entry, record: KeyRecord, apply: Apply[History], partition: int) -> _Step:
    if isinstance(record, EndMarker):
        return process_record(entry, record, apply, partition)
    return read_record(entry, record, apply, partition)


def _overtaking(entry: _Entry, record: KeyRecord, apply: Apply[History], partition: int) -> _Step:
    if entry.status is EntryStatus.OWN and entry.parked:
        return process_record(entry, record, apply, partition)
    return read_record(entry, record, apply, partition)


def _early_ignored(entry: _Entry, handover: KeyHandover[History]) -> _Step:
    if entry.status is EntryStatus.WAIT and entry.set_id == handover.set_id:
        return take_handover(entry, handover)
    return entry, (DroppedRecord(DropReason.REPEATED_HANDOVER),)


def _overwriting(entry: _Entry, handover: KeyHandover[History]) -> _Step:
    if entry.status is EntryStatus.OWN and entry.set_id == handover.set_id:
        older = replace(entry, value=handover.value, last_src=handover.last_src)
        return older, (AdoptedHandover(handover.set_id),)
    return take_handover(entry, handover)


def _without_left(after: _Step) -> _Step:
    entry, effects = after
    if any(isinstance(effect, SentHandover) for effect in effects):
        return replace(entry, status=EntryStatus.OWN, set_id=0), effects
    return after


def _read_without_left(
    entry: _Entry, record: KeyRecord, apply: Apply[History], partition: int
) -> _Step:
    return _without_left(read_record(entry, record, apply, partition))


def _replay_without_left(
    entry: _Entry, record: KeyRecord, apply: Apply[History], partition: int
) -> _Step:
    return _without_left(replay_parked(entry, record, apply, partition))


def _read_without_sources(
    entry: _Entry, record: KeyRecord, apply: Apply[History], partition: int
) -> _Step:
    return read_record(replace(entry, last_src=()), record, apply, partition)


def _forgets_all(entry: _Entry, shard: int, committed: int | None) -> bool:
    return can_forget(replace(entry, last_src=()), shard, committed)


def _forgets_moved(entry: _Entry, shard: int, committed: int | None) -> bool:
    owned = entry.status is EntryStatus.OWN and not entry.parked and not entry.early
    return owned and can_forget(replace(entry, set_id=0), shard, committed)


def _parked_end_is_unreadable(awaited: AwaitedEnd, **found: Any) -> bool:
    return end_is_unreadable(awaited, **{**found, "end_parked": False})


def _fenced_end_is_unreadable(awaited: AwaitedEnd, **found: Any) -> bool:
    return end_is_unreadable(awaited, **{**found, "markers_final": True})


# ---------------------------------------------------------------- steps of gateways


def _cooling_is_no_migration(route: KeyRoute | None, home: int, target: int) -> bool:
    return route is not None and target == home


def _low_latency_stages(*rules: tuple[MigrationStage, StageWait]) -> ModelledProtocol:
    stages = tuple(StageRule(stage, wait) for stage, wait in rules)
    return replace(PROTOCOL, stages={**MIGRATION_STAGES, _LOW_LATENCY: stages})


_PREPARE, _END, _START, _FINISH = MigrationStage
_NOTHING, _ACKS, _COMMIT = StageWait

_READ_FIRST = (
    GatewayStep.READ_ROUTES,
    GatewayStep.FETCH_POSITION,
    GatewayStep.FENCE_PREDECESSOR,
    GatewayStep.RAISE_GENERATION,
    GatewayStep.SEND_FENCES,
    GatewayStep.FINISH_PREPARED,
)
_RESTORE_FIRST = (TaskStep.RESTORE, TaskStep.FETCH_POSITIONS, TaskStep.FENCE_PREDECESSOR)


# ---------------------------------------------------------------- the list

_ATOMIC = ProtocolScenario(records=2, migrations=2)
_LOW = ProtocolScenario(records=2, migrations=1, mode=_LOW_LATENCY, gateway_crashes=1)
_BATCHED = ProtocolScenario(records=2, migrations=1, tasks=TaskKind.BATCHED, task_crashes=1)
_SIMPLE = ProtocolScenario(records=3, migrations=1, tasks=TaskKind.SIMPLE, task_crashes=1)


def _variant(
    name: str,
    wrong: str,
    protocol: ModelledProtocol,
    scenario: ProtocolScenario,
    kind: ProtocolFault,
) -> ProtocolVariant:
    return ProtocolVariant(name=name, wrong=wrong, protocol=protocol, scenario=scenario, kind=kind)


BROKEN_VARIANTS: tuple[ProtocolVariant, ...] = (
    _variant(
        "end-overtakes-parked-records",
        "END is processed when it is read, although records of its key are parked",
        replace(PROTOCOL, read_record=_end_at_once),
        _ATOMIC,
        ProtocolFault.STALE_STATE,
    ),
    _variant(
        "early-handover-ignored",
        "a hand-over that comes before its START is dropped",
        replace(PROTOCOL, take_handover=_early_ignored),
        _ATOMIC,
        ProtocolFault.STUCK,
    ),
    _variant(
        "cooling-without-migration",
        "a key that cools down only changes its route",
        replace(PROTOCOL, route_changes=_cooling_is_no_migration),
        _ATOMIC,
        ProtocolFault.LOSS,
    ),
    _variant(
        "set-ids-begin-again",
        "set ids begin again when a key has come home",
        replace(PROTOCOL, set_ids_survive_cooling=False),
        replace(_ATOMIC, migrations=3),
        ProtocolFault.LOSS,
    ),
    _variant(
        "set-ids-in-memory",
        "the counter of set ids is not in the routing log",
        replace(PROTOCOL, durable_set_ids=False),
        replace(_ATOMIC, migrations=3, gateway_crashes=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "parked-in-memory",
        "parked records are only in memory, and their offsets are committed",
        replace(PROTOCOL, durable_parking=False),
        _BATCHED,
        ProtocolFault.GAP,
    ),
    _variant(
        "held-back-by-count",
        "a simple task commits its position minus the number of parked records",
        replace(PROTOCOL, held_at_start=False),
        replace(_SIMPLE, records=1, gateway_crashes=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "handover-by-message",
        "a hand-over is a message to a process, not a record in a topic",
        replace(PROTOCOL, durable_handovers=False),
        _BATCHED,
        ProtocolFault.STUCK,
    ),
    _variant(
        "handover-overwrites",
        "a repeated hand-over replaces the state that was adopted before",
        replace(PROTOCOL, take_handover=_overwriting),
        _SIMPLE,
        ProtocolFault.GAP,
    ),
    _variant(
        "no-left-mark",
        "a key that has left leaves no mark behind",
        replace(PROTOCOL, read_record=_read_without_left, replay_parked=_replay_without_left),
        replace(_LOW, records=1),
        ProtocolFault.HANDOVER_LEFT,
    ),
    _variant(
        "no-source-offsets",
        "records are not compared with the newest source offset applied",
        replace(PROTOCOL, read_record=_read_without_sources),
        _LOW,
        ProtocolFault.REPEAT,
    ),
    _variant(
        "routes-after-markers",
        "the routing log is written after the markers",
        _low_latency_stages((_END, _ACKS), (_START, _ACKS), (_FINISH, _COMMIT)),
        replace(_LOW, records=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "start-without-waiting",
        "START is sent before END is acknowledged",
        replace(
            _low_latency_stages(
                (_PREPARE, _COMMIT), (_END, _NOTHING), (_START, _ACKS), (_FINISH, _COMMIT)
            ),
            waits_for_all_acks=False,
        ),
        replace(_LOW, records=1),
        ProtocolFault.STUCK,
    ),
    _variant(
        "producer-not-idempotent",
        "records in flight may be stored in another order",
        replace(PROTOCOL, idempotent_producer=False),
        replace(_LOW, migrations=0, gateway_crashes=0),
        ProtocolFault.GAP,
    ),
    _variant(
        "no-fence",
        "no FENCE in low_latency: records of a dead gateway count whenever they come",
        replace(PROTOCOL, fences_in=frozenset({_EXACTLY_ONCE})),
        replace(_LOW, migrations=2),
        ProtocolFault.GAP,
    ),
    _variant(
        "unfenced-task",
        "an owner that was frozen can still commit",
        replace(PROTOCOL, fenced_tasks=False),
        replace(_BATCHED, task_crashes=0, task_freezes=1),
        ProtocolFault.STALE_STATE,
    ),
    _variant(
        "start-before-end",
        "START and records of the new set are stored before END; tasks pause at their limit",
        _low_latency_stages(
            (_PREPARE, _COMMIT), (_START, _ACKS), (_FINISH, _COMMIT), (_END, _ACKS)
        ),
        ProtocolScenario(records=2, keys=2, migrations=2, mode=_LOW_LATENCY, parked_limit=1),
        ProtocolFault.STUCK,
    ),
    _variant(
        "delivery-times-out",
        "a record is given up after a time-out while a later one is stored",
        replace(PROTOCOL, unlimited_delivery=False),
        replace(_LOW, migrations=0),
        ProtocolFault.GAP,
    ),
    _variant(
        "offsets-not-fenced",
        "a gateway that was frozen can still commit offsets of its input",
        replace(PROTOCOL, fenced_offsets=False),
        replace(_LOW, records=1, migrations=0, partitions=1, gateway_freezes=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "input-recreated",
        "an input topic that was created again is not noticed",
        replace(PROTOCOL, identity_refusal=lambda *_: None),
        ProtocolScenario(records=2, migrations=0, recreations=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "restore-before-fencing",
        "a task reads its changelog and its offsets before it fences the owner before it",
        replace(PROTOCOL, task_start=_RESTORE_FIRST),
        replace(_BATCHED, task_crashes=0, task_freezes=1),
        ProtocolFault.STALE_STATE,
    ),
    _variant(
        "routes-before-fencing",
        "a gateway reads its routes and its offset before it fences the one before it",
        replace(PROTOCOL, gateway_start=_READ_FIRST),
        replace(_ATOMIC, migrations=1, gateway_freezes=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "routes-kept-after-abort",
        "a gateway whose transaction was aborted goes on with its routes",
        replace(PROTOCOL, restart_after_abort=False),
        replace(_ATOMIC, migrations=1, gateway_crashes=1, batch=2),
        ProtocolFault.OTHER_OWNER,
    ),
    _variant(
        "queue-overtaken",
        "new records are applied while the parked queue is half empty",
        replace(PROTOCOL, read_record=_overtaking),
        _ATOMIC,
        ProtocolFault.GAP,
    ),
    _variant(
        "no-fence-in-the-other-mode",
        "after a crash in low_latency a gateway starts in exactly_once without FENCE",
        replace(PROTOCOL, fences_in=frozenset({_LOW_LATENCY})),
        replace(_LOW, migrations=2, mode_after=_EXACTLY_ONCE),
        ProtocolFault.GAP,
    ),
    _variant(
        "early-handover-without-tombstone",
        "a hand-over that came before its START stays in the topic",
        replace(PROTOCOL, early_tombstones=False),
        _ATOMIC,
        ProtocolFault.HANDOVER_LEFT,
    ),
    _variant(
        "move-carried-out-twice",
        "the offset of .moves is not committed together with the prepared route",
        replace(PROTOCOL, moves_with_routes=False),
        replace(_LOW, records=0, moves=((0, 1), (1, 0))),
        ProtocolFault.MOVE_TWICE,
    ),
    _variant(
        "moved-entries-forgotten",
        "FENCE lets entries of keys go that have moved here",
        replace(PROTOCOL, can_forget=_forgets_moved),
        replace(_LOW, records=1, stateless=True),
        ProtocolFault.OTHER_OWNER,
    ),
    _variant(
        "entries-forgotten-too-early",
        "FENCE lets entries go whose records may be sent again",
        replace(PROTOCOL, can_forget=_forgets_all),
        replace(_LOW, records=1, stateless=True),
        ProtocolFault.REPEAT,
    ),
    _variant(
        "newest-fences-at-an-older-offset",
        "a simple task that reads held-back records again knows of a FENCE behind them",
        replace(PROTOCOL, fences_of_offset=False),
        replace(_SIMPLE, records=1, gateway_crashes=1),
        ProtocolFault.LOSS,
    ),
    _variant(
        "parked-end-taken-for-unreadable",
        "a key adopts the empty state because its END was passed, although it is only parked",
        replace(PROTOCOL, end_is_unreadable=_parked_end_is_unreadable),
        _ATOMIC,
        ProtocolFault.ADOPTED_TWICE,
    ),
    _variant(
        "fenced-end-taken-for-unreadable",
        "a key adopts the empty state because its END was passed, although it is to be sent again",
        replace(PROTOCOL, end_is_unreadable=_fenced_end_is_unreadable),
        replace(_LOW, records=0, gateway_crashes=0, gateway_freezes=1),
        ProtocolFault.HANDOVER_LEFT,
    ),
)
"""All variants but the one of chunks, which has a model of its own (`compaction`)."""
