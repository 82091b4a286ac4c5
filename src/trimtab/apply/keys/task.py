"""The task of one partition: what records and hand-overs do to the entry of their key.

Promise  Per key, records take effect in the order of the input, each once, across any chain of
         moves. A key's state has one owner: the old side gives it up in the step that sends it,
         the new side waits for exactly that set. Steps are pure: a crash between two transactions
         is a return to the last one.
Cost     O(1) per record; a step never looks at the parked queue.
Paper    Bhattacharya & Wood, section II. Differs: markers are records of their own, states carry
         set ids, and END and START wait behind parked records of their key.

        START without its state           hand-over of that set
  OWN ──────────────────────────▶ WAIT ──────────────────────────▶ OWN
  LEFT ─────────────────────────▶                                   │ END
    ▲───────────────────────────────────────────────────────────────┘
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar, assert_never

from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    AppliedRecord,
    Apply,
    AwaitedEnd,
    DroppedRecord,
    DropReason,
    EntryStatus,
    EntryStep,
    HeldHandover,
    KeyEntry,
    KeyHandover,
    ParkedRecord,
    RejectedRecord,
    RejectReason,
    SentHandover,
    Sources,
    UnparkedRecord,
)
from trimtab.apply.keys.message_sets import (
    DataRecord,
    EndMarker,
    KeyRecord,
    PlainRecord,
    StartMarker,
)

V = TypeVar("V")

ABSENT: KeyEntry[Any] = KeyEntry()
"""The entry of a key that was never seen."""


def read_record(
    entry: KeyEntry[V], record: KeyRecord, apply: Apply[V], partition: int
) -> EntryStep[V]:
    """The step for the next record of the partition: it is parked, or processed at once.

    `apply.keys.partition_fences.refusal` comes before this.
    """
    if entry.status is EntryStatus.WAIT or entry.next_parked > entry.first_parked:
        repeated = isinstance(record, StartMarker) and record.set_id <= entry.set_id
        if not repeated:
            number = entry.next_parked
            return replace(entry, next_parked=number + 1), (ParkedRecord(number, record),)
    return process_record(entry, record, apply, partition)


def can_replay(entry: KeyEntry[V]) -> bool:
    """Whether the first parked record can be processed now."""
    return entry.next_parked > entry.first_parked and entry.status is not EntryStatus.WAIT


def replay_parked(
    entry: KeyEntry[V], record: KeyRecord, apply: Apply[V], partition: int
) -> EntryStep[V]:
    """The step for the first parked record; only if `can_replay`.

    The task calls this again and again, over several transactions if there is much to do. Until
    the queue is empty `read_record` parks whatever comes behind it.
    """
    if not can_replay(entry):
        raise ValueError("No parked record can be processed: the queue is empty, or the key waits.")
    number = entry.first_parked
    first = number + 1
    if first == entry.next_parked:  # numbers begin anew, as they do after a restore
        rest = replace(entry, first_parked=0, next_parked=0)
    else:
        rest = replace(entry, first_parked=first)
    after, effects = process_record(rest, record, apply, partition)
    return after, (*effects, UnparkedRecord(number))


def process_record(
    entry: KeyEntry[V], record: KeyRecord, apply: Apply[V], partition: int
) -> EntryStep[V]:
    """The step for a record whose turn it is."""
    match record:
        case DataRecord():
            return _process_data(entry, record, apply)
        case PlainRecord():
            if entry.status is EntryStatus.LEFT:
                return entry, (RejectedRecord(RejectReason.NO_STATE),)
            applied = replace(entry, value=apply(entry.value, record))
            return applied, (AppliedRecord(record, entry.set_id),)
        case EndMarker():
            return _process_end(entry, record, partition)
        case StartMarker():
            return _process_start(entry, record)
        case _:
            assert_never(record)


def _process_data(entry: KeyEntry[V], record: DataRecord, apply: Apply[V]) -> EntryStep[V]:
    if entry.status is EntryStatus.LEFT:  # a copy; the record also went to the new partition
        return entry, (DroppedRecord(DropReason.LEFT),)
    if record.set_id is not None and record.set_id < entry.set_id:
        return entry, (DroppedRecord(DropReason.EARLIER_SET),)
    if record.src <= entry.last_src_of(record.shard):
        return entry, (DroppedRecord(DropReason.REPLAYED),)
    after = KeyEntry(  # written out: this is the step of almost every record
        status=entry.status,
        set_id=entry.set_id,
        value=apply(entry.value, record),
        last_src=_with_source(entry.last_src, record.shard, record.src),
        first_parked=entry.first_parked,
        next_parked=entry.next_parked,
        early=entry.early,
        awaited=entry.awaited,
    )
    return after, (AppliedRecord(record, entry.set_id),)


def _with_source(sources: Sources, shard: int, src: int) -> Sources:
    if len(sources) <= 1 and all(known == shard for known, _ in sources):
        return ((shard, src),)
    return tuple(sorted({**dict(sources), shard: src}.items()))


def _process_end(entry: KeyEntry[V], end: EndMarker, partition: int) -> EntryStep[V]:
    if entry.set_id >= end.next_set:
        return entry, (DroppedRecord(DropReason.REPEATED_END),)
    handover = KeyHandover(
        set_id=end.next_set, source=partition, value=entry.value, last_src=entry.last_src
    )
    # LEFT is kept for ever: without it a repeated END would send an empty state.
    left = replace(
        entry,
        status=EntryStatus.LEFT,
        set_id=end.next_set,
        value=None,
        last_src=(),
        awaited=None,
    )
    return left, (SentHandover(end.to, handover),)


def _process_start(entry: KeyEntry[V], start: StartMarker) -> EntryStep[V]:
    if entry.set_id >= start.set_id:
        if entry.status is EntryStatus.WAIT and entry.set_id == start.set_id:
            # The END that the first START names may have been fenced: this one was sent again.
            entry = replace(entry, awaited=AwaitedEnd(start.source, start.end_offset))
        return entry, (DroppedRecord(DropReason.REPEATED_START),)
    for handover in entry.early:
        if handover.set_id == start.set_id:
            return _adopt(entry, handover, held=True)
    waiting = replace(
        entry,
        status=EntryStatus.WAIT,
        set_id=start.set_id,
        value=None,
        last_src=(),
        awaited=AwaitedEnd(start.source, start.end_offset),
    )
    return waiting, ()


def take_handover(entry: KeyEntry[V], handover: KeyHandover[V]) -> EntryStep[V]:
    """The step for a hand-over that has arrived; parked records are then replayed."""
    if entry.status is EntryStatus.WAIT and entry.set_id == handover.set_id:
        return _adopt(entry, handover)
    if handover.set_id <= entry.set_id:
        return entry, (DroppedRecord(DropReason.REPEATED_HANDOVER),)
    if any(held.set_id == handover.set_id for held in entry.early):
        return entry, (DroppedRecord(DropReason.REPEATED_HANDOVER),)
    return replace(entry, early=(*entry.early, handover)), (HeldHandover(handover),)


def _adopt(
    entry: KeyEntry[V], handover: KeyHandover[V], *, held: bool = False, lost: bool = False
) -> EntryStep[V]:
    owned = replace(
        entry,
        status=EntryStatus.OWN,
        set_id=handover.set_id,
        value=handover.value,
        last_src=handover.last_src,
        early=tuple(early for early in entry.early if early.set_id != handover.set_id),
        awaited=None,
    )
    return owned, (AdoptedHandover(handover.set_id, held=held, lost=lost),)


def adopt_empty(entry: KeyEntry[V]) -> EntryStep[V]:
    """The step of a waiting key whose END nobody will read any more (`end_is_unreadable`)."""
    if entry.status is not EntryStatus.WAIT or entry.awaited is None:
        raise ValueError("Only a waiting key can adopt the empty state.")
    empty: KeyHandover[V] = KeyHandover(set_id=entry.set_id, source=entry.awaited.partition)
    return _adopt(entry, empty, lost=True)


def end_is_unreadable(
    awaited: AwaitedEnd,
    *,
    markers_final: bool,
    log_start: int,
    group_committed: int | None,
    end_parked: bool,
    handovers_read: bool,
) -> bool:
    """Whether the state of a waiting key will never come; what it needs is looked up in this order.

    `markers_final`: `.assign` does not have the migration as prepared, and this partition was then
    read up to its end: an END that was fenced is sent again, and a repeated START says where.
    `log_start` and `group_committed` are of the partition of END. `end_parked`: END waits there,
    in `.state`, behind records of its key. `handovers_read`: `.handover` was read up to a high
    watermark and did not have the state. An END that counts and that the group has passed is
    parked, or has left its hand-over there.
    """
    if awaited.offset < 0 or not markers_final or end_parked or not handovers_read:
        return False
    passed = group_committed is not None and group_committed > awaited.offset
    return log_start > awaited.offset or passed


def can_forget(entry: KeyEntry[V], shard: int, committed: int | None) -> bool:
    """Whether FENCE of a shard lets the entry of a key go that has no value.

    Nothing below `committed` will be sent again, so nothing is left to recognise as a repeat. The
    entry of a key that has moved stays: its set id tells repeated markers from new ones.
    """
    return (
        committed is not None
        and entry.status is EntryStatus.OWN
        and entry.set_id == 0
        and entry.value is None
        and not entry.early
        and entry.next_parked == entry.first_parked
        and all(known == shard and src < committed for known, src in entry.last_src)
    )


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """How much a task may park; at a limit it pauses its data partition, not its hand-overs."""

    records: int
    size_bytes: int

    def __post_init__(self) -> None:
        if self.records < 1 or self.size_bytes < 1:
            raise ValueError("A task must be able to park at least one record.")


def must_pause(limits: ParkingLimits, *, records: int, size_bytes: int) -> bool:
    """Whether the task stops reading its data partition until parked records are processed.

    This cannot dead-lock because END is always appended before START: each wait points to a
    record that was appended earlier.
    """
    return records >= limits.records or size_bytes >= limits.size_bytes
