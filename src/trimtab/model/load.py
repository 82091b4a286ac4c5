"""How heavy things are: loads of partitions and keys, and where the figures come from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition

MEASURED_HEADROOM = 1 / 6
"""Part of a measured capacity that is left free unless said otherwise: C = 5/6 of the peak."""


class Unit(StrEnum):
    """What a load is counted in."""

    BYTES_S = "bytes/s"
    RECORDS_S = "records/s"


class Source(StrEnum):
    """Where a rate comes from."""

    LOG_DIRS = "log_dirs"
    OFFSETS = "offsets"
    EVENTS = "events"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLoad:
    """One partition's measured rates and lag; None is unknown, never 0.

    `committed_s` is what each group committed per second, in records, and `least_lag` the lowest
    lag that any look showed; `lag` is that of the last one.
    """

    topic: str
    partition: int
    bytes_s: float | None
    records_s: float | None
    source: Source
    end_offset: int | None = None
    lag: Mapping[str, int | None] = field(default_factory=dict)
    lag_s: Mapping[str, float | None] = field(default_factory=dict)
    committed_s: Mapping[str, float | None] = field(default_factory=dict)
    least_lag: Mapping[str, int | None] = field(default_factory=dict)
    complete: bool = True

    @property
    def name(self) -> TopicPartition:
        """The partition this speaks of."""
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLoad:
    """A heavy key: its count lies between `lower` and `upper`, both included.

    Its home is None where the number of partitions is unknown.
    """

    topic: str
    key: bytes
    lower: int
    upper: int
    share: float
    partition_home: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What the pipeline found over one span of time."""

    cluster: str | None
    from_ts: int
    to_ts: int
    window_s: float
    rejects: int
    partitions: tuple[PartitionLoad, ...]
    keys: tuple[KeyLoad, ...] = ()

    def loads(self, unit: Unit) -> dict[TopicPartition, float]:
        """Each partition's load in `unit`; partitions of unknown load are left out."""
        loads = {}
        for p in self.partitions:
            load = p.bytes_s if unit is Unit.BYTES_S else p.records_s
            if load is not None:
                loads[p.name] = load
        return loads


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadStep:
    """The loads of one iteration, and the lags where the file has them."""

    loads: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RateSteps:
    """The rates of a loads file, step by step."""

    steps: tuple[LoadStep, ...]
    unit: Unit = Unit.BYTES_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads(RateSteps):
    """A loads file: what a consumer can carry, and what each step asks for."""

    capacity: float
    sla_s: float | None = None
    assignment: Assignment = field(default_factory=Assignment)
    capacities: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What the consumers of a group can carry: `capacity` each, or what `capacities` says."""

    capacity: float
    capacities: Mapping[int, float] = field(default_factory=dict)
    unit: Unit = Unit.BYTES_S

    def __post_init__(self) -> None:
        for value in (self.capacity, *self.capacities.values()):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"a capacity must be a positive number, not {value}")
        for consumer in self.capacities:
            if consumer < 0:
                raise ValueError(f"a capacity is given for consumer {consumer}: indexes start at 0")

    def of(self, consumer: int) -> float:
        """What this consumer can carry."""
        return self.capacities.get(consumer, self.capacity)

    @property
    def largest(self) -> float:
        """What the largest consumer can carry."""
        return max((self.capacity, *self.capacities.values()))
