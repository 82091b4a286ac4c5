"""The tasks of one consumer process: read, step, and write each task's round in a transaction.

Why      Runs where the plain cycle runs, directed by the controller or as a member of a group: both
         give partitions by `prepare` and `begin`, and take them away by `release`.
Promise  A task is fenced, then restored, then its offsets are fetched, in this order. A task that
         is taken away writes what it has done and sleeps; if its changelog has not moved when it
         returns, it goes on without a restore. A lost transaction is a restart of its task.
Cost     Rounds of all tasks are written side by side, every `commit_s`, and at once when another
         task waits for a hand-over. Idle tasks write nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from trimtab.apply.capacity import Capacity
from trimtab.apply.handling import Interrupted
from trimtab.apply.keys.kafka.handover_reader import HandoverReader
from trimtab.apply.keys.kafka.state_reader import read_state, state_consumer, state_end
from trimtab.apply.keys.kafka.task_writer import RoundLost, TaskFenced, TaskWriter
from trimtab.apply.keys.keyed_handler import KeyedHandler
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.task_round import (
    Adoption,
    AppliedReceipt,
    TaskCounts,
    TaskHandling,
    TaskLimits,
    TaskRound,
)
from trimtab.apply.totals import Totals
from trimtab.errors import ConfigError, TrimtabError
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.retry import Retry
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record
from trimtab.observe.logging import library_log

log = library_log()

_NAP_S = 0.1
_NAP_WAITING_S = 0.01
_URGENT_EVERY_S = 0.05
_OFFSETS_EVERY_S = 5.0
_ROUND_BYTES = 4 * 2**20
_WRITERS = 8


class DataReader(Protocol):
    """The source of records, directed or a member of a group; used by one thread."""

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; an empty result after `timeout_s`."""
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all returned records; None while it is unknown."""
        ...

    def behind(self) -> int:
        """How many records at the brokers were not returned yet, as far as that is known."""
        ...

    def stay_active(self) -> None:
        """Keeps up group membership and checks while no records are needed; returns none."""
        ...

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Reads none of these until `resume`."""
        ...

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again."""
        ...

    def reread(self, partitions: Collection[TopicPartition]) -> None:
        """Reads these again from their committed offsets."""
        ...


@dataclass(frozen=True, slots=True)
class KeyedTopicFacts:
    """What a task must know of its data topic: see `trimtab.apply.keys.kafka.start_up_checks`."""

    topic_id: str
    partitions: int
    largest_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyedWork:
    """What a keyed consumer does, and within which limits.

    Attributes:
        max_tasks: Partitions that one process may own; each costs a producer with its threads.
        commit_s: Longest time between two transactions of a task that has something to write.
        store: Makes the local store of a task's entries; they are kept in memory if None.
        receipt_text: Makes the text of a receipt; no receipts are written if None.
        on_adopted: Called for each state that has arrived.
        on_restored: Called for each restored task with the records read and the seconds taken.
        on_written: Called with the counts of a task after each of its transactions.
    """

    handler: KeyedHandler
    limits: TaskLimits = field(default_factory=TaskLimits)
    retry: Retry = field(default_factory=Retry)
    max_tasks: int = 64
    commit_s: float = 0.5
    store: Callable[[TopicPartition], MutableMapping[bytes, bytes]] | None = None
    receipt_text: Callable[[AppliedReceipt], bytes] | None = None
    in_hand: Callable[[Record | None], None] | None = None
    on_adopted: Callable[[TopicPartition, Adoption], None] = field(default=lambda _p, _a: None)
    on_restored: Callable[[TopicPartition, int, float], None] = field(
        default=lambda _p, _records, _seconds: None
    )
    on_written: Callable[[TopicPartition, TaskCounts], None] = field(default=lambda _p, _c: None)


@dataclass(slots=True)
class _Running:
    """A task that this process owns, and its producer."""

    task: PartitionTask
    writer: TaskWriter
    paused: bool = False
    state_end: int | None = None
    data_position: int | None = None
    offsets_at: float = 0.0


class KeyedWorker:
    """The work of one keyed consumer; all methods are called by one thread.

    `on_fenced` is called with partitions that another process has taken over.
    """

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        work: KeyedWork,
        *,
        facts: Mapping[str, KeyedTopicFacts],
        client_id: str,
        stop: threading.Event,
        on_fenced: Callable[[frozenset[TopicPartition]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._group = group
        self._work = work
        self._facts = facts
        self._client_id = client_id
        self._stop = stop
        self._on_fenced = on_fenced
        self._clock = clock
        self._reader: DataReader | None = None
        self._handovers = HandoverReader(cluster, group, client_id=f"{client_id}-handovers")
        self._metadata: Any = None
        self._pool = ThreadPoolExecutor(_WRITERS, thread_name_prefix="tasks")
        self._tasks: dict[TopicPartition, _Running] = {}
        self._sleeping: dict[TopicPartition, _Running] = {}
        self._broken: set[TopicPartition] = set()
        self._batch: deque[Record] = deque()
        self._committed: dict[TopicPartition, int] = {}
        self._in_step: TopicPartition | None = None
        self._totals = Totals()
        self._written_at = clock()
        self._busy_s, self._busy_records, self._busy_bytes = 0.0, 0, 0
        self.capacity = Capacity()

    def attach(self, reader: DataReader) -> None:
        """Names the source of records; once, before `run`."""
        self._reader = reader

    @property
    def totals(self) -> Totals:
        """What was processed so far."""
        return self._totals

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The committed offsets of the current partitions, as far as they are known."""
        return self._committed

    @property
    def tasks(self) -> Mapping[TopicPartition, PartitionTask]:
        """The running tasks; for metrics."""
        return {partition: running.task for partition, running in list(self._tasks.items())}

    # ------------------------------------------------------------ partitions come and go

    def prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Fences and restores the tasks of these partitions, before their offsets are fetched."""
        new = [p for p in sorted(partitions) if p not in self._tasks]
        if not new:
            return
        if len(self._tasks) + len(new) > self._work.max_tasks:
            raise ConfigError(
                f"This consumer was given {len(self._tasks) + len(new)} partitions, but may run "
                f"only {self._work.max_tasks} tasks.",
                hint="Start more consumers, or raise --max-tasks.",
            )
        opened = dict(zip(new, self._pool.map(self._open, new), strict=True))
        self._handovers.take([self._handover_of(p) for p in new])
        self._metadata = self._handovers.group_metadata()
        for partition, running in opened.items():
            if running is not None:
                self._tasks[partition] = running
                self._broken.discard(partition)
        self._forget_sleepers()

    def _open(self, partition: TopicPartition) -> _Running | None:
        """A task that is fenced and restored; None if the consumer was stopped."""
        facts = self._facts[partition.topic]
        topics = KeyedTopics(partition.topic, self._group)
        writer = TaskWriter(
            self._cluster,
            partition,
            topics,
            client_id=f"{self._client_id}-task-{partition.partition}",
            largest_bytes=facts.largest_bytes,
            receipt_topic=self._cluster.topics.receipts,
            receipt_text=self._work.receipt_text,
        )
        try:
            return self._restored(partition, writer, topics, facts)
        except BaseException:
            writer.close()
            raise

    def _restored(
        self,
        partition: TopicPartition,
        writer: TaskWriter,
        topics: KeyedTopics,
        facts: KeyedTopicFacts,
    ) -> _Running | None:
        began = self._clock()
        if not writer.fence(self._stop):
            writer.close()
            return None
        number, timeout_s = partition.partition, self._cluster.timeouts.attempt_s
        name = f"{self._client_id}-restore-{number}"
        with state_consumer(self._cluster, client_id=name, group=self._group) as consumer:
            asleep = self._sleeping.pop(partition, None)
            end = state_end(consumer, topics.state, number, timeout_s=timeout_s)
            if asleep is not None and asleep.state_end == end:
                log.info("task_resumed", partition=str(partition))
                return _Running(asleep.task, writer, state_end=end)
            found = read_state(
                consumer,
                topics.state,
                number,
                stop=self._stop,
                timeout_s=timeout_s,
                entries=None if self._work.store is None else self._work.store(partition),
                on_progress=lambda read, there: log.info(
                    "restoring", partition=str(partition), records=read, of=there
                ),
            )
        if found is None:
            writer.close()
            return None
        restored, end = found
        if restored.topic_id not in (None, facts.topic_id):
            raise ConfigError(
                f"Topic {partition.topic} was deleted and created again: {topics.state} belongs to "
                "the one before.",
                hint=f"To begin anew, delete {topics.state}, {topics.handover} and the group's "
                "offsets, or use another --group.",
            )
        took_s = self._clock() - began
        self._work.on_restored(partition, restored.records, took_s)
        task = PartitionTask(
            partition,
            restored,
            TaskHandling(
                handler=self._work.handler,
                retry=self._work.retry,
                stopped_within=self._stopped_within,
                in_hand=self._work.in_hand or (lambda _record: None),
                clock=self._clock,
            ),
            partitions=facts.partitions,
            topic_id=facts.topic_id,
            limits=self._work.limits,
        )
        log.info(
            "task_restored",
            partition=str(partition),
            records=restored.records,
            keys=task.counts.owned,
            seconds=round(took_s, 3),
        )
        return _Running(task, writer, state_end=end)

    def begin(self, partition: TopicPartition, committed: int | None) -> None:
        """Adds a partition that was prepared, with its committed offset."""
        if committed is not None:
            self._committed[partition] = committed

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Ends these tasks: what they have done is written, records not handled yet are dropped."""
        gone = frozenset(partitions)
        if self._batch:
            self._batch = deque(r for r in self._batch if r.source not in gone)
        ended = {p: self._tasks.pop(p) for p in gone if p in self._tasks}
        if self._in_step in ended:  # in the middle of a record: its round is not complete
            ended.pop(self._in_step).writer.close()
        for partition, lost in self._write_rounds(ended).items():
            running = ended[partition]
            running.writer.close()
            if lost is None:
                self._sleeping[partition] = running
        self._handovers.drop([self._handover_of(p) for p in gone])
        for partition in gone:
            self._committed.pop(partition, None)
            self._broken.discard(partition)
        self._forget_sleepers()

    def _forget_sleepers(self) -> None:
        """Keeps as many sleeping tasks as there may be tasks in all, the last ones."""
        while len(self._sleeping) + len(self._tasks) > self._work.max_tasks and self._sleeping:
            del self._sleeping[next(iter(self._sleeping))]

    def _handover_of(self, partition: TopicPartition) -> TopicPartition:
        topic = KeyedTopics(partition.topic, self._group).handover
        return TopicPartition(topic, partition.partition)

    def close(self) -> None:
        """Closes all clients; writes nothing."""
        for running in self._tasks.values():
            running.writer.close()
        self._tasks.clear()
        self._pool.shutdown()
        self._handovers.close()

    # ------------------------------------------------------------ the loop

    def run(
        self,
        execute_commands: Callable[[], None] = lambda: None,
        has_commands: Callable[[], bool] = lambda: False,
    ) -> Totals:
        """Repeats `turn` until `stop` is set; calls `execute_commands` when all is written."""
        while not self._stop.is_set():
            self.turn(has_commands)
            execute_commands()
        return self._totals

    def turn(self, has_commands: Callable[[], bool] = lambda: False) -> None:
        """Reads and handles for up to `commit_s`, then writes the rounds of all tasks."""
        until = self._clock() + self._work.commit_s
        while not self._stop.is_set():
            self._restart_broken()
            began = self._clock()
            waited = self._gather()
            self._read_handovers()
            self._replay(until)
            self._handle(until)
            self._measure(began, waited=waited)
            if self._clock() >= until or has_commands() or self._is_urgent() or self._is_full():
                break
        self._write()

    def _gather(self) -> bool:
        """Reads records if none are left; returns whether it waited for them."""
        reader = self._source
        self._pause(reader)
        if self._batch:
            reader.stay_active()
            return False
        began = self._clock()
        self._batch.extend(self._read(self._nap_s()))
        return not self._batch or self._clock() - began > _NAP_S / 2

    def _nap_s(self) -> float:
        if any(running.task.is_replaying for running in self._tasks.values()):
            return 0.0
        waiting = any(running.task.counts.waiting for running in self._tasks.values())
        return _NAP_WAITING_S if waiting else _NAP_S

    def _read(self, timeout_s: float) -> Sequence[Record]:
        try:
            return self._source.read(timeout_s)
        except TrimtabError as error:
            if not error.retriable:
                raise
            log.warning("work_was_delayed", what="reading", why=str(error))
            self._stop.wait(_NAP_S)
            return ()

    def _pause(self, reader: DataReader) -> None:
        for partition, running in self._tasks.items():
            if running.task.is_paused is not running.paused:
                running.paused = running.task.is_paused
                (reader.pause if running.paused else reader.resume)([partition])
                log.info(
                    "partition_paused" if running.paused else "partition_resumed",
                    partition=str(partition),
                    parked=running.task.counts.parked_records,
                )

    @property
    def _source(self) -> DataReader:
        if self._reader is None:
            raise ValueError("attach a reader first")
        return self._reader

    def _read_handovers(self) -> None:
        try:
            records, ends = self._handovers.read(0.0)
        except TrimtabError as error:
            if not error.retriable:
                raise
            log.warning("work_was_delayed", what="reading hand-overs", why=str(error))
            return
        owners = {self._handover_of(p): running for p, running in self._tasks.items()}
        for record in records:
            if record.source in owners:
                owners[record.source].task.read_handover(record)
        for source, end in ends.items():
            if source in owners:
                owners[source].task.pass_handovers(end)

    def _replay(self, until: float) -> None:
        for partition, running in list(self._tasks.items()):
            if running.task.is_replaying and partition in self._tasks:
                self._in_step = partition
                try:
                    running.task.replay(lambda: self._clock() >= until or self._stop.is_set())
                except Interrupted:
                    return
                finally:
                    self._in_step = None

    def _handle(self, until: float) -> None:
        """Handles what was read, until it is time to write."""
        while self._batch and not self._stop.is_set():
            record = self._batch[0]
            running = self._tasks.get(record.source)
            if running is None:
                self._batch.popleft()  # of a task that was lost: it is read again
                continue
            self._in_step = record.source
            try:
                running.task.read(record)
            except Interrupted:
                return
            finally:
                self._in_step = None
            if self._batch and self._batch[0] is record:
                self._batch.popleft()
            if self._clock() >= until or running.task.size_bytes > _ROUND_BYTES:
                return

    def _stopped_within(self, pause_s: float) -> bool:
        """Waits between two attempts at a record; True if it must not be tried again."""
        if self._stop.wait(pause_s):
            return True
        if pause_s <= 0:
            return False
        partition = self._in_step
        try:
            self._source.stay_active()
        except TrimtabError as error:
            if not error.retriable:
                raise
            log.warning("work_was_delayed", what="staying in the group", why=str(error))
        return partition not in self._tasks

    def _is_urgent(self) -> bool:
        if self._clock() - self._written_at < _URGENT_EVERY_S:
            return False
        return any(running.task.urgent for running in self._tasks.values())

    def _is_full(self) -> bool:
        return any(running.task.size_bytes > _ROUND_BYTES for running in self._tasks.values())

    def _measure(self, began: float, *, waited: bool) -> None:
        if waited:
            self.capacity.pause()
            self._busy_s, self._busy_records, self._busy_bytes = 0.0, 0, 0
        else:
            self._busy_s += self._clock() - began

    # ------------------------------------------------------------ rounds

    def _write(self) -> None:
        began = self._clock()
        fenced = set()
        for partition, lost in self._write_rounds(self._tasks).items():
            if lost is None:
                continue
            self._tasks.pop(partition).writer.close()
            if isinstance(lost, TaskFenced):
                fenced.add(partition)
            else:
                self._broken.add(partition)
        self._written_at = self._clock()
        if self._busy_s:
            self.capacity.add(
                self._busy_s + self._written_at - began,
                self._busy_records,
                self._busy_bytes,
                behind=bool(self._batch) or self._source.behind() > 0,
            )
        self._busy_s, self._busy_records, self._busy_bytes = 0.0, 0, 0
        if fenced:
            self._drop_records(fenced)
            self._handovers.drop([self._handover_of(p) for p in fenced])
            for partition in fenced:
                self._committed.pop(partition, None)
            self._on_fenced(frozenset(fenced))

    def _write_rounds(
        self, tasks: Mapping[TopicPartition, _Running]
    ) -> dict[TopicPartition, Exception | None]:
        """Writes the rounds of these tasks side by side; why each is lost, None if it is not."""
        pending = Counter(record.source for record in self._batch)
        outcomes: dict[TopicPartition, Exception | None] = {}
        rounds: dict[TopicPartition, TaskRound] = {}
        for partition, running in tasks.items():
            outcomes[partition] = None
            try:
                finished = running.task.finish_round()
            except Interrupted as interrupted:
                outcomes[partition] = interrupted
                continue
            for text in running.task.close_errors:
                log.error("close_failed", partition=str(partition), why=text)
            running.task.close_errors.clear()
            self._add_position(partition, running, finished, pending=pending[partition] > 0)
            if self._is_due(running, finished):
                rounds[partition] = finished
        written = self._pool.map(lambda p: self._written(tasks[p].writer, rounds[p]), rounds)
        for (partition, finished), lost in zip(rounds.items(), written, strict=True):
            outcomes[partition] = lost
            if lost is None:
                self._count(partition, tasks[partition], finished)
            else:
                log.warning("task_lost", partition=str(partition), why=str(lost))
        return outcomes

    def _add_position(
        self, partition: TopicPartition, running: _Running, finished: TaskRound, *, pending: bool
    ) -> None:
        """Offsets behind the last record: markers of transactions take offsets, too."""
        if running.data_position is not None and finished.data_offset is None:
            finished.data_offset = running.data_position
        if not pending and self._reader is not None:
            position = self._reader.position(partition)
            least = finished.data_offset
            if position is not None and position > max(
                -1 if least is None else least, self._committed.get(partition, -1)
            ):
                finished.data_offset = position

    def _is_due(self, running: _Running, finished: TaskRound) -> bool:
        """Whether a round is written now; one with offsets only may wait."""
        if finished.is_empty:
            return False
        now = self._clock()
        if finished.writes or finished.records or now - running.offsets_at >= _OFFSETS_EVERY_S:
            running.offsets_at = now
            running.data_position = None
            return True
        running.data_position = finished.data_offset
        if finished.handover_offset is not None:
            running.task.pass_handovers(finished.handover_offset)
        return False

    def _written(self, writer: TaskWriter, finished: TaskRound) -> Exception | None:
        try:
            writer.write(finished, self._metadata)
        except (TaskFenced, RoundLost) as lost:
            return lost
        return None

    def _count(self, partition: TopicPartition, running: _Running, finished: TaskRound) -> None:
        if running.writer.state_end is not None:
            running.state_end = running.writer.state_end
        if finished.data_offset is not None:
            self._committed[partition] = finished.data_offset
        for adoption in finished.adoptions:
            self._work.on_adopted(partition, adoption)
        self._work.on_written(partition, running.task.counts)
        if finished.records or finished.receipts:
            self._busy_records += finished.records
            self._busy_bytes += finished.size_bytes
            self._totals = replace(
                self._totals,
                records=self._totals.records + finished.records,
                bytes=self._totals.bytes + finished.size_bytes,
                batches=self._totals.batches + 1,
                dead_letters=self._totals.dead_letters + len(finished.dead_letters),
            )

    def _drop_records(self, partitions: Iterable[TopicPartition]) -> None:
        gone = frozenset(partitions)
        self._batch = deque(r for r in self._batch if r.source not in gone)

    def _restart_broken(self) -> None:
        """Begins lost tasks again: fence, restore, and read from the committed offsets."""
        if not self._broken:
            return
        broken = frozenset(self._broken)
        self._drop_records(broken)
        self._handovers.drop([self._handover_of(p) for p in broken])
        try:
            self.prepare(broken)
            self._source.reread(broken)
        except TrimtabError as error:
            if not error.retriable:
                raise
            log.warning("work_was_delayed", what="restarting tasks", why=str(error))
            self._stop.wait(_NAP_S)
