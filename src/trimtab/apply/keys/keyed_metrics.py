"""Shows what the tasks of a keyed consumer do as Prometheus metrics.

Promise  Counters rise only for what a transaction has written, whatever tasks are lost and begun
         again; gauges are read at each scrape and vanish with their partition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING

from trimtab.apply.keys.task_round import Adoption, TaskCounts
from trimtab.model.cluster import TopicPartition
from trimtab.observe import metrics

if TYPE_CHECKING:
    from trimtab.apply.keys.partition_task import PartitionTask

Tasks = Callable[[], "Mapping[TopicPartition, PartitionTask]"]

_COUNTERS = {
    "handovers_out": metrics.consume_states_sent_total,
    "handover_bytes_out": metrics.consume_sent_bytes_total,
    "handovers_in": metrics.consume_states_adopted_total,
    "handover_bytes_in": metrics.consume_adopted_bytes_total,
    "lost_states": metrics.consume_lost_states_total,
    "dead_letters": metrics.consume_dead_letters_total,
}
_GAUGES: dict[metrics.SeriesGauge, Callable[[PartitionTask], float]] = {
    metrics.consume_owned_keys: lambda task: task.counts.owned,
    metrics.consume_waiting_keys: lambda task: task.counts.waiting,
    metrics.consume_parked_records: lambda task: task.counts.parked_records,
    metrics.consume_parked_bytes: lambda task: task.counts.parked_bytes,
    metrics.consume_oldest_wait_seconds: lambda task: task.oldest_wait_s,
}


class KeyedMetrics:
    """The metrics of the tasks of one process; callbacks are called by one thread."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._seen: dict[TopicPartition, tuple[TaskCounts, TaskCounts]] = {}

    def show(self, tasks: Tasks) -> None:
        """Exposes the gauges of the running tasks from now on."""
        for gauge, read in _GAUGES.items():
            gauge.read_from(lambda read=read: self._series(tasks, read))  # type: ignore[misc]

    def hide(self) -> None:
        """Exposes no gauges any more."""
        for gauge in _GAUGES:
            gauge.read_from(None)

    def _series(self, tasks: Tasks, read: Callable[[PartitionTask], float]) -> metrics.Series:
        return {
            (self._group, partition.topic, str(partition.partition)): read(task)
            for partition, task in tasks().items()
        }

    def adopted(self, partition: TopicPartition, adoption: Adoption) -> None:
        """A state has arrived."""
        labels = (self._group, partition.topic)
        metrics.consume_handover_blocked_seconds.labels(*labels).observe(adoption.blocked_s)
        if not adoption.lost:
            metrics.consume_handover_travel_seconds.labels(*labels).observe(adoption.travel_s)

    def restored(self, partition: TopicPartition, records: int, seconds: float) -> None:
        """A task was restored."""
        labels = (self._group, partition.topic)
        metrics.consume_restored_records_total.labels(*labels).inc(records)
        metrics.consume_restore_seconds.labels(*labels).observe(seconds)

    def written(self, partition: TopicPartition, counts: TaskCounts) -> None:
        """A transaction was written; the counters rise by what the task has done since the last."""
        known, before = self._seen.get(partition, (None, TaskCounts()))
        if known is not counts:  # a task that was begun again counts from 0
            before = TaskCounts()
        labels = (self._group, partition.topic)
        for name, counter in _COUNTERS.items():
            by = getattr(counts, name) - getattr(before, name)
            if by:
                counter.labels(*labels).inc(by)
        for reason, count in counts.dropped.items():
            by = count - before.dropped[reason]
            if by:
                dropped = metrics.consume_dropped_records_total
                dropped.labels(*labels, reason.name.lower()).inc(by)
        now = copy(counts)
        now.dropped = counts.dropped.copy()
        self._seen[partition] = (counts, now)
