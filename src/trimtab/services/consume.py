"""Runs one consumer: directed by the group's controller, or a subscribed member of the group."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from trimtab.apply.keys.backends.state_stores import (
    MAX_MEMORY_BYTES,
    StateStore,
    state_stores,
)
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import TopicPartition
from trimtab.services.progress import NO_LISTENER, ProgressListener

if TYPE_CHECKING:
    from trimtab.apply.consumers.kafka.consumer import ConsumerConfig
    from trimtab.apply.handling import Handler
    from trimtab.apply.keys.keyed_handler import KeyedHandler
    from trimtab.apply.totals import Totals
    from trimtab.kafka.retry import Retry
    from trimtab.services.keyed_consumer import KeyedConsumer

_LONGEST_BACKOFF_S = 10.0
_PARKED_BYTES = 64 * 2**20
_NOTE_EVERY_S = 5.0


class ConsumeMode(StrEnum):
    """How partitions are assigned: one by one by the controller, or by the group's own leader."""

    DIRECTED = "directed"
    GROUP = "group"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeRequest:
    """Which records a consumer reads, and what it does with them.

    Attributes:
        group: The consumer group.
        topics: The topics to read.
        mode: How partitions are assigned.
        index: The consumer's place in the group; a directed consumer must have one.
        instance: Makes a subscribed member a static one of this name.
        handler: Is called with each record.
        lake: Records are written as Parquet under this folder.
        batch_bytes: A batch is full with this many bytes.
        wait_s: How long a batch may take to fill.
        beginning: `earliest` or `latest`, for partitions without a committed offset.
        attempts: How often a handler that raises is tried.
        backoff_s: Pause before the second attempt; it doubles up to 10 s.
        receipts: Whether each processed record is noted in the topic of receipts.
        run: Name of the run in the receipts.
        in_hand: File that names the record being handled, for the start after a crash.
        keyed: Handles records by key, with states that follow their keys; then `handler` and
            `lake` are not used.
        max_tasks: Partitions that a keyed consumer may own.
        commit_s: Longest time between two transactions of a keyed consumer's task.
        max_parked: Records that a task may park before it stops reading its partition.
        store: Where a keyed consumer keeps states while it runs.
        store_dir: The folder of states on disk; the system's for temporary files if None.
        max_state_memory: Bytes that states in memory may take.
        controller_url: Where the controller answers, in group mode.
        token: The controller's token, in group mode.
    """

    group: str
    topics: tuple[str, ...]
    mode: ConsumeMode = ConsumeMode.DIRECTED
    index: int | None = None
    instance: str | None = None
    handler: Handler | None = None
    lake: Path | None = None
    batch_bytes: int = 5_000_000
    wait_s: float = 1.0
    beginning: str = "earliest"
    attempts: int = 5
    backoff_s: float = 0.1
    receipts: bool = True
    run: str = "live"
    in_hand: Path | None = None
    keyed: KeyedHandler | None = None
    max_tasks: int = 64
    commit_s: float = 0.5
    max_parked: int = 10_000
    store: StateStore = StateStore.MEMORY
    store_dir: Path | None = None
    max_state_memory: int = MAX_MEMORY_BYTES
    controller_url: str = "http://127.0.0.1:8765"
    token: str | None = None


def consume_records(
    cluster: Cluster,
    request: ConsumeRequest,
    *,
    stop: threading.Event,
    listener: ProgressListener = NO_LISTENER,
) -> Totals:
    """Reads, handles and commits until `stop` is set; a record being handled is finished first.

    The listener is warned of the record that the previous process was handling when it crashed.
    """
    from trimtab.apply.consumers.backends.current_record import noted_record
    from trimtab.apply.consumers.kafka.consumer import DirectedConsumer, GroupConsumer

    if request.in_hand is not None and (record := noted_record(request.in_hand)) is not None:
        listener.warning(f"the previous process ended while it handled {record}")
    config = _config(cluster, request, listener)
    consumer = (
        DirectedConsumer(config, stop=stop)
        if request.mode is ConsumeMode.DIRECTED
        else GroupConsumer(
            config, controller_url=request.controller_url, token=request.token, stop=stop
        )
    )
    listener.started(f"Consuming for group {request.group} ({request.mode})")
    return consumer.run()


