"""What a task writes in one transaction, what it has done, and what it works with."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from trimtab.apply.keys.key_entry import DropReason
from trimtab.apply.keys.keyed_handler import KeyedHandler, Output
from trimtab.apply.keys.task import ParkingLimits
from trimtab.kafka.retry import Retry
from trimtab.model.record import Record
from trimtab.observe.clock import wall_clock_us

_MB = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLimits:
    """When a state is cut into chunks, and how much a task may park."""

    max_state_bytes: int = 600_000
    parking: ParkingLimits = field(default_factory=lambda: ParkingLimits(10_000, 64 * _MB))

    def __post_init__(self) -> None:
        if self.max_state_bytes < 1:
            raise ValueError("A chunk of state must hold at least one byte.")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHandling:
    """The user's handler, how often it is tried, and the clocks.

    `stopped_within` waits this many seconds; it returns True at once if the consumer must stop.
    `in_hand` is called with each record before it is handled, and with None afterwards.
    `check_output` raises for an output that brokers would refuse.
    """

    handler: KeyedHandler
    retry: Retry = field(default_factory=Retry)
    stopped_within: Callable[[float], bool] = field(default=lambda _pause_s: False)
    in_hand: Callable[[Record | None], None] = field(default=lambda _record: None)
    check_output: Callable[[Output], None] = field(default=lambda _output: None)
    now_us: Callable[[], int] = wall_clock_us
    clock: Callable[[], float] = time.monotonic


class AppliedReceipt(NamedTuple):
    """A record that took effect in a set; `chain` is the handler's, for audits."""

    record: Record
    set_id: int
    started_ts: int
    finished_ts: int
    chain: str | None


class DeadLetter(NamedTuple):
    """A record that cannot be handled, and why."""

    record: Record
    reason: str


class Adoption(NamedTuple):
    """A state that has arrived: its bytes, its time on the way, and how long its key waited."""

    size_bytes: int
    travel_s: float
    blocked_s: float
    lost: bool = False


class HandoverWrite(NamedTuple):
    """A record for a partition of `.handover`."""

    partition: int
    key: bytes
    value: bytes | None


@dataclass(slots=True)
class TaskRound:
    """What one transaction of a task writes; offsets are the next ones to read, None if unmoved.

    `record_bytes` are those of the records read, `other_bytes` of parked records that were handled,
    outputs, dead letters and states that leave.
    """

    state: dict[bytes, bytes | None] = field(default_factory=dict)
    handovers: list[HandoverWrite] = field(default_factory=list)
    outputs: list[Output] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)
    receipts: list[AppliedReceipt] = field(default_factory=list)
    adoptions: list[Adoption] = field(default_factory=list)
    data_offset: int | None = None
    handover_offset: int | None = None
    records: int = 0
    record_bytes: int = 0
    other_bytes: int = 0

    @property
    def size_bytes(self) -> int:
        """About how much it writes, without the states that stay."""
        return self.record_bytes + self.other_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return self.data_offset is None and self.handover_offset is None and not self.writes

    @property
    def writes(self) -> bool:
        """Whether there are records to write, and not only offsets."""
        return bool(
            self.state or self.handovers or self.outputs or self.dead_letters or self.receipts
        )


@dataclass(slots=True)
class TaskCounts:
    """What a task has done since it began, and what it holds now."""

    owned: int = 0
    waiting: int = 0
    left: int = 0
    parked_records: int = 0
    parked_bytes: int = 0
    early: int = 0
    applied: int = 0
    dead_letters: int = 0
    handovers_in: int = 0
    handovers_out: int = 0
    handover_bytes_in: int = 0
    handover_bytes_out: int = 0
    lost_states: int = 0
    dropped: Counter[DropReason] = field(default_factory=Counter)
