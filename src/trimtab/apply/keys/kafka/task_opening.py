"""Begins the task of a partition: fence its predecessor, then restore what that has left.

Promise  In this order, or a predecessor could still write what was not read any more. A task that
         sleeps goes on without a restore if its changelog has not moved.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from trimtab.apply.keys.backends.memory_store import MemoryStores
from trimtab.apply.keys.kafka.keyed_work import KeyedTopicFacts, KeyedWork
from trimtab.apply.keys.kafka.output_checks import OutputChecks
from trimtab.apply.keys.kafka.state_reader import read_state, state_consumer, state_end
from trimtab.apply.keys.kafka.task_writer import TaskWriter
from trimtab.apply.keys.keyed_topics import KeyedTopics
from trimtab.apply.keys.partition_task import PartitionTask
from trimtab.apply.keys.task_round import TaskHandling
from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.observe.logging import library_log

log = library_log()


@dataclass(slots=True)
class RunningTask:
    """A task that this process owns, and its producer."""

    task: PartitionTask
    writer: TaskWriter
    paused: bool = False
    state_end: int | None = None
    data_position: int | None = None
    offsets_at: float = 0.0


class TaskOpener:
    """Opens tasks, several at a time, each in a thread of its own.

    `sleeping` holds tasks that were taken away, the one that sleeps longest first.
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
        stopped_within: Callable[[float], bool],
        clock: Callable[[], float],
    ) -> None:
        self.sleeping: dict[TopicPartition, RunningTask] = {}
        self._cluster = cluster
        self._group = group
        self._work = work
        self._facts = facts
        self._client_id = client_id
        self._stop = stop
        self._stopped_within = stopped_within
        self._clock = clock
        self._check_output = OutputChecks(
            cluster.admin,
            reserved=[
                beside
                for topics in (KeyedTopics(name, group) for name in facts)
                for beside in (topics.state, topics.handover, topics.assign)
            ],
        )
        self._store = work.store or MemoryStores()
        if isinstance(self._store, MemoryStores):
            self._store.spare = self.sleeping.clear

    def open(self, partition: TopicPartition) -> RunningTask | None:
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
    ) -> RunningTask | None:
        began = self._clock()
        if not writer.fence(self._stop):
            writer.close()
            return None
        number, timeout_s = partition.partition, self._cluster.timeouts.attempt_s
        name = f"{self._client_id}-restore-{number}"
        with state_consumer(self._cluster, client_id=name, group=self._group) as consumer:
            asleep = self.sleeping.pop(partition, None)
            end = state_end(consumer, topics.state, number, timeout_s=timeout_s)
            if asleep is not None and asleep.state_end == end:
                log.info("task_resumed", partition=str(partition))
                return RunningTask(asleep.task, writer, state_end=end)
            found = read_state(
                consumer,
                topics.state,
                number,
                stop=self._stop,
                timeout_s=timeout_s,
                entries=self._store(partition),
                on_progress=partial(self._work.on_restoring, partition),
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
                check_output=self._check_output,
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
        return RunningTask(task, writer, state_end=end)
