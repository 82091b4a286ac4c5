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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from trimtab.apply.capacity import Capacity
from trimtab.apply.handling import Interrupted
from trimtab.apply.keys.kafka.handover_reader import HandoverReader
from trimtab.apply.keys.kafka.keyed_work import DataReader, KeyedTopicFacts, KeyedWork
from trimtab.apply.keys.kafka.lost_ends import KafkaEndSources, LostEnds
from trimtab.apply.keys.kafka.task_opening import RunningTask, TaskOpener
from trimtab.apply.keys.kafka.task_writer import RoundLost, TaskFenced, TaskWriter
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.task_round import (
    TaskRound,
)
from trimtab.apply.totals import Totals
from trimtab.errors import ApplyError, ConfigError, TrimtabError
from trimtab.kafka.cluster import Cluster
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
_FENCED_AT_MOST = 6


class KeyedWorker:
    """The work of one keyed consumer; all methods are called by one thread.

    `on_fenced` is called with partitions that another process has taken over. If None, there can
    be no other owner: brokers also fence a task whose transaction has taken too long, after a pause
    of the process for example, and it begins again.
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
        on_fenced: Callable[[frozenset[TopicPartition]], None] | None = None,
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
        self._tasks: dict[TopicPartition, RunningTask] = {}
        self._opener = TaskOpener(
            cluster,
            group,
            work,
            facts=facts,
            client_id=client_id,
            stop=stop,
            stopped_within=self._stopped_within,
            clock=clock,
        )
        self._broken: set[TopicPartition] = set()
        self._batch: deque[Record] = deque()
        self._committed: dict[TopicPartition, int] = {}
        self._in_step: TopicPartition | None = None
        self._totals = Totals()
        self._written_at = clock()
        self._fenced_in_a_row = 0
        self._handled_records, self._handled_bytes, self._busy_s = 0, 0, 0.0
        self.capacity = Capacity()
        self._lost_ends = LostEnds(
            KafkaEndSources(cluster, group, client_id=client_id),
            after_s=work.lost_after_s,
            clock=clock,
        )

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
        self._refuse_grown(new)
        opening = {p: self._pool.submit(self._opener.open, p) for p in new}
        wait(opening.values())
        opened: dict[TopicPartition, RunningTask] = {}
        try:
            for partition, future in opening.items():
                running = future.result()
                if running is not None:
                    opened[partition] = running
            self._handovers.take([self._handover_of(p) for p in opened])
        except BaseException:
            for future in opening.values():
                if future.exception() is None and (running := future.result()) is not None:
                    running.writer.close()
            raise
        self._metadata = self._handovers.group_metadata()
        self._tasks |= opened
        self._broken -= opened.keys()
        self._forget_sleepers()

    def _refuse_grown(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            count = self._facts[partition.topic].partitions
            if partition.partition >= count:
                raise ConfigError(
                    f"Topic {partition.topic} has grown beyond {count} partitions: keys now belong "
                    "to other partitions than their states.",
                    hint="A keyed topic keeps its number of partitions. Create a larger topic, and "
                    "consume it with another --group.",
                )

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
                running.task.finish_round()  # offsets that were not due: they are fetched anew
                self._opener.sleeping[partition] = running
        self._handovers.drop([self._handover_of(p) for p in gone])
        for partition in gone:
            self._committed.pop(partition, None)
            self._broken.discard(partition)
        self._forget_sleepers()

    def _forget_sleepers(self) -> None:
        """Keeps as many sleeping tasks as there may be tasks in all, the last ones."""
        while (
            len(self._opener.sleeping) + len(self._tasks) > self._work.max_tasks
            and self._opener.sleeping
        ):
            del self._opener.sleeping[next(iter(self._opener.sleeping))]

    def _handover_of(self, partition: TopicPartition) -> TopicPartition:
        topic = KeyedTopics(partition.topic, self._group).handover
        return TopicPartition(topic, partition.partition)

    def close(self) -> None:
        """Closes all clients; writes nothing."""
        for running in self._tasks.values():
            running.writer.close()
        self._tasks.clear()
        self._pool.shutdown()
        self._lost_ends.close()
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
        self._give_up_lost()

    def _give_up_lost(self) -> None:
        """Lets keys go on whose state can never come."""
        read = self._handovers.positions
        places = {p: self._handover_of(p) for p in self._tasks}
        self._lost_ends.look(
            self.tasks,
            read_to=self._committed,
            handovers_read={p: read[place] for p, place in places.items() if place in read},
        )

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
                self._handled_records += 1
                self._handled_bytes += record.size
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
            self._handled_records, self._handled_bytes, self._busy_s = 0, 0, 0.0
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
        if self._handled_records:
            self.capacity.add(
                self._busy_s + self._written_at - began,
                self._handled_records,
                self._handled_bytes,
                behind=bool(self._batch) or self._source.behind() > 0,
            )
        self._handled_records, self._handled_bytes, self._busy_s = 0, 0, 0.0
        if fenced:
            self._lose(frozenset(fenced))

    def _lose(self, fenced: frozenset[TopicPartition]) -> None:
        """Gives up tasks that were fenced, or begins them again where nobody else can own them."""
        self._drop_records(fenced)
        if self._on_fenced is not None:
            self._handovers.drop([self._handover_of(p) for p in fenced])
            for partition in fenced:
                self._committed.pop(partition, None)
            self._on_fenced(fenced)
            return
        self._fenced_in_a_row += 1
        if self._fenced_in_a_row > _FENCED_AT_MOST:
            raise ApplyError(
                f"Another process writes for {', '.join(str(p) for p in sorted(fenced))} as a "
                f"member of group {self._group}.",
                hint="Each group may be run by one controller only. End the other consumers.",
            )
        self._broken |= fenced
        self._stop.wait(_NAP_S * 2**self._fenced_in_a_row)

    def _write_rounds(
        self, tasks: Mapping[TopicPartition, RunningTask]
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
        self, partition: TopicPartition, running: RunningTask, finished: TaskRound, *, pending: bool
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

    def _is_due(self, running: RunningTask, finished: TaskRound) -> bool:
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

    def _count(self, partition: TopicPartition, running: RunningTask, finished: TaskRound) -> None:
        if running.writer.state_end is not None:
            running.state_end = running.writer.state_end
        if finished.data_offset is not None:
            self._committed[partition] = finished.data_offset
        for adoption in finished.adoptions:
            self._work.on_adopted(partition, adoption)
        self._fenced_in_a_row = 0
        self._work.on_written(partition, running.task.counts)
        if finished.records or finished.receipts:
            self._totals = replace(
                self._totals,
                records=self._totals.records + finished.records,
                bytes=self._totals.bytes + finished.record_bytes,
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
