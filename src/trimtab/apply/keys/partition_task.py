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
from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, assert_never

from trimtab.apply.handling import attempted, error_text
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
from trimtab.apply.keys.keyed_handler import Output, answer_of, encoded, outputs_of
from trimtab.apply.keys.message_sets import (
    CloseMarker,
    DataRecord,
    EndMarker,
    FenceMarker,
    KeyRecord,
    OpenMarker,
    PlainRecord,
)
from trimtab.apply.keys.partition_fences import read_marker, refusal
from trimtab.apply.keys.record_headers import MalformedRecord, parse
from trimtab.apply.keys.state_layout import (
    FENCE_KEY,
    TOPIC_KEY,
    HandoverAssembly,
    RestoredState,
    chunk_count,
    entry_of,
    entry_text,
    entry_writes,
    fence_text,
    handover_chunk,
    handover_tombstones,
    handover_writes,
    has_left,
    has_no_value,
    held_tombstones,
    held_writes,
    is_waiting,
    parked_key,
    parked_record,
    parked_text,
    topic_text,
)
from trimtab.apply.keys.task import (
    ABSENT,
    adopt_empty,
    can_forget,
    can_replay,
    must_pause,
    read_record,
    replay_parked,
    take_handover,
)
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
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

_BATCH = 500


