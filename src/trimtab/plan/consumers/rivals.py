"""What a group has without a planner: Kafka's own assignors, the lag-based one, KEDA's count.

Why      A planner is worth its trouble only if it beats what a user would otherwise take.
Promise  Deterministic. Every partition is dealt once; capacities play no part, so a consumer may
         carry more than it can. Round robin, sticky, lag-based and KEDA's deal leave no two
         members more than one partition apart. Sticky moves as few partitions as that allows.
Cost     O(n log n).
Rules    There are `members` consumers, else as many as the group has, else the fewest that could
         carry the load; when there are too many, those of the highest index leave.
         kafka-range        each topic in contiguous runs, the first members one longer
         kafka-round-robin  all partitions in order, one to each member in turn
         kafka-sticky       everybody keeps what equal numbers permit, the lowest or the highest
                            (`sticky_keeps`); the rest go to the member with the fewest
         lag-based          the greatest lag first, to the member with the fewest partitions, then
                            the least lag
         keda-lag           one consumer for every `lag_threshold` of lag, from one up to one per
                            partition; dealt as kafka-sticky
Sources  The assignors of Apache Kafka's consumer, members in the order of their indexes instead of
         their names; kafka-lag-based-assignor, which deals every topic by itself, here all of them
         together; the Kafka scaler of KEDA.

>>> planners = {planner.name: planner for planner in RIVALS}
>>> orders = [TopicPartition("orders", n) for n in range(5)]
>>> before = Assignment(dict(zip(orders, (0, 0, 0, 0, 1))))
>>> after = planners["kafka-sticky"](dict.fromkeys(orders, 1), before, GroupLimits(capacity=9))
>>> [after[p] for p in orders]
[0, 0, 0, 1, 1]
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from heapq import heapify, heapreplace
from itertools import count, cycle, groupby, islice

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.bins import check_loads
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.planner import (
    DEFAULTS,
    Keeps,
    PackingOptions,
    PackingPlanner,
    PlannerKind,
)


def kafka_range(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Deals each topic in contiguous runs, the first members one longer."""
    members = _members(loads, current, limits, options)
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
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Deals all partitions in order, one to each member in turn."""
    members = _members(loads, current, limits, options)
    return Assignment(dict(zip(sorted(loads), cycle(members), strict=False)))


def kafka_sticky(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Leaves with everybody what equal numbers permit, and deals the rest."""
    members = _members(loads, current, limits, options)
    if not members:
        return Assignment()
    owned: dict[int, list[TopicPartition]] = {member: [] for member in members}
    for partition in sorted(loads, reverse=options.sticky_keeps is Keeps.HIGHEST):
        if current.get(partition) in owned:
            owned[current[partition]].append(partition)
    fewest, one_more = divmod(len(loads), len(members))
    owners: dict[TopicPartition, int] = {}
    counts: dict[int, int] = {}
    for member in members:
        # One place above the fewest goes to whoever can keep one more partition by it.
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
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Deals the greatest lag first, to whom has the fewest partitions, then the least lag."""
    members = _members(loads, current, limits, options)
    lags = _lags(loads, options)
    order = sorted(loads, key=lambda p: (-lags[p], p))
    return _dealt(order, dict.fromkeys(members, 0), lags, {})


def keda_lag(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions = DEFAULTS,
    /,
) -> Assignment:
    """Takes as many consumers as the lag asks for, and deals as `kafka_sticky` does."""
    if options.lag_threshold <= 0:
        raise ValueError(f"a lag threshold of {options.lag_threshold}: it must be 1 or more")
    asked = -(-sum(_lags(loads, options).values()) // options.lag_threshold)
    replicas = max(1, min(asked, len(loads)))
    return kafka_sticky(loads, current, limits, replace(options, members=replicas))


def _members(
    loads: Mapping[TopicPartition, float],
    current: Assignment,
    limits: GroupLimits,
    options: PackingOptions,
) -> Sequence[int]:
    """The indexes of those who share the partitions, ascending; nobody where there are none."""
    check_loads(loads)
    if options.members is not None and options.members < 1:
        raise ValueError(f"{options.members} members: there must be 1 or more")
    if not loads:
        return ()
    present = current.only(loads).consumers
    number = options.members or len(present) or fewest_consumers(loads.values(), limits)
    taken = frozenset(present)
    free = (index for index in count() if index not in taken)
    # Beyond one new member for each partition nobody gets anything.
    new = min(len(loads), max(0, number - len(present)))
    return sorted([*present[:number], *islice(free, new)])


def _lags(
    loads: Mapping[TopicPartition, float], options: PackingOptions
) -> dict[TopicPartition, int]:
    lags = {partition: options.lags.get(partition, 0) for partition in loads}
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


RIVALS: tuple[PackingPlanner, ...] = (
    PackingPlanner(
        name="kafka-range", rule=kafka_range, kind=PlannerKind.DEALS, reads=frozenset({"members"})
    ),
    PackingPlanner(
        name="kafka-round-robin",
        rule=kafka_round_robin,
        kind=PlannerKind.DEALS,
        reads=frozenset({"members"}),
    ),
    PackingPlanner(
        name="kafka-sticky",
        rule=kafka_sticky,
        kind=PlannerKind.DEALS,
        reads=frozenset({"members", "sticky_keeps"}),
    ),
    PackingPlanner(
        name="lag-based",
        rule=lag_based,
        kind=PlannerKind.DEALS,
        reads=frozenset({"members", "lags"}),
    ),
    PackingPlanner(
        name="keda-lag",
        rule=keda_lag,
        kind=PlannerKind.DEALS,
        reads=frozenset({"lags", "lag_threshold", "sticky_keeps"}),
    ),
)
