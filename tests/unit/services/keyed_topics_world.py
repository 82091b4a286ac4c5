"""Topics in memory, and real tasks that work on them: what a keyed group leaves behind."""

from __future__ import annotations

from collections import defaultdict
from itertools import count

from trimtab.apply.keys.keyed_handler import counting_handler
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.message_sets import DataRecord, EndMarker, FenceMarker, StartMarker
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.record_headers import headers_for
from trimtab.apply.keys.state_layout import RestoredState
from trimtab.apply.keys.task_round import TaskHandling, TaskRound
from trimtab.model.cluster import TopicPartition
from trimtab.model.codec import dumps
from trimtab.model.control import Receipt
from trimtab.model.control_codec import receipt_to
from trimtab.model.record import Headers, Record, TopicLog

A, B = b"a", b"b"
RECEIPTS = "trimtab.receipts"
PARTITIONS = 3


class KeyedTopicsWorld:
    """A scripted gateway (shard 0) and a group with one task per partition."""

    def __init__(self, topic: str = "orders", *, has_input: bool = True) -> None:
        self.topics = KeyedTopics(topic, "pay")
        self.logs: dict[str, list[list[Record]]] = {}
        self.starts: defaultdict[str, dict[int, int]] = defaultdict(dict)
        self.gen = 1
        self.run = "r1"
        self._src = count()
        self._sent: defaultdict[bytes, int] = defaultdict(int)
        self._read: defaultdict[tuple[str, int], int] = defaultdict(int)
        self._now = count(1_000_000)
        named = [self.topics.data, self.topics.state, self.topics.handover, self.topics.dead]
        for topic in [*named, RECEIPTS, *([self.topics.input] if has_input else [])]:
            self.logs[topic] = [[] for _ in range(PARTITIONS)]
        self.tasks = [self._task(p) for p in range(PARTITIONS)]

    def __call__(self, topic: str) -> TopicLog | None:
        if topic not in self.logs:
            return None
        starts = dict.fromkeys(range(PARTITIONS), 0) | self.starts[topic]
        records = [r for log in self.logs[topic] for r in log if r.offset >= starts[r.partition]]
        return TopicLog(iter(records), starts)

    def append(
        self, topic: str, partition: int, key: bytes | None, value: bytes | None, headers: Headers
    ) -> int:
        log = self.logs[topic][partition]
        log.append(Record(topic, partition, len(log), key, value, headers, 1))
        return len(log) - 1

    # ------------------------------------------------------------ the gateway

    def send(
        self,
        key: bytes,
        partition: int,
        set_id: int | None = None,
        *,
        copies: int = 1,
        seq: int | None = None,
        value: bytes = b"x",
    ) -> None:
        self._sent[key] = self._sent[key] + 1 if seq is None else seq
        number = ("tt-seq", self._sent[key].to_bytes(8, "big"))
        if self.topics.input in self.logs:
            src = self.append(self.topics.input, key[0] % PARTITIONS, key, value, (number,))
        else:
            src = next(self._src)
        data = DataRecord(shard=0, gen=self.gen, src=src, set_id=set_id)
        for _ in range(copies):
            headers = (number, *headers_for(data))
            self.append(self.topics.data, partition, key, value, headers)

    def write_past_the_gateway(self, key: bytes, partition: int) -> None:
        self._sent[key] += 1
        number = ("tt-seq", self._sent[key].to_bytes(8, "big"))
        self.append(self.topics.data, partition, key, b"x", (number,))

    def move(self, key: bytes, source: int, target: int, set_id: int, *, old: int = 0) -> None:
        end = EndMarker(shard=0, gen=self.gen, set_id=old, next_set=set_id, to=target)
        at = self.append(self.topics.data, source, key, None, headers_for(end))
        start = StartMarker(shard=0, gen=self.gen, set_id=set_id, source=source, end_offset=at)
        self.append(self.topics.data, target, key, None, headers_for(start))

    def restart_gateway(self) -> None:
        self.gen += 1
        fence = FenceMarker(shard=0, gen=self.gen)
        for partition in range(PARTITIONS):
            self.append(self.topics.data, partition, None, None, headers_for(fence))

    # ------------------------------------------------------------ the tasks

    def _task(self, partition: int) -> PartitionTask:
        restored = RestoredState()
        for record in self.logs[self.topics.state][partition]:
            restored.add(record.key or b"", record.value)
        restored.finish()

        def fails(record: Record) -> None:
            if record.value == b"bad":
                raise ValueError("bad")

        handling = TaskHandling(
            handler=counting_handler(fails),
            now_us=lambda: next(self._now),
            stopped_within=lambda _pause_s: False,
        )
        name = TopicPartition(self.topics.data, partition)
        return PartitionTask(name, restored, handling, partitions=PARTITIONS, topic_id="id")

    def restart_tasks(self) -> None:
        self.tasks = [self._task(p) for p in range(PARTITIONS)]

    def crash_task(self, partition: int) -> None:
        """The task reads all it can, dies before its transaction, and is restored."""
        self._take(partition)
        self.tasks[partition] = self._task(partition)

    def work(self) -> None:
        """Tasks read until nothing is left."""
        while sum(self.work_on(p) for p in range(PARTITIONS)):
            pass

    def work_on(self, partition: int, *, most: int | None = None) -> bool:
        """One round of a task, with at most so many records of each topic."""
        busy = self._take(partition, most)
        task = self.tasks[partition]
        task.replay(lambda: False)
        self._write(partition, task.finish_round())
        return busy

    def _take(self, partition: int, most: int | None = None) -> bool:
        task, busy = self.tasks[partition], False
        for topic, take in (
            (self.topics.data, task.read),
            (self.topics.handover, task.read_handover),
        ):
            begin = self._read[topic, partition]
            for record in self.logs[topic][partition][begin:][:most]:
                take(record)
                busy = True
        return busy

    def _write(self, partition: int, done: TaskRound) -> None:
        for topic, offset in (
            (self.topics.data, done.data_offset),
            (self.topics.handover, done.handover_offset),
        ):
            if offset is not None:
                self._read[topic, partition] = offset
        for key, value in done.state.items():
            self.append(self.topics.state, partition, key, value, ())
        for write in done.handovers:
            self.append(self.topics.handover, write.partition, write.key, write.value, ())
        for letter in done.dead_letters:
            r = letter.record
            self.append(self.topics.dead, r.partition, r.key, r.value, r.headers)
        for applied in done.receipts:
            r = applied.record
            seq = r.header("tt-seq")
            receipt = Receipt(
                run=self.run,
                group=self.topics.group,
                topic=r.topic,
                partition=r.partition,
                offset=r.offset,
                key=r.key,
                seq=None if seq is None else int.from_bytes(seq, "big"),
                set_id=applied.set_id,
                consumer=0,
                incarnation=f"{partition}",
                event_ts=1,
                started_ts=applied.started_ts,
                finished_ts=applied.finished_ts,
                chain=applied.chain,
            )
            text = dumps(receipt_to(receipt)).encode()
            self.append(RECEIPTS, (r.key or b"0")[0] % PARTITIONS, r.key, text, ())


def travelled(topic: str = "orders", *, has_input: bool = True) -> KeyedTopicsWorld:
    """Key a goes 1 → 2 → 1 → 0, key b stays; a gateway and all tasks restart on the way."""
    world = KeyedTopicsWorld(topic, has_input=has_input)
    world.send(A, 1)
    world.send(B, 2)
    world.move(A, 1, 2, 1)
    world.send(A, 2, 1)
    world.move(A, 2, 1, 2, old=1)
    world.send(A, 1, 2, copies=2)
    world.work()
    world.restart_tasks()
    world.run = "r2"
    world.restart_gateway()
    world.move(A, 1, 0, 3, old=2)
    world.move(A, 1, 0, 3)  # repeated by the new gateway
    world.send(A, 0, 3)
    world.send(B, 2)
    world.work()
    return world
