"""The consumer's cycle: gather, handle, write and commit, then execute commands; repeated.

Promise  An offset is committed only when every record before it was handled, written and confirmed
         (D1), in the order of its partition (D2), and never below an earlier commit (D5). Records
         read but not handled exceed `Limits.batch_bytes` by at most one read (D6). A failed write
         or commit is retried with the batch kept; commands wait for it, so no partition is given
         away with unwritten records. Handling pauses after `Limits.wait_s`: commands wait for one
         record, not for a batch. Between attempts at a record the reader stays in its group.
Cost     O(n log n) per batch of n records: the oldest come first, across partitions.
Paper    Landau et al., the consumer's four phases. Differs: the pause within a long batch.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from trimtab.apply.capacity import Capacity
from trimtab.apply.consumers.interfaces import DeadLetters, Reader, Sink
from trimtab.apply.consumers.work import Work
from trimtab.apply.handling import Handler, Interrupted, attempt, error_text
from trimtab.apply.totals import Totals
from trimtab.errors import ApplyError, TrimtabError
from trimtab.kafka.retry import SLOWING, attempts
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.clock import wall_clock_us

SETTLE_S = 0.5
"""Longest time between commits, unless a command arrives. Each commit costs a round trip to the
brokers; committing after every short cycle reduces throughput by a tenth."""

_NAP_S = 0.1
_WRITERS = 8


class _Done(NamedTuple):
    """A processed record, with the times when its handling began and ended."""

    record: Record
    started_ts: int
    finished_ts: int
    dead: bool = False


@dataclass(slots=True)
class _Turn:
    """What was handled since the last commit; `unwritten` is what the sink has not written yet.

    `busy_s` is the working time since the consumer last waited for records; `counted` and
    `counted_bytes` are what was handled in that time.
    """

    records: int = 0
    bytes: int = 0
    dead_letters: int = 0
    busy_s: float = 0.0
    counted: int = 0
    counted_bytes: int = 0
    unwritten: list[_Done] = field(default_factory=list)


class Cycle:
    """The work of one consumer; all methods and the reader are called by one thread only.

    `on_trouble` is called when an action failed and will be retried; for a sink, from another
    thread.
    """

    def __init__(
        self,
        reader: Reader,
        work: Work,
        *,
        stop: threading.Event,
        on_trouble: Callable[[str, Exception], None] = lambda _what, _error: None,
        clock: Callable[[], float] = time.monotonic,
        now_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._reader = reader
        self._stop = stop
        self._handler = work.handler
        self._sink = work.sink
        self._dead_letters = work.dead_letters
        self._receipts = work.receipts
        self._limits = work.limits
        self._retry = work.retry
        self._in_hand = work.in_hand or (lambda _record: None)
        self._on_trouble = on_trouble
        self._clock = clock
        self._now_us = now_us
        self._batch: deque[Record] = deque()
        self._batch_bytes = 0
        self._waiting: Counter[TopicPartition] = Counter()
        self._behind = False
        self._as_much_left = False
        self._fetch_s_per_byte = 0.0
        self._next: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._committed_at: dict[TopicPartition, float] = {}
        self._totals = Totals()
        self.capacity = Capacity()

    @property
    def totals(self) -> Totals:
        """What was processed so far."""
        return self._totals

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The committed offsets of the current partitions, as far as there are any."""
        return self._committed

    @property
    def waiting(self) -> int:
        """How many records are read and not yet handled."""
        return len(self._batch)

    def prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Does nothing: a cycle keeps no state of a partition before it begins."""

    def begin(self, partition: TopicPartition, committed: int | None) -> None:
        """Adds a partition with its committed offset."""
        self._committed_at[partition] = self._clock()
        if committed is not None:
            self._committed[partition] = committed

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Removes partitions; their records that were read but not handled are dropped."""
        gone = frozenset(partitions)
        if self._batch:
            self._keep(r for r in self._batch if r.source not in gone)
        for partition in gone:
            for known in (self._waiting, self._next, self._committed, self._committed_at):
                known.pop(partition, None)
        if self._sink is not None and gone:
            self._sink.forget(gone)

    def run(
        self,
        execute_commands: Callable[[], None] = lambda: None,
        has_commands: Callable[[], bool] = lambda: True,
    ) -> Totals:
        """Repeats `turn` until `stop` is set; calls `execute_commands` when all is committed.

        `has_commands` tells whether a command waits. A caller that passes it must call `settle`
        before a partition goes to another reader within a turn.
        """
        while not self._stop.is_set():
            self.turn(has_commands)
            execute_commands()
        return self._totals

    def turn(self, has_commands: Callable[[], bool] = lambda: True) -> None:
        """Gathers and handles, then writes and commits.

        Without a sink, gathering and handling repeat for `SETTLE_S`, unless a command waits.
        """
        until = self._clock() + SETTLE_S
        turn = _Turn()
        try:
            while self._work(turn) and self._may_go_on(turn, until) and not has_commands():
                pass
        except Exception:
            with suppress(TrimtabError):  # what was handled is committed; the first error is raised
                self.settle()
            raise
        began = self._clock()
        self._write(turn)
        self._commit(self._due())
        if turn.counted:
            busy_s = turn.busy_s + self._clock() - began
            self.capacity.add(busy_s, turn.counted, turn.counted_bytes, behind=self._behind)
        if turn.records:
            self._totals = replace(
                self._totals,
                records=self._totals.records + turn.records,
                bytes=self._totals.bytes + turn.bytes,
                batches=self._totals.batches + 1,
                dead_letters=self._totals.dead_letters + turn.dead_letters,
            )

    def settle(self) -> None:
        """Commits what was handled in the current turn, unless a sink has yet to write it.

        It uses the offsets of handled records only: the reader may be ahead of the batch.
        """
        if self._sink is not None:
            return
        self._confirm()
        self._commit({p: at for p, at in self._next.items() if at > self._committed.get(p, -1)})

    def _work(self, turn: _Turn) -> bool:
        """Gathers and handles; returns whether there were records."""
        if self._gather():
            self.capacity.pause()
            turn.busy_s, turn.counted, turn.counted_bytes = 0.0, 0, 0
        began, gathered = self._clock(), self._batch_bytes
        done = self._handled()
        size = gathered - self._batch_bytes
        turn.busy_s += self._clock() - began + size * self._fetch_s_per_byte
        turn.records += len(done)
        turn.counted += len(done)
        turn.bytes += size
        turn.counted_bytes += size
        turn.dead_letters += sum(d.dead for d in done)
        if self._sink is not None:
            turn.unwritten.extend(done)
        return bool(done)

    def _may_go_on(self, turn: _Turn, until: float) -> bool:
        """Whether more may be handled before the commit; not while records are held for it."""
        holds = self._sink is not None or turn.dead_letters > 0
        return not holds and not self._stop.is_set() and self._clock() < until

    # ------------------------------------------------------------ gather

    def _gather(self) -> bool:
        """Fills the batch; returns whether it waited for records."""
        if self._batch:  # the rest of the last batch comes first: memory stays bounded
            self._reader.stay_active()
            return False
        began = self._clock()
        until = began + self._limits.wait_s
        while not self._stop.is_set() and self._batch_bytes < self._limits.batch_bytes:
            left_s = until - self._clock()
            if left_s <= 0:
                break
            read = self._read(min(left_s, _NAP_S))
            records = [record for record in read if not record.is_marker]
            self._batch.extend(records)
            self._batch_bytes += sum(r.size for r in records)
        self._waiting = Counter(r.source for r in self._batch)
        if self._handler is not None and len(self._waiting) > 1:
            self._batch = deque(_oldest_first(self._batch))
        # If the brokers had at least another batch both before and after, the time was spent on
        # fetching, not on waiting. Only after: a burst may have ended a wait.
        full = self._batch_bytes >= self._limits.batch_bytes
        as_much_before = self._as_much_left
        self._as_much_left = bool(self._batch) and self._reader.behind() >= len(self._batch)
        self._behind = as_much_before and bool(self._batch) and (full or self._as_much_left)
        fetch_s = self._clock() - began if self._behind else 0.0
        self._fetch_s_per_byte = fetch_s / max(1, self._batch_bytes)
        return not self._behind

    def _read(self, timeout_s: float) -> Sequence[Record]:
        try:
            return self._reader.read(timeout_s)
        except TrimtabError as error:
            if not error.retriable:
                raise
            self._on_trouble("reading", error)
            self._stop.wait(timeout_s)
            return ()

    def _keep(self, records: Iterable[Record]) -> None:
        self._batch = deque(records)
        self._batch_bytes = sum(r.size for r in self._batch)
        self._waiting = Counter(r.source for r in self._batch)

    # ------------------------------------------------------------ handle

    def _handled(self) -> Sequence[_Done]:
        if self._stop.is_set():
            return ()
        if self._handler is None:
            return self._all_at_once()
        done = []
        until = self._clock() + self._limits.wait_s
        while self._batch and not self._stop.is_set() and self._clock() < until:
            outcome = self._attempt(self._batch[0], self._handler)
            if outcome is None:
                break
            done.append(outcome)
            self._pass_over(self._batch.popleft())
            if self._sink is None:  # sent at once, so that `confirm` has little to wait for
                self._note(outcome)
        self._in_hand(None)
        return done

    def _all_at_once(self) -> Sequence[_Done]:
        """Marks the whole batch as handled, as there is no handler."""
        now_ts = self._now_us()
        done = [_Done(record, now_ts, now_ts) for record in self._batch]
        for record in self._batch:
            self._next[record.source] = record.offset + 1
        self._keep(())
        if self._sink is None:
            for one in done:
                self._note(one)
        return done

    def _attempt(self, record: Record, handler: Handler) -> _Done | None:
        """Handles one record; None if the consumer was stopped or has lost the partition."""
        started_ts = self._now_us()
        self._in_hand(record)

        def stopped_within(pause_s: float) -> bool:
            return self._stop.wait(pause_s) or (pause_s > 0 and not self._keeps(record))

        try:
            error = attempt(handler, record, retry=self._retry, stopped_within=stopped_within)
        except Interrupted:
            return None
        if error is not None:
            if self._dead_letters is None:
                raise ApplyError(
                    f"The handler failed at every attempt at {record.source}, offset "
                    f"{record.offset}: {error_text(error)}.",
                    hint="The record is not skipped: it is read again at the next start.",
                ) from error
            self._send_dead_letter(record, error, self._dead_letters)
        return _Done(record, started_ts, self._now_us(), error is not None)

    def _keeps(self, record: Record) -> bool:
        """Stays in the group between two attempts; returns whether the record is still ours.

        Several attempts may take longer than the session timeout. What was handled before is
        committed first, since its partition may be revoked; not if a sink has yet to write it.
        """
        if self._sink is not None:
            return True
        self.settle()
        try:
            self._reader.stay_active()
        except TrimtabError as error:
            if not error.retriable:
                raise
            self._on_trouble("staying in the group", error)
        return bool(self._batch) and self._batch[0] is record

    def _send_dead_letter(
        self, record: Record, error: BaseException, dead_letters: DeadLetters
    ) -> None:
        self._retried("sending a dead letter", lambda: dead_letters.send(record, error))

    def _pass_over(self, record: Record) -> None:
        source = record.source
        self._batch_bytes -= record.size
        self._next[source] = record.offset + 1
        self._waiting[source] -= 1
        if not self._waiting[source]:
            del self._waiting[source]

    # ------------------------------------------------------------ write and commit

    def _write(self, turn: _Turn) -> None:
        if not turn.records:
            return
        if self._sink is not None:
            self._write_tables([d.record for d in turn.unwritten if not d.dead], self._sink)
            written_ts = self._now_us()  # what a sink has not written is not finished
            for d in turn.unwritten:
                self._note(d._replace(finished_ts=written_ts))
        self._confirm()

    def _confirm(self) -> None:
        if self._dead_letters is not None:
            self._retried("confirming the dead letters", self._dead_letters.confirm)
        if self._receipts is not None:
            self._retried("confirming the receipts", self._receipts.confirm)

    def _note(self, done: _Done) -> None:
        if self._receipts is not None:
            self._receipts.note(done.record, done.started_ts, done.finished_ts)

    def _write_tables(self, records: Sequence[Record], sink: Sink) -> None:
        tables: dict[str, list[Record]] = {}
        for record in records:
            tables.setdefault(record.topic, []).append(record)

        def write(table: str) -> None:
            self._retried(f"writing table {table}", lambda: sink.write(table, tables[table]))

        if len(tables) <= 1:
            for table in tables:
                write(table)
            return
        with ThreadPoolExecutor(min(len(tables), _WRITERS)) as pool:
            list(pool.map(write, tables))

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        self._retried("committing offsets", lambda: self._reader.commit(self._still(offsets)))
        now = self._clock()
        for partition, offset in self._still(offsets).items():
            self._committed[partition] = offset
            self._committed_at[partition] = now

    def _due(self) -> dict[TopicPartition, int]:
        """The offsets to commit: those that have grown, or whose last commit is old."""
        due = {}
        now = self._clock()
        for partition in self._known():
            offset = self._next_offset(partition)
            before = self._committed.get(partition)
            old = now - self._committed_at.get(partition, now) >= self._limits.renew_s
            if before is None or (offset is not None and offset > before):
                if offset is not None:
                    due[partition] = offset
            elif old:
                due[partition] = before
        return due

    def _known(self) -> Collection[TopicPartition]:
        return self._committed_at.keys() | self._next.keys()

    def _next_offset(self, partition: TopicPartition) -> int | None:
        """The offset before which everything is done.

        That of the first waiting record; without one the reader's position, which may be behind
        transaction markers after the last record.
        """
        if self._waiting[partition]:
            return self._next.get(partition)
        position = self._reader.position(partition)
        after_last = self._next.get(partition)
        known = [offset for offset in (position, after_last) if offset is not None]
        return max(known, default=None)

    def _still(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """These offsets without partitions that were released meanwhile."""
        held = self._known()
        return {partition: offset for partition, offset in offsets.items() if partition in held}

    def _retried(self, what: str, action: Callable[[], None]) -> None:
        """Retries until it succeeds or `stop` is set."""
        failure: Exception | None = None
        for _ in attempts(SLOWING, stop=self._stop):
            try:
                return action()
            except Exception as error:
                if not _may_succeed_later(error):
                    raise
                failure = error
                self._on_trouble(what, error)
        raise ApplyError(
            f"Stopped while {what} still failed: {failure}",
            hint="These records were not committed: they are read again at the next start.",
        ) from failure


def _may_succeed_later(error: Exception) -> bool:
    return error.retriable if isinstance(error, TrimtabError) else isinstance(error, OSError)


def _oldest_first(records: Collection[Record]) -> list[Record]:
    """All records by timestamp; those of one partition stay in offset order.

    A record with an older timestamp than an earlier one of its partition counts with that one's.
    """
    newest: dict[TopicPartition, int] = {}
    keyed = []
    for record in records:
        time_ms = max(record.timestamp_ms, newest.get(record.source, record.timestamp_ms))
        newest[record.source] = time_ms
        keyed.append((time_ms, record))
    keyed.sort(key=lambda pair: pair[0])  # stable: equal times keep the order of reading
    return [record for _, record in keyed]
