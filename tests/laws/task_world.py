"""The keyed data path in memory, with real tasks: rounds, changelogs and hand-overs as bytes.

Gateways are those of `keyed_world`. A task is restored from its `.state`, reads its two logs record
by record, and writes a round with its offsets at once; a crash throws away what is not written.
Consumers differ in when they cut a state into chunks, and how much they park.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from tests.laws.keyed_world import Choice, KeyedWorld
from trimtab.apply.handling import Interrupted
from trimtab.apply.keys.chunks import state_key
from trimtab.apply.keys.key_entry import EntryStatus, KeyEntry
from trimtab.apply.keys.key_route import GatewayMode
from trimtab.apply.keys.keyed_handler import KeyedHandler, counting_handler
from trimtab.apply.keys.message_sets import DataRecord
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.state_layout import RestoredState, entry_of
from trimtab.apply.keys.task import ParkingLimits
from trimtab.apply.keys.task_round import (
    AppliedReceipt,
    HandoverWrite,
    TaskHandling,
    TaskLimits,
    TaskRound,
)
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

NAMES = (b"", b"\x00fence", b"k\xff\x00\x00\x00\x01", "ключ".encode(), b"\x00" * 12)
"""Keys that could be taken for something else."""

Line = tuple[bytes, bytes | None]
Spoil = Callable[["TaskRound", "TaskSeat"], None]


@dataclass
class TaskSeat:
    """The task of one partition, its logs, and where it reads."""

    task: PartitionTask
    state: list[Line] = field(default_factory=list)
    newest: dict[bytes, bytes | None] = field(default_factory=dict)
    handovers: list[Line | None] = field(default_factory=list)
    data_committed: int = 0
    data_at: int = 0
    handover_committed: int = 0
    handover_at: int = 0
    moved: bool = True
    stopping: bool = False


def compacted(log: Sequence[Line]) -> list[Line]:
    """The newest record of each key, without tombstones."""
    return [(key, value) for key, value in dict(log).items() if value is not None]


class TaskWorld(KeyedWorld):
    """All topics, gateways and tasks; `spoil` changes rounds before they are written."""

    def __init__(
        self,
        *,
        partitions: int,
        shards: int,
        keys: int,
        modes: list[GatewayMode],
        seed: int = 0,
        batch: bool = False,
        spoil: Spoil = lambda _round, _seat: None,
    ) -> None:
        super().__init__(partitions=partitions, shards=shards, keys=keys, modes=modes)
        self.working = []  # the tasks of the model do nothing here
        self.names = {key: NAMES[n] for n, key in enumerate(self.keys)}
        self.random = Random(seed)
        self.batch = batch
        self.spoil = spoil
        self.receipts_of: dict[bytes, list[tuple[int, int, int, AppliedReceipt]]]
        self.receipts_of = defaultdict(list)
        self.seats = [TaskSeat(self._task(p, RestoredState())) for p in range(partitions)]

    # ------------------------------------------------------------ tasks

    def _task(self, p: int, restored: RestoredState) -> PartitionTask:
        limits = TaskLimits(
            max_state_bytes=self.random.choice([5, 20, 50, 1000]),
            parking=ParkingLimits(self.random.choice([1, 2, 50]), 10_000),
        )
        handling = TaskHandling(
            handler=self._handler(),
            retry=Retry(attempts=3, first_s=0),
            stopped_within=lambda _pause_s: self.random.random() < 0.1,
        )
        return PartitionTask(
            TopicPartition("orders", p),
            restored,
            handling,
            partitions=self.partitions,
            topic_id="T1",
            limits=limits,
        )

    def _handler(self) -> KeyedHandler:
        """Counts; its states shrink and grow; it sometimes spoils the state and fails."""
        counting = counting_handler()
        count = counting.handle
        assert count is not None
        failures: dict[int, int] = {}

        def handle(key: bytes, state: Any, record: Record) -> Any:
            if failures.get(record.offset, 0) < 2 and self.random.random() < 0.05:
                failures[record.offset] = failures.get(record.offset, 0) + 1
                if state is not None:
                    state["count"] = -1
                raise ValueError("not now")
            (after, outputs) = count(key, state, record)
            return after | {"pad": "x" * (after["count"] * 37 % 101)}, outputs

        def handle_batch(key: bytes, state: Any, records: Sequence[Record]) -> Any:
            for record in records:
                state, _ = handle(key, state, record)
            return state, ()

        if self.batch:
            return KeyedHandler(handle_batch=handle_batch, chain_of=counting.chain_of)
        return KeyedHandler(handle, chain_of=counting.chain_of)

    def record(self, p: int, offset: int) -> Record:
        key, record = self.logs[p][offset]
        headers = headers_for(record)  # type: ignore[arg-type]
        if isinstance(record, DataRecord):
            assert isinstance(record.payload, int)
            headers = (*headers, ("tt-seq", record.payload.to_bytes(8, "big")))
        name = None if key is None else self.names[key]
        return Record("orders", p, offset, name, None, headers, 1)

    def read(self, p: int) -> None:
        self._step(p, lambda seat: seat.task.read(self.record(p, seat.data_at)), data=1)

    def take(self, p: int) -> None:
        self._step(p, self._take, handovers=1)

    def _take(self, seat: TaskSeat) -> None:
        line, at = seat.handovers[seat.handover_at], seat.handover_at
        if line is None:
            seat.task.pass_handovers(at + 1)
        else:
            p = seat.task.partition.partition
            seat.task.read_handover(Record("handovers", p, at, *line, (), 1))

    def replay_task(self, p: int) -> None:
        steps = iter(range(self.random.randint(1, 3)))
        self._step(p, lambda seat: seat.task.replay(lambda: next(steps, None) is None))

    def _step(self, p: int, step: Any, *, data: int = 0, handovers: int = 0) -> None:
        seat = self.seats[p]
        seat.moved = True
        try:
            step(seat)
        except Interrupted:  # the record counts as not read; what was done is written
            seat.stopping = True
            return
        seat.data_at += data
        seat.handover_at += handovers

    # ------------------------------------------------------------ rounds

    def commit_tasks(self, *numbers: int) -> None:
        """Writes the rounds of these tasks side by side: their hand-overs mix."""
        sent: list[HandoverWrite] = []
        for p in numbers:
            seat = self.seats[p]
            try:
                finished = seat.task.finish_round()
            except Interrupted:
                self.crash_task(p)
                continue
            self.spoil(finished, seat)
            seat.moved = seat.stopping = False
            sent = _mixed(self.random, sent, finished.handovers)
            seat.state += finished.state.items()
            seat.newest |= finished.state
            if finished.data_offset is not None:
                seat.data_committed = finished.data_offset
            if finished.handover_offset is not None:
                seat.handover_committed = finished.handover_offset
            for receipt in finished.receipts:
                key = receipt.record.key or b""
                number = int.from_bytes(receipt.record.header("tt-seq") or b"", "big")
                line = (receipt.set_id, receipt.record.offset, number, receipt)
                self.receipts_of[key].append(line)
            assert not finished.dead_letters
            assert seat.data_committed <= seat.data_at
        for write in sent:
            self.seats[write.partition].handovers.append((write.key, write.value))
        self.check_owners()

    def crash_task(self, p: int) -> None:
        """Memory is lost; the next owner may find a compacted changelog."""
        seat = self.seats[p]
        log = compacted(seat.state) if self.random.random() < 0.5 else seat.state
        restored = RestoredState()
        for key, value in log:
            restored.add(key, value)
        restored.finish()
        seat.task = self._task(p, restored)
        self._reread(seat)

    def _reread(self, seat: TaskSeat) -> None:
        seat.data_at, seat.handover_at = seat.data_committed, seat.handover_committed
        seat.moved, seat.stopping = True, False

    def move_task(self, p: int) -> None:
        """A task that is released and restored knows what it knew."""
        self.commit_tasks(p)
        before = held(self.seats[p].task)
        self.crash_task(p)
        assert held(self.seats[p].task) == before

    def wake_task(self, p: int) -> None:
        """A task that is released and returns untouched goes on with its memory."""
        self.commit_tasks(p)
        self._reread(self.seats[p])

    def compact_handovers(self, p: int) -> None:
        """Records of `.handover` with a newer one of the same key disappear."""
        seat = self.seats[p]
        newest = {line[0]: at for at, line in enumerate(seat.handovers) if line is not None}
        for at, line in enumerate(seat.handovers):
            if line is not None and newest[line[0]] != at:
                seat.handovers[at] = None

    # ------------------------------------------------------------ what can happen

    def expected(self) -> list[Choice]:
        found = super().expected()
        waiting = []
        for p, seat in enumerate(self.seats):
            if not seat.stopping:
                if seat.data_at < len(self.logs[p]) and not seat.task.is_paused:
                    found.append(partial(self.read, p))
                if seat.handover_at < len(seat.handovers):
                    found.append(partial(self.take, p))
                if seat.task.is_replaying:
                    found.append(partial(self.replay_task, p))
            if seat.moved:
                waiting.append(p)
        found += [partial(self.commit_tasks, p) for p in waiting]
        if len(waiting) > 1:
            found.append(partial(self.commit_tasks, *waiting))
        return found

    def faults(self) -> list[Choice]:
        found = super().faults()
        for p in range(self.partitions):
            found += [
                partial(self.move_task, p),
                partial(self.wake_task, p),
                partial(self.compact_handovers, p),
            ]
        return found

    def settle(self) -> None:
        for _ in range(20_000):
            choices = self.expected()
            if not choices:
                return
            choices[0]()
        raise AssertionError("The tasks do not come to rest.")

    # ------------------------------------------------------------ the invariants

    def entry(self, p: int, key: bytes) -> KeyEntry[bytes] | None:
        restored = RestoredState()
        for name, value in compacted(self.seats[p].state):
            restored.add(name, value)
        restored.finish()
        text = restored.entries.get(key)
        return None if text is None else entry_of(text)

    def check_owners(self) -> None:
        """At each commit at most one task owns the state of a key."""
        for name in self.names.values():
            texts = [seat.newest.get(state_key(name, 0)) or b"" for seat in self.seats]
            assert sum(b'"own"' in text and b"value_b64" in text for text in texts) <= 1

    def owned(self, key: bytes) -> list[KeyEntry[bytes]]:
        """The entries of a key that are owned and have a value."""
        entries = (self.entry(p, key) for p in range(self.partitions))
        return [
            entry
            for entry in entries
            if entry is not None and entry.status is EntryStatus.OWN and entry.value is not None
        ]


def _mixed(random: Random, first: list[HandoverWrite], second: list[HandoverWrite]) -> list[Any]:
    """Both lists, each in its own order."""
    a, b = list(first), list(second)
    found = []
    while a or b:
        found.append((a if not b or (a and random.random() < 0.5) else b).pop(0))
    return found


def held(task: PartitionTask) -> tuple[int, ...]:
    """What a task holds, as its counts say."""
    counts = task.counts
    return (
        counts.owned,
        counts.waiting,
        counts.left,
        counts.parked_records,
        counts.parked_bytes,
        counts.early,
    )
