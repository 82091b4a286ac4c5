"""Loads of partitions and keys, with their sources, and capacities of consumers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.wire import OMIT_EMPTY, REQUIRED, TIDY, Amount, Count, Positive, Wire

MEASURED_HEADROOM = 1 / 6
"""Default share of a measured capacity that is left free: C = 5/6 of the peak."""


class Unit(StrEnum):
    """The unit of a load."""

    BYTES_S = "bytes/s"
    RECORDS_S = "records/s"


class Source(StrEnum):
    """The source of a rate."""

    LOG_DIRS = "log_dirs"
    OFFSETS = "offsets"
    EVENTS = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """One partition's measured rates and lag; None means unknown, never 0.

    `committed_s` are the records per second that each group committed, `least_lag` is the lowest
    lag of all samples, and `lag` that of the last sample.
    """

    topic: str
    partition: Count
    bytes_s: Amount | None
    records_s: Amount | None
    source: Source
    end_offset: Count | None = None
    lag: Mapping[str, Count | None] = field(default_factory=dict)
    lag_s: Mapping[str, Amount | None] = field(default_factory=dict)
    committed_s: Annotated[Mapping[str, Amount | None], OMIT_EMPTY] = field(default_factory=dict)
    least_lag: Annotated[Mapping[str, Count | None], OMIT_EMPTY] = field(default_factory=dict)
    complete: Annotated[bool, REQUIRED] = True

    @property
    def name(self) -> TopicPartition:
        """The name of the partition."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLoad:
    """A heavy key: its count is between `lower` and `upper`, both inclusive.

    Its home partition is None if the number of partitions is unknown.
    """

    topic: str
    key: bytes
    lower: Count
    upper: Count
    share: Amount
    partition_home: Count | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The result of a measurement over one time span."""

    cluster: str | None
    from_ts: int
    to_ts: int
    window_s: Annotated[Positive, TIDY]
    rejects: Count
    partitions: Annotated[tuple[PartitionLoad, ...], Wire(sorted_by="name", noun="partition")]
    keys: tuple[KeyLoad, ...] = ()

    def loads(self, unit: Unit) -> dict[TopicPartition, float]:
        """The load of each partition in `unit`; partitions with unknown load are left out."""
        loads = {}
        for p in self.partitions:
            load = p.bytes_s if unit is Unit.BYTES_S else p.records_s
            if load is not None:
                loads[p.name] = load
        return loads


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """The loads of one step, and the lags if the file has them."""

    loads: Mapping[TopicPartition, Amount]
    lags: Annotated[Mapping[TopicPartition, Count], OMIT_EMPTY] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSteps:
    """The rates of a loads file, step by step."""

    unit: Unit = Unit.BYTES_S
    steps: Annotated[tuple[LoadStep, ...], Wire(rules=((bool, "has no steps"),))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads(RateSteps):
    """A loads file: the capacity of a consumer, and the loads of each step."""

    capacity: Annotated[Positive, Wire(before="unit")]
    sla_s: Annotated[Positive | None, Wire(before="steps", omit_empty=True)] = None
    assignment: Annotated[Assignment, Wire(before="steps", omit_empty=True)] = field(
        default_factory=Assignment
    )
    capacities: Annotated[Mapping[int, Positive], Wire(before="steps", omit_empty=True)] = field(
        default_factory=dict
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Capacities of a group's consumers: `capacity` for each, unless in `capacities`."""

    capacity: Positive
    capacities: Mapping[int, Positive] = field(default_factory=dict)
    unit: Unit = Unit.BYTES_S

    def __post_init__(self) -> None:
        for value in (self.capacity, *self.capacities.values()):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"a capacity must be a positive number, not {value}")
        for consumer in self.capacities:
            if consumer < 0:
                raise ValueError(f"a capacity is given for consumer {consumer}: indexes start at 0")

    def of(self, consumer: int) -> float:
        """The capacity of this consumer."""
        return self.capacities.get(consumer, self.capacity)

    @property
    def largest(self) -> float:
        """The capacity of the largest consumer."""
        return max((self.capacity, *self.capacities.values()))
