"""Reference versions of the packing planners, slow and simple: each choice scans all consumers.

Why      Optimised code is easy to get wrong. These functions follow the papers literally: the law
         tests compare every plan with theirs, and the speed benchmark uses them as its rival.
Promise  The same assignment as the planner of the same name for every input whose sums are exact.
Cost     O(partitions · consumers): about 10 s for 10 000 partitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from types import MappingProxyType
from typing import Any

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits
from trimtab.plan.consumers.any_fit import NextFitOptions
from trimtab.plan.consumers.baselines import KedaOptions, StickyOptions
from trimtab.plan.consumers.bounds import fewest_consumers
from trimtab.plan.consumers.planner import (
    NO_CONTEXT,
    NO_OPTIONS,
    PackingContext,
    PackingRule,
    PlannerOptions,
)

Sizes = Mapping[TopicPartition, float]
_FIT, _STICKY, _KEDA = NextFitOptions(), StickyOptions(), KedaOptions()


@dataclass(slots=True)
class Scan:
    """The open consumers and their partitions; every operation scans all of them."""

    loads: Sizes
    previous: Assignment
    limits: GroupLimits
    rule: str
    open: dict[int, list[TopicPartition]] = field(default_factory=dict)  # in order of opening
    load: dict[int, float] = field(default_factory=dict)  # of each consumer that is open

    def emptiness(self, consumer: int) -> float:
        """The value that best fit and worst fit compare."""
        # Free capacity if capacities differ; otherwise the negative load, which is rounded once.
        full = self.limits.of(consumer) if self.limits.capacities else 0
        return full - self.load[consumer]

    def can_open(self, consumer: int, size: float) -> bool:
        """Whether a consumer is not open yet and may take a partition of this size first."""
        large_enough = size <= self.limits.of(consumer)
        too_large_for_all = size > max([self.limits.capacity, *self.limits.capacities.values()])
        return consumer not in self.open and (large_enough or too_large_for_all)

    def choose(self, size: float) -> int | None:
        """The open consumer that the rule chooses; None if none has room."""
        fitting = [c for c in self.open if self.load[c] + size <= self.limits.of(c)]
        if not fitting:
            return None
        if self.rule == "next":
            last = list(self.open)[-1]
            return last if last in fitting else None
        sign = {"first": 0, "best": 1, "worst": -1}[self.rule]
        return min(fitting, key=lambda c: (sign * self.emptiness(c), c))

    def name_for(self, partition: TopicPartition) -> int:
        """The consumer to open for a partition: its current owner, else the lowest index."""
        home = self.previous.get(partition)
        upto = range(len(self.open) + len(self.limits.capacities) + max([0, *self.open]) + 2)
        homes = [] if home is None else [home]
        candidates: list[int] = [*homes, *upto, *sorted(self.limits.capacities)]
        large_enough = [c for c in candidates if self.can_open(c, self.loads[partition])]
        return (large_enough or [c for c in candidates if c not in self.open])[0]

    def add(self, partition: TopicPartition, consumer: int) -> None:
        """Gives a partition to a consumer."""
        self.open.setdefault(consumer, []).append(partition)
        self.load[consumer] = self.load.get(consumer, 0) + self.loads[partition]

    def place(self, partition: TopicPartition) -> None:
        """Gives a partition to the consumer that the rule chooses."""
        chosen = self.choose(self.loads[partition])
        self.add(partition, self.name_for(partition) if chosen is None else chosen)

    def largest_first(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Sorted by load, largest first; ties by name."""
        return sorted(partitions, key=lambda p: (-self.loads[p], p))

    def result(self) -> Assignment:
        """The assignment so far."""
        return Assignment({p: c for c, partitions in self.open.items() for p in partitions})


def any_fit(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: PlannerOptions = _FIT,
    /,
    *,
    rule: str,
    decreasing: bool,
) -> Assignment:
    """The classic any-fit heuristics with sticky names (packing.md §3)."""
    scan = Scan(loads, current, limits, rule)
    order = sorted(loads)
    if decreasing:
        order = scan.largest_first(loads)
    elif getattr(options, "order", None) == "shuffle":
        import numpy as np

        chance = np.random.default_rng([context.seed, context.iteration])
        order = [order[place] for place in chance.permutation(len(order))]
    for partition in order:
        begins = getattr(options, "nf_first_bin", None) == "zero" and not scan.open
        if begins and scan.can_open(0, loads[partition]):
            scan.add(partition, 0)
        else:
            scan.place(partition)
    return scan.result()


def modified_any_fit(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    _context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
    *,
    rule: str,
    by: Callable[[Iterable[float]], float],
) -> Assignment:
    """Algorithm 1 of Landau et al. (packing.md §4)."""
    scan = Scan(loads, current, limits, rule)
    homeless = [p for p in loads if p not in current]
    groups: dict[int, list[TopicPartition]] = {}
    for p in scan.largest_first(loads):
        if p in current:
            groups.setdefault(current[p], []).append(p)
    for c in sorted(groups, key=lambda c: (-by(loads[p] for p in groups[c]), c)):
        rest = groups[c]
        while rest and (b := scan.choose(loads[rest[-1]])) is not None:
            scan.add(rest.pop(), b)
        while rest and not scan.can_open(c, loads[rest[0]]):
            homeless.append(rest.pop(0))
        if rest:
            scan.add(rest.pop(0), c)
        while rest and scan.load[c] + loads[rest[0]] <= limits.of(c):
            scan.add(rest.pop(0), c)
        homeless += rest
    for p in scan.largest_first(homeless):
        scan.place(p)
    return scan.result()


