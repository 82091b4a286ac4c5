"""The ports of a consumer's cycle: `Handler`, `Reader`, `Sink`, `DeadLetters` and `Receipts`.

A reader returns the records of a partition in offset order. The cycle keeps them until it commits
them or releases the partition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from trimtab.apply.capacity import Capacity
from trimtab.apply.totals import Totals
from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record


class Reader(Protocol):
    """The source of records, which also stores committed offsets; used by one thread only."""

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; an empty result after `timeout_s`.

        If a partition is revoked or deleted meanwhile, the reader calls the callback it was opened
        with before it returns, and returns no more records of it.
        """
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all returned records, transaction markers skipped.

        None while it is unknown, or when the partition is not read.
        """
        ...

    def behind(self) -> int:
        """How many records at the brokers were not returned yet, as far as that is known.

        Partitions that return no records (no leader, for example) do not count: such a backlog says
        nothing about the consumer's capacity.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits the next offset to read of these partitions, and returns when that is confirmed.

        Partitions that this reader no longer owns are left out and reported by the callback.
        Raises `BrokerUnavailable` if it may succeed later.
        """
        ...

    def stay_active(self) -> None:
        """Keeps up group membership and checks while no records are needed; returns none."""
        ...

    def close(self) -> None:
        """Releases all partitions; commits nothing."""
        ...


class RecordWorker(Protocol):
    """What a consumer does with its partitions; used by one thread, but for totals and capacity."""

    capacity: Capacity

    @property
    def totals(self) -> Totals:
        """What was processed so far."""
        ...

    @property
    def committed(self) -> Mapping[TopicPartition, int]:
        """The committed offsets of the current partitions, as far as there are any."""
        ...

    def prepare(self, partitions: Collection[TopicPartition]) -> None:
        """Is called before the committed offsets of new partitions are fetched."""
        ...

    def begin(self, partition: TopicPartition, committed: int | None) -> None:
        """Adds a partition with its committed offset."""
        ...

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """Removes partitions; their records that were read but not handled are dropped."""
        ...

    def run(
        self,
        execute_commands: Callable[[], None] = lambda: None,
        has_commands: Callable[[], bool] = lambda: True,
    ) -> Totals:
        """Reads and handles until the consumer is stopped; runs commands when all is committed."""
        ...


class AttachedWorker(RecordWorker, Protocol):
    """A worker that gets its reader after it was made."""

    def attach(self, reader: Any) -> None:
        """Names the source of records; once, before `run`."""
        ...


class WorkerFactory(Protocol):
    """Opens what handles records in place of the plain cycle.

    `on_fenced` is called with partitions that another process has taken over; the worker then waits
    until it is given them again. If None, nobody else can have them, and it takes them back.
    """

    def __call__(
        self,
        *,
        client_id: str,
        incarnation: str,
        stop: threading.Event,
        on_fenced: Callable[[frozenset[TopicPartition]], None] | None,
    ) -> AbstractContextManager[AttachedWorker]:
        """The worker; it is closed with the block."""
        ...


class Sink(Protocol):
    """Where handled records are written; called for several tables at once."""

    def write(self, table: str, records: Sequence[Record]) -> None:
        """Makes these records of one topic durable before it returns; repeats change nothing."""
        ...

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Forgets what is cached of these partitions: others may write them from now on."""
        ...


class DeadLetters(Protocol):
    """Where records are sent whose handler failed at every attempt."""

    def send(self, record: Record, error: BaseException) -> None:
        """Queues a record, unchanged."""
        ...

    def confirm(self) -> None:
        """Returns when all are acknowledged; raises `BrokerUnavailable` if a retry is needed."""
        ...


class Receipts(Protocol):
    """Where processed records are noted; times in microseconds since 1970."""

    def note(self, record: Record, started_ts: int, finished_ts: int) -> None:
        """Queues the receipt of one record."""
        ...

    def confirm(self) -> None:
        """Returns when all are acknowledged; raises `BrokerUnavailable` if a retry is needed."""
        ...
