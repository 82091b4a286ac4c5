"""Baselines: Kafka's own assignors, the lag-based assignor, and KEDA's lag scaler.

Promise  Deterministic, O(n log n); capacities are ignored. Members are `members`, else the current
         consumers, else the fewest that could carry the load; the highest indexes leave first.
         kafka-range        each topic in contiguous runs, the first members one longer
         kafka-round-robin  all partitions in order, one to each member in turn
         kafka-sticky       equal numbers with the fewest moves; which ones stay: `sticky_keeps`
         lag-based          greatest lag first, to the member with fewest partitions, then least lag
         keda-lag           one consumer per `lag_threshold` of lag; assigned as kafka-sticky
Sources  Apache Kafka (members ordered by index); kafka-lag-based-assignor (topics together); KEDA.

>>> planners = {planner.name: planner for planner in BASELINES}
>>> orders = [TopicPartition("orders", n) for n in range(5)]
>>> before = Assignment(dict(zip(orders, (0, 0, 0, 0, 1))))
>>> after = planners["kafka-sticky"](dict.fromkeys(orders, 1), before, GroupLimits(capacity=9))
>>> [after[p] for p in orders]
[0, 0, 0, 1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from heapq import heapify, heapreplace
from itertools import count, cycle, groupby, islice
from typing import Annotated

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import check_loads
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    NO_OPTIONS,
    PackingContext,
    PackingPlanner,
    PlannerKind,
    PlannerOptions,
)


class KeptPartitions(StrEnum):
    """Which partitions a consumer keeps if it must give some away to equalise the numbers."""

    LOWEST = "lowest"
    HIGHEST = "highest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StickyOptions(PlannerOptions):
    """Options of `kafka-sticky`."""

    sticky_keeps: Annotated[
        KeptPartitions, "Which partitions kafka-sticky and keda-lag leave with their consumer."
    ] = KeptPartitions.LOWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class KedaOptions(StickyOptions):
    """Options of `keda-lag`."""

    lag_threshold: Annotated[
        int, "Target lag per consumer of keda-lag: in records, in a replay in --unit."
    ] = 10

    def __post_init__(self) -> None:
        if self.lag_threshold <= 0:
            raise ValueError(f"the lag threshold must be at least 1, not {self.lag_threshold}")


_STICKY, _KEDA = StickyOptions(), KedaOptions()


def kafka_range(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """Assigns each topic in contiguous runs, the first members one longer."""
    members = _members(loads, current, limits, context)
    owners: dict[TopicPartition, int] = {}
    for _, topic in groupby(sorted(loads), key=lambda p: p.topic):
        partitions = list(topic)
        length, longer = divmod(len(partitions), len(members))
        rest = iter(partitions)
        for place, member in enumerate(members[: len(partitions)]):
            owners.update(dict.fromkeys(islice(rest, length + (place < longer)), member))
    return Assignment(owners)


def kafka_round_robin(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """Assigns all partitions in order, one to each member in turn."""
    members = _members(loads, current, limits, context)
    return Assignment(dict(zip(sorted(loads), cycle(members), strict=False)))


def kafka_sticky(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: StickyOptions = _STICKY,
    /,
) -> Assignment:
    """Members keep what equal numbers permit; the rest is assigned to those with the fewest."""
    members = _members(loads, current, limits, context)
    if not members:
        return Assignment()
    owned: dict[int, list[TopicPartition]] = {member: [] for member in members}
    for partition in sorted(loads, reverse=options.sticky_keeps is KeptPartitions.HIGHEST):
        if current.get(partition) in owned:
            owned[current[partition]].append(partition)
    fewest, one_more = divmod(len(loads), len(members))
    owners: dict[TopicPartition, int] = {}
    counts: dict[int, int] = {}
    for member in members:
        # Members that can keep one more partition get the places above the minimum.
        extra = one_more > 0 and len(owned[member]) > fewest
        one_more -= extra
        kept = owned[member][: fewest + extra]
        counts[member] = len(kept)
        owners.update(dict.fromkeys(kept, member))
    return _dealt(sorted(loads.keys() - owners.keys()), counts, {}, owners)


def lag_based(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """Assigns the greatest lag first, to the member with fewest partitions, then least lag."""
    members = _members(loads, current, limits, context)
    lags = _lags(loads, context)
    order = sorted(loads, key=lambda p: (-lags[p], p))
    return _dealt(order, dict.fromkeys(members, 0), lags, {})


def keda_lag(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: KedaOptions = _KEDA,
    /,
) -> Assignment:
    """Uses as many consumers as the lag requires, and assigns as `kafka_sticky` does."""
    asked = -(-sum(_lags(loads, context).values()) // options.lag_threshold)
    replicas = max(1, min(asked, len(loads)))
    return kafka_sticky(loads, current, limits, replace(context, members=replicas), options)


def _members(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext,
) -> Sequence[int]:
    """The indexes of the members, ascending; empty if there are no partitions."""
    check_loads(loads)
    if context.members is not None and context.members < 1:
        raise ValueError(f"the number of members must be at least 1, not {context.members}")
    if not loads:
        return ()
    present = current.only(loads).consumers
    number = context.members or len(present) or fewest_consumers(loads.values(), limits)
    taken = frozenset(present)
    free = (index for index in count() if index not in taken)
    # More members than partitions would get nothing.
    new = min(len(loads), max(0, number - len(present)))
    return sorted([*present[:number], *islice(free, new)])


def _lags(
    loads: Mapping[TopicPartition, float], context: PackingContext
) -> dict[TopicPartition, int]:
    lags = {partition: context.lags.get(partition, 0) for partition in loads}
    for partition, lag in lags.items():
        if not (math.isfinite(lag) and lag >= 0):
            raise ValueError(f"{partition} has lag {lag}: it must be a number, 0 or more")
    return lags


def _dealt(
    partitions: Iterable[TopicPartition],
    counts: Mapping[int, int],
    lags: Mapping[TopicPartition, int],
    owners: Mapping[TopicPartition, int],
) -> Assignment:
    """Adds each partition to the member that has the fewest, then the least lag."""
    dealt = dict(owners)
    heap = [(held, 0, member) for member, held in counts.items()]
    heapify(heap)
    for partition in partitions:
        held, lag, member = heap[0]
        dealt[partition] = member
        heapreplace(heap, (held + 1, lag + lags.get(partition, 0), member))
    return Assignment(dealt)


BASELINES: tuple[PackingPlanner, ...] = (
    PackingPlanner(
        name="kafka-range", rule=kafka_range, kind=PlannerKind.DEALS, uses=frozenset({"members"})
    ),
    PackingPlanner(
        name="kafka-round-robin",
        rule=kafka_round_robin,
        kind=PlannerKind.DEALS,
        uses=frozenset({"members"}),
    ),
    PackingPlanner(
        name="kafka-sticky",
        rule=kafka_sticky,
        options=_STICKY,
        kind=PlannerKind.DEALS,
        uses=frozenset({"members"}),
    ),
    PackingPlanner(
        name="lag-based",
        rule=lag_based,
        kind=PlannerKind.DEALS,
        uses=frozenset({"members", "lags"}),
    ),
    PackingPlanner(
        name="keda-lag",
        rule=keda_lag,
        options=_KEDA,
        kind=PlannerKind.DEALS,
        uses=frozenset({"lags"}),
    ),
)