def members_of(
    loads: Sizes, current: Assignment, limits: GroupLimits, context: PackingContext
) -> list[int]:
    """The members that get partitions: the current ones, or the requested number of members.

    Members with high indexes are removed first; free low indexes are added first.
    """
    members = sorted({c for p, c in current.items() if p in loads})
    wanted = context.members or len(members) or fewest_consumers(loads.values(), limits)
    while len(members) > wanted:
        members.remove(max(members))
    while len(members) < wanted:
        members.append(min(set(range(len(members) + 1)) - set(members)))
    return sorted(members)


def kafka_range(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """Each topic is divided into contiguous ranges."""
    members = members_of(loads, current, limits, context)
    owners: dict[TopicPartition, int] = {}
    for topic in {p.topic for p in loads}:
        partitions = sorted(p for p in loads if p.topic == topic)
        n, m = len(partitions), len(members)
        for i, member in enumerate(members):
            start = n // m * i + min(i, n % m)
            length = n // m + (1 if i < n % m else 0)
            owners |= dict.fromkeys(partitions[start : start + length], member)
    return Assignment(owners)


def kafka_round_robin(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """All partitions are given to the members in turn."""
    members = members_of(loads, current, limits, context)
    return Assignment({p: members[n % len(members)] for n, p in enumerate(sorted(loads))})


def kafka_sticky(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: StickyOptions = _STICKY,
    /,
) -> Assignment:
    """Equal numbers of partitions per member; partitions stay with their owner if possible."""
    if not loads:
        return Assignment()
    members = members_of(loads, current, limits, context)
    floor, above = divmod(len(loads), len(members))
    kept: dict[int, list[TopicPartition]] = {}
    for member in members:
        own = sorted(p for p in loads if current.get(p) == member)
        if options.sticky_keeps == "highest":
            own.reverse()
        kept[member] = own[:floor]
        if len(own) > floor and above:
            above -= 1
            kept[member] = own[: floor + 1]
    for partition in sorted(set(loads) - {p for own in kept.values() for p in own}):
        kept[min(members, key=lambda m: (len(kept[m]), m))].append(partition)
    return Assignment({p: member for member, own in kept.items() for p in own})


def lag_based(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    _options: PlannerOptions = NO_OPTIONS,
    /,
) -> Assignment:
    """The largest lag goes to the member with the fewest partitions, ties by least lag."""
    members = members_of(loads, current, limits, context)
    held: dict[int, list[TopicPartition]] = {member: [] for member in members}

    def lag(partitions: Iterable[TopicPartition]) -> int:
        return sum(context.lags.get(p, 0) for p in partitions)

    for partition in sorted(loads, key=lambda p: (-lag([p]), p)):
        least = min(members, key=lambda m: (len(held[m]), lag(held[m]), m))
        held[least].append(partition)
    return Assignment({p: member for member, own in held.items() for p in own})


def keda_lag(
    loads: Sizes,
    current: Assignment,
    limits: GroupLimits,
    context: PackingContext = NO_CONTEXT,
    options: KedaOptions = _KEDA,
    /,
) -> Assignment:
    """Scales the members with the total lag, then assigns as `kafka_sticky` does."""
    total = sum(context.lags.get(p, 0) for p in loads)
    wanted = math.ceil(Fraction(total, options.lag_threshold))
    replicas = min(max(1, len(loads)), max(1, wanted))
    return kafka_sticky(loads, current, limits, replace(context, members=replicas), options)


SCANS: Mapping[str, PackingRule[Any]] = MappingProxyType(
    {
        "nf": partial(any_fit, rule="next", decreasing=False),
        "nfd": partial(any_fit, rule="next", decreasing=True),
        "ff": partial(any_fit, rule="first", decreasing=False),
        "ffd": partial(any_fit, rule="first", decreasing=True),
        "bf": partial(any_fit, rule="best", decreasing=False),
        "bfd": partial(any_fit, rule="best", decreasing=True),
        "wf": partial(any_fit, rule="worst", decreasing=False),
        "wfd": partial(any_fit, rule="worst", decreasing=True),
        "mwf": partial(modified_any_fit, rule="worst", by=sum),
        "mbf": partial(modified_any_fit, rule="best", by=sum),
        "mwfp": partial(modified_any_fit, rule="worst", by=max),
        "mbfp": partial(modified_any_fit, rule="best", by=max),
        "kafka-range": kafka_range,
        "kafka-round-robin": kafka_round_robin,
        "kafka-sticky": kafka_sticky,
        "lag-based": lag_based,
        "keda-lag": keda_lag,
    }
)
"""The reference version of each planner that has one, by its name."""
