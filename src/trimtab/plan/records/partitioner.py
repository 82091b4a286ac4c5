"""The partitioner protocol, and the options of partitioners.

One partitioner instance may serve several clusters, producers, threads and topics at once. It
chooses from a snapshot of leaders and makes no network calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trimtab.plan.records.leaders import LeaderSnapshot


class Granularity(StrEnum):
    """Whether a choice is made per record or per batch."""

    PER_RECORD = "record"
    PER_BATCH = "batch"  # until `sticky_bytes` were sent to it


class CountUnit(StrEnum):
    """The unit in which `sqf` counts."""

    BYTES = "bytes"
    RECORDS = "records"


def nothing_known() -> Mapping[int, float]:
    """No weights: all brokers are equal."""
    return {}


def nothing_queued(_topic: str) -> Mapping[int, int]:
    """No queue lengths: all partitions are equal."""
    return {}


def none_stuck() -> Collection[int]:
    """No broker is stuck."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """Options of partitioners; each partitioner reads some of them.

    The callbacks may be called while a lock is held: they must not call the partitioner.

    Attributes:
        granularity: Choose per record, or per batch.
        sticky_bytes: Bytes per batch before the next choice.
        linger_s: A batch of `sticky` ends after this time, even if it is not full.
        ignore_keys: Spread keyed records like others, as Burato's Node and SQF do.
        seed: Seed of random starts and draws; None for a new one each time.
        start: Start value of every counter instead of a random one, for tests.
        counted: The unit in which `sqf` counts.
        faithful: `sqf` as published: counts records, without the rules for returning brokers.
        weights: Returns the broker weights for `weighted-node`; empty means equal.
        queues: Returns the batches waiting in the client, by partition, for `adaptive`.
        stuck: Returns brokers that took no ready batch for too long, for `adaptive`.
        rack: The rack of the client, for `rack-aware`.
        clock: A monotonic clock in seconds, for `sticky`.
    """

    granularity: Granularity = Granularity.PER_RECORD
    sticky_bytes: int = 16384
    linger_s: float | None = None
    ignore_keys: bool = False
    seed: int | None = None
    start: int | None = None
    counted: CountUnit = CountUnit.BYTES
    faithful: bool = False
    weights: Callable[[], Mapping[int, float]] = nothing_known
    queues: Callable[[str], Mapping[int, int]] = nothing_queued
    stuck: Callable[[], Collection[int]] = none_stuck
    rack: str | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.sticky_bytes < 1:
            raise ValueError(f"sticky_bytes must be at least 1, not {self.sticky_bytes}")


class Partitioner(Protocol):
    """Record → partition; thread-safe.

    One instance may serve several clusters: counts are kept per `snapshot.cluster`.
    """

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition for a record of `size` bytes (key and value), which is counted as sent.

        A record with a key goes to the partition of Kafka's hash, among all partitions. A topic
        that is not in the snapshot raises UnknownTopic.
        """
        ...

    def closed(self, topic: str, partition: int, /) -> None:
        """The client's open batch on this partition is done: `sticky` switches to another one."""
        ...