class _Applied(NamedTuple):
    """How the handler dealt with the record that a step applies."""

    started_ts: int
    finished_ts: int
    chain: str | None
    error: str | None


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
        self._store: MutableMapping[bytes, bytes] = restored.entries
        self._chunks = restored.chunks
        self._fences = restored.fences
        self._parked: dict[bytes, deque[Record]] = {}
        self._handover_chunks: dict[tuple[bytes, int], int] = {}
        self._assembly = HandoverAssembly()
        self._live: dict[bytes, KeyEntry[bytes]] = {}
        self._touched: dict[bytes, KeyEntry[bytes]] = {}
        self._since: dict[bytes, float] = {}
        self._replaying: dict[bytes, None] = {}
        self._stateless: set[bytes] = set()
        self._decoded: dict[bytes, tuple[bytes, Any]] = {}
        self._batches: dict[bytes, list[_Waiting]] = {}
        self._round = TaskRound()
        self._key = b""
        self._applied: _Applied | None = None
        self._arrived_ms = 0
        self._restore(restored)
        if topic_id is not None and restored.topic_id is None:
            self._round.state[TOPIC_KEY] = topic_text(topic_id)

    def _restore(self, restored: RestoredState) -> None:
        counts = self.counts
        for key, text in self._store.items():
            if is_waiting(text):
                self._live[key] = entry_of(text)
                counts.waiting += 1
            elif has_left(text):
                counts.left += 1
            else:
                counts.owned += 1
                if has_no_value(text):
                    self._stateless.add(key)
        for key, held in restored.held.items():
            entry = self._entry(key)
            self._live[key] = replace(entry, early=tuple(held[s][0] for s in sorted(held)))
            self._handover_chunks |= {(key, set_id): of for set_id, (_, of) in held.items()}
            counts.early += len(held)
        for key, texts in restored.parked.items():
            numbers = sorted(texts)
            entry = self._entry(key)
            self._live[key] = replace(entry, first_parked=numbers[0], next_parked=numbers[-1] + 1)
            topic, partition = self.partition
            queue = deque(parked_record(topic, partition, key, texts[n]) for n in numbers)
            self._parked[key] = queue
            counts.parked_records += len(queue)
            counts.parked_bytes += sum(record.size for record in queue)
        now = self._handling.clock()
        for key, entry in self._live.items():
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
        return self._round.size_bytes

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
            awaited = self._entry(key).awaited
            if since <= before and awaited is not None:
                found[key] = awaited
        return found

    def awaited_set(self, key: bytes) -> int | None:
        """The set that a key waits for; None if it does not wait."""
        entry = self._entry(key)
        return entry.set_id if entry.status is EntryStatus.WAIT else None

    # ------------------------------------------------------------ steps

    def read(self, record: Record) -> None:
        """Takes the next record of the data partition.

        Raises `Interrupted` if the consumer was stopped before the record was handled: it then
        counts as not read, and no more records may follow.
        """
        parsed = self._checked(parse(record))
        match parsed:
            case MalformedRecord(reason):
                self._bury(record, f"invalid headers: {reason}")
            case FenceMarker() | CloseMarker() | OpenMarker():
                self._fences = read_marker(self._fences, parsed)
                self._round.state[FENCE_KEY] = fence_text(self._fences)
                if isinstance(parsed, FenceMarker):
                    self._forget(parsed)
            case _:
                refused = refusal(self._fences, parsed)
                if refused is None:
                    self._read(record, parsed)
                else:
                    self._perform(record.key or b"", refused, record)
        self._round.data_offset = record.offset + 1
        self._round.records += 1
        self._round.size_bytes += record.size

    def _checked(self, parsed: Any) -> Any:
        if isinstance(parsed, EndMarker) and not 0 <= parsed.to < self._partitions:
            return MalformedRecord(f"tt-to names partition {parsed.to}, which does not exist")
        return parsed

    def _read(self, record: Record, parsed: KeyRecord) -> None:
        key = record.key or b""
        if isinstance(parsed, EndMarker):
            self._handle_batch(key)
        self._key = key
        step = read_record(self._entry(key), parsed, self._apply, self.partition.partition)
        self._take(key, step, record)

    def read_handover(self, record: Record) -> None:
        """Takes the next record of `.handover`."""
        chunk = handover_chunk(record.key or b"", record.value)
        complete = self._assembly.add(chunk, record.offset)
        if complete is not None:
            handover, of = complete
            self._handover_chunks[chunk.key, handover.set_id] = of
            self._arrived_ms = record.timestamp_ms
            self._take(chunk.key, take_handover(self._entry(chunk.key), handover), None)
        self.pass_handovers(record.offset + 1)

    def pass_handovers(self, offset: int) -> None:
        """Everything of `.handover` below this offset was read."""
        incomplete = self._assembly.offset
        self._round.handover_offset = offset if incomplete is None else min(offset, incomplete)

    def replay(self, until: Callable[[], bool]) -> None:
        """Handles parked records whose state has arrived, until `until` says so."""
        while self._replaying and not until():
            key = next(iter(self._replaying))
            entry = self._entry(key)
            if not can_replay(entry):
                del self._replaying[key]
                continue
            queue = self._parked[key]
            record = queue[0]
            parsed = parse(record)
            if isinstance(parsed, EndMarker):
                self._handle_batch(key)
                entry = self._entry(key)
            self._key = key
            assert isinstance(parsed, KeyRecord)  # noqa: S101 - nothing else is parked
            step = replay_parked(entry, parsed, self._apply, self.partition.partition)
            queue.popleft()
            self.counts.parked_records -= 1
            self.counts.parked_bytes -= record.size
            if not queue:
                del self._parked[key]
            self._round.size_bytes += record.size
            self._take(key, step, record)

    def adopt_lost(self, key: bytes) -> None:
        """Goes on with the empty state, since the one that the key waits for cannot come."""
        self._arrived_ms = 0
        self._take(key, adopt_empty(self._entry(key)), None)

    def _take(self, key: bytes, step: EntryStep[bytes], record: Record | None) -> None:
        before = self._entry(key)
        after, effects = step
        if after is not before:
            self._touched[key] = after
            if _status(after) is not _status(before):
                self._count(key, _status(before), _status(after))
        for effect in effects:
            self._perform(key, effect, record)
        if can_replay(after):
            self._replaying[key] = None

    def _count(self, key: bytes, before: EntryStatus | None, after: EntryStatus | None) -> None:
        counts = self.counts
        for status, by in ((before, -1), (after, 1)):
            match status:
                case EntryStatus.OWN:
                    counts.owned += by
                case EntryStatus.WAIT:
                    counts.waiting += by
                case EntryStatus.LEFT:
                    counts.left += by
                case None:
                    pass
        if after is EntryStatus.WAIT:
            self._since[key] = self._handling.clock()

    def _entry(self, key: bytes) -> KeyEntry[bytes]:
        found = self._touched.get(key) or self._live.get(key)
        if found is None:
            text = self._store.get(key)
            found = ABSENT if text is None else entry_of(text)
        return found

    # ------------------------------------------------------------ effects

    def _perform(self, key: bytes, effect: EntryEffect[bytes], record: Record | None) -> None:
        match effect:
            case AppliedRecord(applied, set_id):
                self._note(key, applied, set_id)
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
        self._round.size_bytes += size
        self.counts.handovers_out += 1
        self.counts.handover_bytes_out += size
        self.urgent = True
        close = self._handling.handler.close
        if close is not None:
            state = self._state(key, handover.value)
            outputs, error = attempted(
                lambda: outputs_of(close(key, state)),
                retry=Retry(attempts=1),
                stopped_within=self._handling.stopped_within,
            )
            self._round.outputs += outputs or ()
            if error is not None:
                self.close_errors.append(error_text(error))
        self._decoded.pop(key, None)

    def _adopted(self, key: bytes, adopted: AdoptedHandover) -> None:
        entry = self._entry(key)
        count = self._handover_chunks.pop((key, adopted.set_id), 1)
        if not adopted.lost:
            here = self.partition.partition
            self._round.handovers += [
                HandoverWrite(here, name, text)
                for name, text in handover_tombstones(key, adopted.set_id, count)
            ]
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
        entry = self._entry(key)
        here = self.partition.partition
        held = {early.set_id for early in entry.early}
        for name in [name for name in self._handover_chunks if name[0] == key]:
            if name[1] not in held:
                count = self._handover_chunks.pop(name)
                self._round.handovers += [
                    HandoverWrite(here, record_key, text)
                    for record_key, text in handover_tombstones(key, name[1], count)
                ]

    def _bury(self, record: Record, reason: str) -> None:
        self._round.dead_letters.append(DeadLetter(record, reason))
        self._round.size_bytes += record.size
        self.counts.dead_letters += 1

    def _forget(self, fence: FenceMarker) -> None:
        for key in list(self._stateless):
            if key in self._live or key in self._touched:
                continue
            if can_forget(self._entry(key), fence.shard, fence.committed):
                self._touched[key] = ABSENT
                self._stateless.discard(key)
                self.counts.owned -= 1

    # ------------------------------------------------------------ the handler

    def _apply(self, value: bytes | None, applied: DataRecord | PlainRecord) -> bytes | None:
        """Called by a step when the record is to take effect."""
        record = applied.payload
        assert isinstance(record, Record)  # noqa: S101 - see `parse`
        handler = self._handling.handler
        if handler.handle is None:
            self._applied = None
            return value
        self._handling.in_hand(record)
        started = self._handling.now_us()
        handle = handler.handle
        key = self._key

        def call() -> tuple[bytes | None, Any, tuple[Output, ...]]:
            state, outputs = answer_of(handle(key, self._state(key, value), record))
            return encoded(handler.codec, state), state, outputs

        found, error = self._attempted(call)
        finished = self._handling.now_us()
        after, state = value, None
        if found is not None:
            after, state, outputs = found
            self._remember(key, after, state, outputs)
        chain = None if error is not None or not handler.chain_of else handler.chain_of(state)
        text = None if error is None else error_text(error)
        self._applied = _Applied(started, finished, chain, text)
        return after

    def _state(self, key: bytes, value: bytes | None) -> Any:
        """The state of a key as an object: a handler that fails gets a new one at each attempt."""
        if value is None:
            return None
        known = self._decoded.pop(key, None)
        if known is not None and known[0] is value:
            return known[1]
        return self._handling.handler.codec.decode(value)

    def _remember(
        self, key: bytes, value: bytes | None, state: Any, outputs: tuple[Output, ...]
    ) -> None:
        if value is not None:
            self._decoded[key] = (value, state)
        self._round.outputs += outputs
        for output in outputs:
            self._round.size_bytes += len(output.value or b"") + len(output.key or b"")

    def _attempted(self, call: Callable[[], Any]) -> Any:
        try:
            return attempted(
                call, retry=self._handling.retry, stopped_within=self._handling.stopped_within
            )
        finally:
            self._handling.in_hand(None)

    def _note(self, key: bytes, applied: DataRecord | PlainRecord, set_id: int) -> None:
        record = applied.payload
        assert isinstance(record, Record)  # noqa: S101 - see `parse`
        if self._applied is None:
            waiting = self._batches.setdefault(key, [])
            waiting.append(_Waiting(record, set_id))
            if len(waiting) >= _BATCH:
                self._handle_batch(key)
            return
        self._finish(record, set_id, self._applied)

    def _finish(self, record: Record, set_id: int, done: _Applied) -> None:
        self.counts.applied += 1
        if done.error is not None:
            self._bury(record, done.error)
        self._round.receipts.append(
            AppliedReceipt(record, set_id, done.started_ts, done.finished_ts, done.chain)
        )

    # ------------------------------------------------------------ the batch form

    def _handle_batch(self, key: bytes) -> None:
        """Handles the records of a key that wait for the batch form of the handler."""
        waiting = self._batches.get(key)
        if waiting is None:
            return
        if not self._handled(key, waiting):
            while waiting:  # one by one: a bad record must not bury the others
                self._handled(key, waiting[:1], last=True)
                del waiting[0]
        del self._batches[key]

    def _handled(self, key: bytes, waiting: Sequence[_Waiting], *, last: bool = False) -> bool:
        """Calls the handler with these records; returns whether it succeeded.

        With `last` the records of a call that fails go to the dead letters.
        """
        handler = self._handling.handler
        handle = handler.handle_batch
        assert handle is not None  # noqa: S101 - see `_apply`
        entry = self._entry(key)
        records = [one.record for one in waiting]
        self._handling.in_hand(records[0])
        started = self._handling.now_us()

        def call() -> tuple[bytes | None, Any, tuple[Output, ...]]:
            state, outputs = answer_of(handle(key, self._state(key, entry.value), records))
            return encoded(handler.codec, state), state, outputs

        found, error = self._attempted(call)
        if error is not None and not last:
            return False
        chain = None
        if found is not None:
            value, state, outputs = found
            self._remember(key, value, state, outputs)
            self._touched[key] = replace(entry, value=value)
            chain = handler.chain_of(state) if handler.chain_of else None
        finished = self._handling.now_us()
        text = None if error is None else error_text(error)
        for number, one in enumerate(waiting, 1):
            done = _Applied(started, finished, chain if number == len(waiting) else None, text)
            self._finish(one.record, one.set_id, done)
        return error is None

    # ------------------------------------------------------------ rounds

    def finish_round(self) -> TaskRound:
        """Everything since the last round; the caller writes it in one transaction.

        Raises `Interrupted` if the consumer was stopped while the batch form was at work: the round
        is lost then, and the task must be dropped.
        """
        for key in list(self._batches):
            self._handle_batch(key)
        for key, entry in self._touched.items():
            self._store_entry(key, entry)
        finished, self._round = self._round, TaskRound()
        self._touched.clear()
        self._decoded.clear()
        self.urgent = False
        return finished

    def _store_entry(self, key: bytes, entry: KeyEntry[bytes]) -> None:
        if entry.status is EntryStatus.WAIT or entry.parked or entry.early:
            self._live[key] = entry
        else:
            self._live.pop(key, None)
        self._stateless.discard(key)
        if _status(entry) is None:
            if self._store.pop(key, None) is not None:
                self._write(key, ABSENT, None)
            return
        text = entry_text(entry)
        if entry.status is EntryStatus.OWN and entry.value is None and not entry.set_id:
            self._stateless.add(key)
        if self._store.get(key) != text:
            self._store[key] = text
            self._write(key, entry, text)

    def _write(self, key: bytes, entry: KeyEntry[bytes], text: bytes | None) -> None:
        limit = self._limits.max_state_bytes
        before = self._chunks.pop(key, 1)
        writes = dict(entry_writes(key, entry, text, chunks_before=before, limit_bytes=limit))
        self._round.state.update(writes)
        count = chunk_count(entry.value, limit)
        if count > 1:
            self._chunks[key] = count


def _status(entry: KeyEntry[bytes]) -> EntryStatus | None:
    """The status; None if the entry says no more than that of a key that was never seen."""
    if entry.status is not EntryStatus.OWN or entry.set_id or entry.last_src:
        return entry.status
    return None if entry.value is None else EntryStatus.OWN
