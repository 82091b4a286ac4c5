"""The ports of a consumer's cycle: the user's `Handler`, a `Reader` and a `Sink`.

A reader hands out records in the order of their offsets within a partition. Everything it hands
out belongs to the cycle until that commits it, or lets the partition go.
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
    """Where records come from and where progress is kept; used by one thread only."""

    def read(self, timeout_s: float) -> Sequence[Record]:
        """The next records, as soon as there are some; none after `timeout_s`.

        A partition may leave meanwhile (revoked, deleted): the reader says so through the callback
        it was opened with, before it returns, and hands out nothing more of it.
        """
        ...

    def position(self, partition: TopicPartition) -> int | None:
        """The next offset after all that was handed out, transaction markers passed over.

        None while nothing is known, or when the partition is not read.
        """
        ...

    def behind(self) -> int:
        """How many records the brokers hold that were not handed out, as far as that is known.

        Only of partitions that move: who waits for a partition that hands out nothing has no
        backlog to show what it can do.
        """
        ...

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Keeps the next offset to read of these partitions, and returns when that is safe.

        Partitions that are no longer this reader's own are left out and told through the callback.
        Raises `BrokerUnavailable` when it may go well later.
        """
        ...

    def tend(self) -> None:
        """Does what a reader owes to others while no record is wanted, and hands out nothing."""
        ...

    def close(self) -> None:
        """Lets everything go; commits nothing."""
        ...


class Sink(Protocol):
    """Where handled records are written; called for several tables at once."""

    def write(self, table: str, records: Sequence[Record]) -> None:
        """Makes these records of one topic durable before it returns; a repeat changes nothing."""
        ...

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Others may write these partitions from now on: nothing known of them holds any more."""
        ...
