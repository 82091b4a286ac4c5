"""What partitions demand of equal consumers that must keep a latency: arrival rates and lags."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.errors import PlanningError
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import check_loads
from trimtab.plan.consumers.planner import PackingContext

# A bound from rounded sums must not exceed what a packing with the same rounding can reach.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The demand of partitions on consumers that each read `mu` records a second, within `sla_s`.

    Attributes:
        arrivals: λ, records a second, by partition.
        lags: Unread records by partition; 0 for a partition not named.
        mu: The service rate of a consumer, records a second.
        sla_s: W, the longest acceptable wait of a record.
    """

    arrivals: Mapping[TopicPartition, float]
    lags: Mapping[TopicPartition, float]
    mu: float
    sla_s: float

    def __post_init__(self) -> None:
        check_loads(self.arrivals)
        for partition in sorted(self.lags):
            lag = self.lags[partition]
            if not (math.isfinite(lag) and lag >= 0):
                raise ValueError(f"{partition} has lag {lag}: it must be a number, 0 or more")
        for name, value in (("service rate", self.mu), ("SLA", self.sla_s)):
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"the {name} must be a positive number, not {value}")
        if not math.isfinite(self.most_lag):
            raise ValueError(f"{self.mu} records/s for {self.sla_s} s is too large for a number")

    @property
    def most_lag(self) -> float:
        """The lag that one consumer can read in time, μ·W."""
        return self.mu * self.sla_s

    def lag(self, partition: TopicPartition) -> float:
        """The lag, not capped."""
        return self.lags.get(partition, 0)

    def rate_share(self, partition: TopicPartition) -> float:
        """The arrival rate as packing counts it: at most a full consumer."""
        return min(self.arrivals[partition], self.mu)

    def lag_share(self, partition: TopicPartition) -> float:
        """The lag as packing counts it: at most what a consumer can read in time."""
        return min(self.lag(partition), self.most_lag)

    def in_order(self) -> list[TopicPartition]:
        """The partitions as they are packed: decreasing rate, then lag."""
        return sorted(self.arrivals, key=lambda p: (-self.rate_share(p), -self.lag_share(p), p))

    def notes(self) -> dict[str, list[str]]:
        """The partitions that no assignment can serve in time, by reason."""
        return {
            "unsatisfiable": [str(p) for p in sorted(self.arrivals) if self.arrivals[p] > self.mu],
            "late": [str(p) for p in sorted(self.arrivals) if self.lag(p) > self.most_lag],
        }


def demand_of(
    loads: Mapping[TopicPartition, float], limits: GroupLimits, context: PackingContext
) -> Demand:
    """The demand for a latency planner; raises if the SLA is missing or consumers differ."""
    if context.sla_s is None:
        raise PlanningError(
            "Packing for latency needs an SLA (the longest wait of a record).",
            hint='Give "sla_s" in the loads file, or --sla.',
        )
    if any(capacity != limits.capacity for capacity in limits.capacities.values()):
        raise PlanningError(
            "Packing for latency needs equal consumers, but some have their own capacity.",
            hint='Leave out "capacities", or use a planner that packs by load, such as "mwf".',
        )
    return Demand(arrivals=loads, lags=context.lags, mu=limits.capacity, sla_s=context.sla_s)


def lower_bound(demand: Demand) -> int:
    """A lower bound: all arrivals and all lag, divided by the capacity of a consumer."""
    if not demand.arrivals:
        return 0
    rates = [demand.rate_share(p) for p in demand.arrivals]
    lags = [demand.lag_share(p) for p in demand.arrivals]
    return max(1, _shared(rates, demand.mu), _shared(lags, demand.most_lag))


def _shared(shares: Iterable[float], room: float) -> int:
    total = math.fsum(shares)
    if all(float(x).is_integer() for x in (total, room)):
        return -(-int(total) // int(room))
    return math.ceil(total / room * (1 - ROUNDING))
