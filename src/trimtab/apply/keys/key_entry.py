"""What a task knows of one key, and the effects of a step.

An entry that differs from the one before the step is written to the changelog `.state`; parked
records and early hand-overs have keys of their own there, written by their effects. All effects
of a step, the entry and the offsets belong into one transaction of the task.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

from trimtab.apply.keys.message_sets import DataRecord, KeyRecord, PlainRecord

V = TypeVar("V")

Apply = Callable[[V | None, DataRecord | PlainRecord], V | None]
"""The application: the value after a record. None is no value."""

Sources = tuple[tuple[int, int], ...]
"""The newest source offset applied, by gateway shard; almost always of one shard."""


class EntryStatus(StrEnum):
    """Whether this partition has the state of a key."""

    OWN = "own"
    WAIT = "wait"
    LEFT = "left"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyHandover(Generic[V]):
    """The state of a key on its way to the partition that has the set `set_id`."""

    set_id: int
    source: int
    value: V | None = None
    last_src: Sources = ()


@dataclass(frozen=True, slots=True)
class AwaitedEnd:
    """Where the END is that a waiting key needs: a partition and an offset, -1 if unknown."""

    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyEntry(Generic[V]):
    """The state of one key at one partition.

    The parked queue itself is kept by the task, in memory and under `p` in the changelog; the
    entry knows the numbers of its first and of its next record, so that a step costs the same
    whatever is parked.
    """

    status: EntryStatus = EntryStatus.OWN
    set_id: int = 0
    value: V | None = None
    last_src: Sources = ()
    first_parked: int = 0
    next_parked: int = 0
    early: tuple[KeyHandover[V], ...] = ()
    awaited: AwaitedEnd | None = None

    @property
    def parked(self) -> int:
        """The number of parked records."""
        return self.next_parked - self.first_parked

    def last_src_of(self, shard: int) -> int:
        """The newest source offset of a shard that was applied; -1 if none."""
        for known, src in self.last_src:
            if known == shard:
                return src
        return -1


class DropReason(StrEnum):
    """Why a record or a hand-over has no effect."""

    FENCED = "written by an earlier generation of its gateway shard"
    LEFT = "the key has left this partition"
    EARLIER_SET = "belongs to an earlier set"
    REPLAYED = "was applied before"
    REPEATED_END = "the set has ended before"
    REPEATED_START = "the set has started before"
    REPEATED_HANDOVER = "the state was adopted before"


class RejectReason(StrEnum):
    """Why a record goes to the dead letters."""

    CLOSED = "written past the gateway, and the partition takes only routed records"
    NO_STATE = "written past the gateway to a partition that does not have the key"


@dataclass(frozen=True, slots=True)
class AppliedRecord:
    """The record took effect in the set `set_id` of the entry; a receipt says so."""

    record: DataRecord | PlainRecord
    set_id: int


@dataclass(frozen=True, slots=True)
class SentHandover(Generic[V]):
    """A record for `.handover` of partition `to`."""

    to: int
    handover: KeyHandover[V]


@dataclass(frozen=True, slots=True)
class AdoptedHandover:
    """The state of a set was adopted: tombstones in `.handover`, and in `.state` if held there.

    `lost` when END could not be read any more and the empty state was adopted instead.
    """

    set_id: int
    held: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class HeldHandover(Generic[V]):
    """A hand-over came before its START: it is written to `.state`."""

    handover: KeyHandover[V]


@dataclass(frozen=True, slots=True)
class ParkedRecord:
    """The record waits under this number: it is written to `.state`."""

    number: int
    record: KeyRecord


@dataclass(frozen=True, slots=True)
class UnparkedRecord:
    """The parked record of this number was processed: a tombstone in `.state`."""

    number: int


@dataclass(frozen=True, slots=True)
class DroppedRecord:
    """The record or hand-over has no effect."""

    reason: DropReason


@dataclass(frozen=True, slots=True)
class RejectedRecord:
    """The record goes to the dead letters."""

    reason: RejectReason


EntryEffect = (
    AppliedRecord
    | SentHandover[V]
    | AdoptedHandover
    | HeldHandover[V]
    | ParkedRecord
    | UnparkedRecord
    | DroppedRecord
    | RejectedRecord
)
EntryStep = tuple[KeyEntry[V], tuple[EntryEffect[V], ...]]
