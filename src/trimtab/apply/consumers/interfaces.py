"""The ports of a consumer's cycle: `Handler`, `Reader`, `Sink`, `DeadLetters` and `Receipts`.

A reader returns the records of a partition in offset order. The cycle keeps them until it commits
them or releases the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Protocol

from trimtab.model.cluster import TopicPartition
from trimtab.model.record import Record

Handler = Callable[[Record], object]
"""A user's function: called with one record at a time, in order within a partition.

What it returns is ignored, except that a coroutine or a generator is an error."""


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
