"""The task of one partition, between two transactions: records in, one `TaskRound` out.

Why      A transaction is open only while a round is written: a slow handler or a stopped process
         holds up no reader of other topics, and a crash is a return to the last round.
Promise  Everything that a record causes (state, parked records, hand-overs, outputs, dead letters,
         receipts) is in the round with the offset behind it. The state of a key is written once per
         round, however many of its records were handled. Whoever loses a round drops the task.
Cost     Per record one parse of its headers, one step and one call of the handler; an entry is
         parsed when its key is first used in a round. In memory: `max_parked` and one round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, assert_never

from trimtab.apply.keys.handler_calls import HandledCall, HandlerCalls
from trimtab.apply.keys.handover_layout import (
    HandoverAssembly,
    handover_chunk,
    handover_tombstones,
    handover_writes,
    held_tombstones,
    held_writes,
)
from trimtab.apply.keys.key_entry import (
    AdoptedHandover,
    AppliedRecord,
    AwaitedEnd,
    DroppedRecord,
    DropReason,
    EntryEffect,
    EntryStatus,
    EntryStep,
    HeldHandover,
    KeyEntry,
    KeyHandover,
    ParkedRecord,
    RejectedRecord,
    SentHandover,
    UnparkedRecord,
)
from trimtab.apply.keys.keyed_handler import Output
from trimtab.apply.keys.message_sets import (
    CloseMarker,
    DataRecord,
    EndMarker,
    FenceMarker,
    KeyRecord,
    OpenMarker,
    PartitionMarker,
    PlainRecord,
    StartMarker,
)
from trimtab.apply.keys.partition_fences import read_marker, refusal
from trimtab.apply.keys.record_headers import MalformedRecord, parse
from trimtab.apply.keys.state_layout import (
    FENCE_KEY,
    TOPIC_KEY,
    RestoredState,
    fence_text,
    parked_key,
    parked_record,
    parked_text,
    topic_text,
)
from trimtab.apply.keys.task import (
    adopt_empty,
    can_replay,
    must_pause,
    read_record,
    replay_parked,
    take_handover,
)
from trimtab.apply.keys.task_entries import TaskEntries
from trimtab.apply.keys.task_round import (
    Adoption,
    AppliedReceipt,
    DeadLetter,
    HandoverWrite,
    TaskCounts,
    TaskHandling,
    TaskLimits,
    TaskRound,
)
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

_BATCH = 500


class _Waiting(NamedTuple):
    """A record that the batch form of the handler gets with others of its key."""

    record: Record
    set_id: int


class PartitionTask:
    """The keys of one partition; used by one thread.

    Attributes:
        urgent: Whether the round should be written at once: another task waits for what is in it.
        close_errors: What the handler's `close` raised; the states were handed over all the same.
    """

    def __init__(
        self,
        partition: TopicPartition,
        restored: RestoredState,
        handling: TaskHandling,
        *,
        partitions: int,
        topic_id: str | None = None,
        limits: TaskLimits | None = None,
    ) -> None:
        self.partition = partition
        self.counts = TaskCounts()
        self.urgent = False
        self.close_errors: list[str] = []
        self._handling = handling
        self._limits = limits or TaskLimits()
        self._partitions = partitions
        self._entries = TaskEntries(
            restored, self.counts, max_state_bytes=self._limits.max_state_bytes
        )
        self._calls = HandlerCalls(handling)
        self._fences = restored.fences
        self._parked: dict[bytes, deque[Record]] = {}
        self._handover_chunks: dict[tuple[bytes, int], int] = {}
        self._assembly = HandoverAssembly()
        self._since: dict[bytes, float] = {}
        self._replaying: dict[bytes, None] = {}
        self._batches: dict[bytes, list[_Waiting]] = {}
        self._round = TaskRound()
        self._key = b""
        self._call: HandledCall | None = None
        self._arrived_ms = 0
        self._restore(restored)
        if topic_id is not None and restored.topic_id is None:
            self._round.state[TOPIC_KEY] = topic_text(topic_id)

    def _restore(self, restored: RestoredState) -> None:
        counts = self.counts
        for key, held in restored.held.items():
            self._handover_chunks |= {(key, set_id): of for set_id, (_, of) in held.items()}
            counts.early += len(held)
        for key, texts in restored.parked.items():
            topic, partition = self.partition
            queue = deque(parked_record(topic, partition, key, texts[n]) for n in sorted(texts))
            self._parked[key] = queue
            counts.parked_records += len(queue)
            counts.parked_bytes += sum(record.size for record in queue)
        now = self._handling.clock()
        for key, entry in self._entries.live.items():
            if entry.status is EntryStatus.WAIT:
                self._since[key] = now
            elif can_replay(entry):
                self._replaying[key] = None

    # ------------------------------------------------------------ what is going on

    @property
    def is_paused(self) -> bool:
        """Whether so much is parked that the data partition must not be read on."""
        counts = self.counts
        return must_pause(
            self._limits.parking, records=counts.parked_records, size_bytes=counts.parked_bytes
        )

    @property
    def is_replaying(self) -> bool:
        """Whether parked records can be handled now."""
        return bool(self._replaying)

    @property
    def size_bytes(self) -> int:
        """About how much the round will write."""
        return self._round.size_bytes + self._entries.touched_bytes

    @property
    def oldest_wait_s(self) -> float:
        """How long the key that waits longest has waited; 0 if none waits."""
        oldest = min(self._since.values(), default=None)
        return 0.0 if oldest is None else self._handling.clock() - oldest

    def overdue(self, after_s: float) -> dict[bytes, AwaitedEnd]:
        """The keys that have waited longer than this, with the END that they wait for."""
        before = self._handling.clock() - after_s
        found = {}
        for key, since in self._since.items():
            awaited = self._entries.get(key).awaited
            if since <= before and awaited is not None:
                found[key] = awaited
        return found

    def awaited_set(self, key: bytes) -> int | None:
        """The set that a key waits for; None if it does not wait."""
        entry = self._entries.get(key)
        return entry.set_id if entry.status is EntryStatus.WAIT else None

    # ------------------------------------------------------------ steps

    def read(self, record: Record) -> None:
        """Takes the next record of the data partition.

        Raises `Interrupted` if the consumer was stopped before the record was handled: it then
        counts as not read, and no more records may follow.
        """
        parsed = parse(record)
        if isinstance(parsed, DataRecord | PlainRecord | EndMarker | StartMarker):
            wrong = self._misdirected(parsed)
            if wrong is None:
                self._read(record, parsed)
            else:
                self._bury(record, f"invalid headers: {wrong}")
        elif isinstance(parsed, MalformedRecord):
            self._bury(record, f"invalid headers: {parsed.reason}")
        else:
            self._mark(parsed)
        finished = self._round
        finished.data_offset = record.offset + 1
        finished.records += 1
        finished.record_bytes += record.size

    def _misdirected(self, parsed: KeyRecord) -> str | None:
        """Why a marker cannot be followed; None if it can."""
        if isinstance(parsed, EndMarker) and not 0 <= parsed.to < self._partitions:
            return f"tt-to names partition {parsed.to}, which does not exist"
        if isinstance(parsed, StartMarker) and not 0 <= parsed.source < self._partitions:
            return f"tt-from names partition {parsed.source}, which does not exist"
        here = self.partition.partition
        if isinstance(parsed, EndMarker) and parsed.to == here:
            return f"tt-to names partition {here} itself"  # its state would have no taker
        if isinstance(parsed, StartMarker) and parsed.source == here:
            return f"tt-from names partition {here} itself"
        return None

    def _mark(self, marker: PartitionMarker) -> None:
        match marker:
            case FenceMarker():
                self._entries.forget(marker)
            case CloseMarker() | OpenMarker():
                pass
            case _:
                assert_never(marker)
        self._fences = read_marker(self._fences, marker)
        self._round.state[FENCE_KEY] = fence_text(self._fences)

    def _read(self, record: Record, parsed: KeyRecord) -> None:
        key = record.key or b""
        refused = refusal(self._fences, parsed)
        if refused is not None:
            self._perform(key, refused, record)
            return
        if self._batches:
            self._make_room(key, parsed)
        self._key = key
        entry = self._entries.get(key)
        step = read_record(entry, parsed, self._apply, self.partition.partition)
        self._take(key, entry, step, record)

    def read_handover(self, record: Record) -> None:
        """Takes the next record of `.handover`."""
        chunk = handover_chunk(record.key or b"", record.value)
        complete = self._assembly.add(chunk, record.offset)
        if complete is not None:
            handover, of = complete
            self._handover_chunks[chunk.key, handover.set_id] = of
            self._arrived_ms = record.timestamp_ms
            entry = self._entries.get(chunk.key)
            self._take(chunk.key, entry, take_handover(entry, handover), None)
            self._arrived_ms = 0
        self.pass_handovers(record.offset + 1)

    def pass_handovers(self, offset: int) -> None:
        """Everything of `.handover` below this offset was read."""
        incomplete = self._assembly.offset
        self._round.handover_offset = offset if incomplete is None else min(offset, incomplete)

    def replay(self, until: Callable[[], bool]) -> None:
        """Handles parked records whose state has arrived, until `until` says so.

        Raises `Interrupted` as `read` does: the record then stays parked.
        """
        while self._replaying and not until():
            key = next(iter(self._replaying))
            if can_replay(self._entries.get(key)):
                self._replay(key)
            else:
                del self._replaying[key]

    def _replay(self, key: bytes) -> None:
        queue = self._parked[key]
        record = queue[0]
        parsed = parse(record)
        assert isinstance(parsed, KeyRecord)  # noqa: S101 - nothing else is parked
        self._make_room(key, parsed)
        self._key = key
        entry = self._entries.get(key)
        step = replay_parked(entry, parsed, self._apply, self.partition.partition)
        queue.popleft()
        if not queue:
            del self._parked[key]
        self.counts.parked_records -= 1
        self.counts.parked_bytes -= record.size
        self._round.other_bytes += record.size
        self._take(key, entry, step, record)

    def adopt_lost(self, key: bytes) -> None:
        """Goes on with the empty state, since the one that the key waits for cannot come."""
        entry = self._entries.get(key)
        self._take(key, entry, adopt_empty(entry), None)

    def _take(
        self,
        key: bytes,
        before: KeyEntry[bytes],
        step: EntryStep[bytes],
        record: Record | None,
    ) -> None:
        after, effects = step
        if after is not before:
            self._entries.put(key, before, after)
        for effect in effects:
            if isinstance(effect, AppliedRecord):
                self._note(key, effect)
            else:
                self._perform(key, effect, record)
        if after.status is EntryStatus.WAIT:
            self._since.setdefault(key, self._handling.clock())
        elif after.next_parked and can_replay(after):
            self._replaying[key] = None

    # ------------------------------------------------------------ effects

    def _perform(self, key: bytes, effect: EntryEffect[bytes], record: Record | None) -> None:
        match effect:
            case AppliedRecord():
                self._note(key, effect)
            case SentHandover(to, handover):
                self._send(key, to, handover)
            case AdoptedHandover():
                self._adopted(key, effect)
            case HeldHandover(handover):
                count = self._handover_chunks[key, handover.set_id]
                self._round.state.update(held_writes(key, handover, count))
                self.counts.early += 1
            case ParkedRecord(number):
                assert record is not None  # noqa: S101 - only records are parked
                self._round.state[parked_key(key, number)] = parked_text(record)
                self._parked.setdefault(key, deque()).append(record)
                self.counts.parked_records += 1
                self.counts.parked_bytes += record.size
            case UnparkedRecord(number):
                self._round.state[parked_key(key, number)] = None
            case DroppedRecord(reason):
                self.counts.dropped[reason] += 1
                if reason is DropReason.REPEATED_HANDOVER:
                    self._clear_repeated(key)
            case RejectedRecord(reason):
                assert record is not None  # noqa: S101 - only records are rejected
                self._bury(record, str(reason))
            case _:
                assert_never(effect)

    def _send(self, key: bytes, to: int, handover: KeyHandover[bytes]) -> None:
        writes = handover_writes(key, handover, self._limits.max_state_bytes)
        self._round.handovers += [HandoverWrite(to, name, text) for name, text in writes]
        size = len(handover.value or b"")
        self._round.other_bytes += size
        self.counts.handovers_out += 1
        self.counts.handover_bytes_out += size
        self.urgent = True
        outputs, error = self._calls.close(key, handover.value)
        self._put_out(outputs)
        if error is not None:
            self.close_errors.append(error)

    def _adopted(self, key: bytes, adopted: AdoptedHandover) -> None:
        entry = self._entries.get(key)
        count = self._handover_chunks.pop((key, adopted.set_id), 1)
        if not adopted.lost:
            self._clear(key, adopted.set_id, count)
        if adopted.held:
            self._round.state.update(held_tombstones(key, adopted.set_id, count))
            self.counts.early -= 1
        since = self._since.pop(key, None)
        size = len(entry.value or b"")
        now_ms = self._handling.now_us() // 1000
        self._round.adoptions.append(
            Adoption(
                size_bytes=size,
                travel_s=max(0, now_ms - self._arrived_ms) / 1000 if self._arrived_ms else 0.0,
                blocked_s=0.0 if since is None else self._handling.clock() - since,
                lost=adopted.lost,
            )
        )
        self.counts.handovers_in += 1
        self.counts.handover_bytes_in += size
        self.counts.lost_states += adopted.lost
        self.urgent = True

    def _clear_repeated(self, key: bytes) -> None:
        """Tombstones for a hand-over that was adopted before: `.handover` must become empty."""
        held = {early.set_id for early in self._entries.get(key).early}
        names = [name for name in self._handover_chunks if name[0] == key and name[1] not in held]
        for name in names:
            self._clear(key, name[1], self._handover_chunks.pop(name))

    def _clear(self, key: bytes, set_id: int, count: int) -> None:
        here = self.partition.partition
        for name, text in handover_tombstones(key, set_id, count):
            self._round.handovers.append(HandoverWrite(here, name, text))

    def _bury(self, record: Record, reason: str) -> None:
        self._round.dead_letters.append(DeadLetter(record, reason))
        self._round.other_bytes += record.size
        self.counts.dead_letters += 1

    def _put_out(self, outputs: Sequence[Output]) -> None:
        self._round.outputs += outputs
        for output in outputs:
            self._round.other_bytes += len(output.value or b"") + len(output.key or b"")

    # ------------------------------------------------------------ the handler

    def _apply(self, value: bytes | None, applied: DataRecord | PlainRecord) -> bytes | None:
        """Called by a step when the record is to take effect; the batch form comes later."""
        if self._calls.is_batch:
            return value
        record = applied.payload
        assert isinstance(record, Record)  # noqa: S101 - see `parse`
        self._call = self._calls.handle(self._key, value, record)
        return self._call.value

    def _note(self, key: bytes, applied: AppliedRecord) -> None:
        record = applied.record.payload
        assert isinstance(record, Record)  # noqa: S101 - see `parse`
        call = self._call
        if call is None:
            self._batches.setdefault(key, []).append(_Waiting(record, applied.set_id))
            return
        if call.outputs:
            self._put_out(call.outputs)
        self._finish(record, applied.set_id, call, call.chain)

    def _finish(self, record: Record, set_id: int, call: HandledCall, chain: str | None) -> None:
        self.counts.applied += 1
        if call.error is not None:
            self._bury(record, call.error)
        self._round.receipts.append(
            AppliedReceipt(record, set_id, call.started_ts, call.finished_ts, chain)
        )

    def _make_room(self, key: bytes, record: KeyRecord) -> None:
        """Handles what waits for the batch form, before a marker and when it is much.

        Not after a record has joined it: one that was interrupted counts as not read.
        """
        waiting = self._batches.get(key)
        if waiting is not None:
            is_marker = isinstance(record, EndMarker | StartMarker)
            if is_marker or len(waiting) >= _BATCH:
                self._handle_batch(key, waiting)

    def _handle_batch(self, key: bytes, waiting: list[_Waiting]) -> None:
        """Handles waiting records at once; one by one if that fails: only bad ones are buried."""
        if len(waiting) > 1 and self._handled(key, waiting, bury=False):
            waiting.clear()
        while waiting:
            self._handled(key, waiting[:1], bury=True)
            del waiting[0]
        del self._batches[key]

    def _handled(self, key: bytes, waiting: Sequence[_Waiting], *, bury: bool) -> bool:
        """Calls the batch form with these records; returns whether that is done."""
        entry = self._entries.get(key)
        call = self._calls.handle_batch(key, entry.value, [one.record for one in waiting])
        if call.error is not None and not bury:
            return False
        self._put_out(call.outputs)
        if call.value is not entry.value:
            self._entries.put(key, entry, replace(entry, value=call.value))
        for number, one in enumerate(waiting, 1):
            chain = call.chain if number == len(waiting) else None
            self._finish(one.record, one.set_id, call, chain)
        return True

    # ------------------------------------------------------------ rounds

    def finish_round(self) -> TaskRound:
        """Everything since the last round; the caller writes it in one transaction.

        Raises `Interrupted` if the consumer was stopped while the batch form was at work: the round
        is lost then, and the task must be dropped.
        """
        for key, waiting in list(self._batches.items()):
            self._handle_batch(key, waiting)
        self._entries.write(self._round.state)
        finished, self._round = self._round, TaskRound()
        self._calls.forget_states()
        self.urgent = False
        return finished
