"""What a partitioner is, and what it may be told.

A partitioner belongs to no cluster and no producer: one instance may serve several producers,
threads and topics at once. It answers from a snapshot; it never asks anybody.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from trimtab.plan.records.leaders import LeaderSnapshot


class Granularity(StrEnum):
    """How long a choice holds."""

    PER_RECORD = "record"
    PER_BATCH = "batch"  # until `sticky_bytes` were given to it


class Counted(StrEnum):
    """What the shortest queue is counted in."""

    BYTES = "bytes"
    RECORDS = "records"


def nothing_known() -> Mapping[int, float]:
    """No weight is known: all are equal."""
    return {}


def nothing_queued(_topic: str) -> Mapping[int, int]:
    """No queue is known: all are equal."""
    return {}


def nobody() -> Collection[int]:
    """No broker is stuck."""
    return ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingOptions:
    """What a partitioner may be told; each reads what concerns it.

    What is called here may be called with a lock held: it must not ask the partitioner.

    Attributes:
        granularity: Whether it chooses for each record, or for a batch at a time.
        sticky_bytes: How many bytes a batch is given before the next choice.
        linger_s: After that long a batch is done for `sticky`, full or not.
        ignore_keys: Keyed records are spread like others, as Burato's Node and SQF do.
        seed: Of random starts and draws; None is another one each time.
        start: Every counter starts here instead of at random, for tests.
        counted: What `sqf` counts.
        faithful: `sqf` as published: records, and no rule for brokers that come back.
        weights: What `weighted-node` follows: broker to weight; empty is equal.
        queues: Batches that wait in the client, by partition of a topic, for `adaptive`.
        stuck: Brokers that took no ready batch for too long, for `adaptive`.
        rack: Where the client stands, for `rack-aware`.
        clock: Seconds that only grow, for `sticky`.
    """

    granularity: Granularity = Granularity.PER_RECORD
    sticky_bytes: int = 16384
    linger_s: float | None = None
    ignore_keys: bool = False
    seed: int | None = None
    start: int | None = None
    counted: Counted = Counted.BYTES
    faithful: bool = False
    weights: Callable[[], Mapping[int, float]] = nothing_known
    queues: Callable[[str], Mapping[int, int]] = nothing_queued
    stuck: Callable[[], Collection[int]] = nobody
    rack: str | None = None
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        if self.sticky_bytes < 1:
            raise ValueError(f"a batch takes at least one byte, not {self.sticky_bytes}")


class Partitioner(Protocol):
    """Record → partition; thread-safe.

    One instance may serve several clusters: what it counts it keeps apart by `snapshot.cluster`.
    """

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        """The partition for a record of `size` bytes (key and value), counted as given there.

        A record with a key goes where Kafka's hash puts it, among all partitions. A topic that the
        snapshot does not know raises UnknownTopic.
        """
        ...

    def closed(self, topic: str, partition: int, /) -> None:
        """The client's open batch on this partition is done: `sticky` goes on to another one."""
        ...