def _config(
    cluster: Cluster, request: ConsumeRequest, listener: ProgressListener
) -> ConsumerConfig:
    from trimtab.apply.consumers.backends.current_record import CurrentRecord
    from trimtab.apply.consumers.kafka.consumer import ConsumerConfig
    from trimtab.apply.consumers.kafka.directed_reader import OffsetReset
    from trimtab.apply.consumers.kafka.parquet_sink import Lake
    from trimtab.apply.consumers.work import Limits
    from trimtab.kafka.retry import Retry

    backoff_s = request.backoff_s
    retry = Retry(
        attempts=request.attempts, first_s=backoff_s, most_s=max(backoff_s, _LONGEST_BACKOFF_S)
    )
    in_hand = None if request.in_hand is None else CurrentRecord(request.in_hand)
    return ConsumerConfig(
        group=request.group,
        topics=request.topics,
        cluster=cluster,
        index=request.index,
        instance=request.instance,
        handler=request.handler,
        sink=None if request.lake is None else Lake(request.lake),
        limits=Limits(batch_bytes=request.batch_bytes, wait_s=request.wait_s),
        retry=retry,
        beginning=OffsetReset(request.beginning),
        receipts=request.receipts,
        run=request.run,
        in_hand=in_hand,
        worker=None
        if request.keyed is None
        else _keyed(cluster, request, request.keyed, retry, RestoreNotes(listener)),
    )


def _keyed(
    cluster: Cluster,
    request: ConsumeRequest,
    handler: KeyedHandler,
    retry: Retry,
    notes: RestoreNotes,
) -> KeyedConsumer:
    from trimtab.apply.consumers.backends.current_record import CurrentRecord
    from trimtab.apply.keys.kafka.keyed_work import KeyedWork
    from trimtab.apply.keys.task import ParkingLimits
    from trimtab.apply.keys.task_round import TaskLimits
    from trimtab.services.keyed_consumer import KeyedConsumer

    return KeyedConsumer(
        cluster=cluster,
        group=request.group,
        topics=request.topics,
        work=KeyedWork(
            handler=handler,
            limits=TaskLimits(parking=ParkingLimits(request.max_parked, _PARKED_BYTES)),
            retry=retry,
            max_tasks=request.max_tasks,
            commit_s=request.commit_s,
            store=state_stores(
                request.store, folder=request.store_dir, max_memory_bytes=request.max_state_memory
            ),
            in_hand=None if request.in_hand is None else CurrentRecord(request.in_hand),
            on_restoring=notes.restoring,
            on_restored=notes.restored,
        ),
        index=request.index,
        receipts=request.receipts,
        run=request.run,
    )


class RestoreNotes:
    """Tells how far the restore of large states is; called by several threads."""

    def __init__(
        self, listener: ProgressListener, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._listener = listener
        self._clock = clock
        self._guard = threading.Lock()
        self._next = clock() + _NOTE_EVERY_S

    def restoring(self, partition: TopicPartition, read: int, there: int) -> None:
        """Some records of a task's changelog are read; offsets tell about how many there are."""
        with self._guard:
            if self._clock() < self._next:
                return
            self._next = self._clock() + _NOTE_EVERY_S
        share = min(100, 100 * read // max(1, there))
        self._listener.note(f"Restoring {partition}: {read} records, about {share} %")

    def restored(self, partition: TopicPartition, records: int, took_s: float) -> None:
        """A task is restored."""
        if took_s >= _NOTE_EVERY_S:
            self._listener.note(f"Restored {partition}: {records} records in {took_s:.1f} s")
