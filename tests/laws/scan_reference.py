"""The packing planners once more, slow and plain: every choice looks at every consumer."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trimtab.model.assignment import Assignment
from trimtab.model.cluster import TopicPartition
from trimtab.model.load import GroupLimits


@dataclass
class Scan:
    """Open consumers as lists of partitions, and all primitives as scans over them."""

    loads: Mapping[TopicPartition, float]
    previous: Assignment
    limits: GroupLimits
    rule: str
    open: dict[int, list[TopicPartition]] = field(default_factory=dict)

    def load(self, consumer):
        return sum(self.loads[p] for p in self.open[consumer])

    def room(self, consumer):
        return self.limits.of(consumer) - self.load(consumer)

    def can_open(self, consumer, size):
        large_enough = size <= self.limits.of(consumer)
        nobody_is = size > max([self.limits.capacity, *self.limits.capacities.values()])
        return consumer not in self.open and (large_enough or nobody_is)

    def choose(self, size):
        fitting = [c for c in self.open if self.load(c) + size <= self.limits.of(c)]
        sign = {"best": 1, "worst": -1}[self.rule]
        return min(fitting, key=lambda c: (sign * self.room(c), c), default=None)

    def name_for(self, partition):
        home = self.previous.get(partition)
        upto = range(len(self.open) + len(self.limits.capacities) + max([0, *self.open]) + 2)
        candidates = [*([home] if home is not None else []), *upto, *sorted(self.limits.capacities)]
        large_enough = [c for c in candidates if self.can_open(c, self.loads[partition])]
        return (large_enough or [c for c in candidates if c not in self.open])[0]

    def add(self, partition, consumer):
        self.open.setdefault(consumer, []).append(partition)

    def place(self, partition):
        chosen = self.choose(self.loads[partition])
        self.add(partition, self.name_for(partition) if chosen is None else chosen)

    def bigger_first(self, partitions):
        return sorted(partitions, key=lambda p: (-self.loads[p], p))

    def result(self):
        return Assignment({p: c for c, partitions in self.open.items() for p in partitions})


def any_fit_decreasing(rule: str) -> Callable[..., Assignment]:
    def planned(loads, current, limits):
        scan = Scan(loads, current, limits, rule)
        for partition in scan.bigger_first(loads):
            scan.place(partition)
        return scan.result()

    return planned


def modified_any_fit(rule: str) -> Callable[..., Assignment]:
    def planned(loads, current, limits):
        scan = Scan(loads, current, limits, rule)
        homeless = [p for p in loads if p not in current]
        groups: dict[int, list[TopicPartition]] = {}
        for p in loads:
            if p in current:
                groups.setdefault(current[p], []).append(p)
        for c in sorted(groups, key=lambda c: (-sum(loads[p] for p in groups[c]), c)):
            rest = scan.bigger_first(groups[c])
            while rest and (b := scan.choose(loads[rest[-1]])) is not None:
                scan.add(rest.pop(), b)
            while rest and not scan.can_open(c, loads[rest[0]]):
                homeless.append(rest.pop(0))
            if rest:
                scan.add(rest.pop(0), c)
            while rest and scan.load(c) + loads[rest[0]] <= limits.of(c):
                scan.add(rest.pop(0), c)
            homeless += rest
        for p in scan.bigger_first(homeless):
            scan.place(p)
        return scan.result()

    return planned


SCANS: Mapping[str, Callable[..., Assignment]] = {
    "bfd": any_fit_decreasing("best"),
    "mwf": modified_any_fit("worst"),
}
