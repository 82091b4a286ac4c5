"""The load of each broker, from measured rates, else log sizes, else leader counts.

Why      The audit needs one load per broker. Measured rates per partition already include the
         producers' choice of partitions. Without rates a partition counts its log size if all
         sizes are known, else 1.
Promise  Rates that are all 0 are ignored. A partition of unknown rate counts 0 and is marked. The
         bound holds for every placement of leaders on these brokers: the peak is at least the
         mean, and with k · brokers + 1 partitions some broker has at least k + 1 of them. With
         equal partitions the bound is reached.
Cost     O(partitions · log partitions), in arrays.

>>> from trimtab.audit.layout import layout_of
>>> from trimtab.testing.placements import led
>>> seen = layout_of(led({"A": {1: 2, 2: 1, 3: 1}}))
>>> found = carried(seen, weights_of(seen))
>>> found.by_broker, found.peak_to_mean, found.bound_to_mean, found.excess
({1: 2.0, 2: 1.0, 3: 1.0}, 1.5, 1.5, 1.0)
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from operator import attrgetter
from typing import cast

import numpy as np
from numpy.typing import NDArray

from trimtab.audit.layout import Floats, Ints, Layout, Leadership, summed
from trimtab.audit.loads import TopicLoad, rates_by_place, ratio
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.model.load import Unit

WANTED_PEAK = 1.25
"""Highest acceptable ratio of peak to mean broker load."""

WANTED_AFTER = 1.5
"""Highest acceptable ratio of the peak after a failure to the lowest possible peak."""

LARGE_GAP = 0.1
"""If a larger share of partitions or load has no rate, the rates do not show broker loads."""

ROUNDING = 1e-9
"""Relative rounding error allowed between sums taken in different orders."""


class Basis(StrEnum):
    """The data that partition loads are taken from."""

    RATES = "rates"
    BYTES = "bytes"
    LEADERS = "leaders"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PartitionWeights:
    """The load of each partition, in the order of the layout; 0 where it is not `known`.

    `left_out` is the load of partitions whose rate was not measured well enough to count.
    """

    basis: Basis
    unit: Unit | None
    weight: Floats
    known: NDArray[np.bool_]
    left_out: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedLoads:
    """The load of each broker.

    Attributes:
        basis: The data that loads are taken from.
        unit: The unit of the rates.
        by_broker: The load of each broker.
        mean: The total load divided by the number of brokers that are up.
        peak: The highest load of a broker.
        broker: The broker with the highest load.
        bound: No placement of leaders on these brokers has a lower peak.
        hottest: The partition with the highest load; None if there is no load.
        hottest_load: The load of that partition.
        unmeasured: Partitions with a leader whose rate is unknown.
        online: Partitions with a leader.
        left_out: Load of partitions whose rate was not measured well enough to count.
    """

    basis: Basis
    unit: Unit | None
    by_broker: Mapping[BrokerId, float]
    mean: float
    peak: float
    broker: BrokerId | None
    bound: float
    hottest: TopicPartition | None
    hottest_load: float
    unmeasured: int
    online: int
    left_out: float = 0.0

    @property
    def peak_to_mean(self) -> float:
        """The peak over the mean."""
        return ratio(self.peak, self.mean)

    @property
    def bound_to_mean(self) -> float:
        """The bound over the mean."""
        return ratio(self.bound, self.mean)

    @property
    def hottest_to_mean(self) -> float:
        """The load of the hottest partition over the mean load of a broker."""
        return self.hottest_load / self.mean if self.mean > 0 else 0.0

    @property
    def thin(self) -> bool:
        """Whether too many rates, or too much of the load, are unknown to judge broker loads."""
        return self.unmeasured > LARGE_GAP * self.online or self.left_out_share > LARGE_GAP

    @property
    def left_out_share(self) -> float:
        """The share of all observed load that is left out."""
        seen = sum(self.by_broker.values()) + self.left_out
        return self.left_out / seen if seen > 0 else 0.0

    @property
    def hottest_to_others(self) -> float:
        """The load of the hottest partition over the mean of all partitions of known load."""
        known = self.online - self.unmeasured
        total = sum(self.by_broker.values())
        return self.hottest_load * known / total if total > 0 else 0.0

    @property
    def excess(self) -> float:
        """The peak over the bound: how much a better placement of leaders could reduce it."""
        return ratio(self.peak, self.bound)


def weights_of(layout: Layout, rates: TopicLoad | None = None) -> PartitionWeights:
    """The load of each partition: its rate, else its size, else 1."""
    online = layout.leader_of >= 0
    size = len(layout.partitions)
    if rates is not None:
        weight, known = _rates(layout, rates)
        if weight[online].sum() > 0:
            names = (layout.partitions[at].name for at in np.flatnonzero(online).tolist())
            return PartitionWeights(
                basis=Basis.RATES,
                unit=rates.unit,
                weight=weight,
                known=known,
                left_out=fsum(rates.left_out.get(name, 0.0) for name in names)
                if rates.left_out
                else 0.0,
            )
    everything = np.ones(size, dtype=bool)
    sizes = list(map(attrgetter("log_bytes"), layout.partitions))
    stored = np.fromiter((np.nan if s is None else s for s in sizes), np.float64, size)
    if stored[online].sum() > 0:  # False if any size is unknown
        weight = np.where(online, stored, 0.0)
        return PartitionWeights(basis=Basis.BYTES, unit=None, weight=weight, known=everything)
    return equal_weights(layout)


def equal_weights(layout: Layout) -> PartitionWeights:
    """Every partition counts 1."""
    size = len(layout.partitions)
    return PartitionWeights(
        basis=Basis.LEADERS, unit=None, weight=np.ones(size), known=np.ones(size, dtype=bool)
    )


def _rates(layout: Layout, rates: TopicLoad) -> tuple[Floats, NDArray[np.bool_]]:
    if not rates.by_partition:  # only the topic's rate is known: split it evenly
        rate, unknown = rates_by_place(layout, rates)
        absent = frozenset(unknown)
        measured = np.fromiter((t not in absent for t in layout.topics), bool, len(layout.topics))
        return (rate / np.maximum(layout.available, 1))[layout.topic_of], measured[layout.topic_of]
    # a plain tuple compares equal to a TopicPartition
    names = map(attrgetter("topic", "partition"), layout.partitions)
    given = cast(Mapping[tuple[str, int], float], rates.by_partition)
    found = list(map(given.get, names))
    weight = np.fromiter((0.0 if r is None else r for r in found), np.float64, len(found))
    return weight, np.fromiter((r is not None for r in found), bool, len(found))


def carried(
    layout: Layout, weights: PartitionWeights, *, down: Collection[int] = ()
) -> CarriedLoads:
    """Computes broker loads; brokers that are down do not count in the mean."""
    size = len(layout.brokers)
    up = size - len(set(layout.brokers).intersection(down))
    online = np.flatnonzero(layout.leader_of >= 0)
    weight = weights.weight[online]
    load = summed(layout.leader_of[online], weight, size)
    total = float(weight.sum())
    at = int(np.argmax(load)) if size else -1
    hot = int(np.argmax(weight)) if weight.size and weight.max() > 0 else -1
    return CarriedLoads(
        basis=weights.basis,
        unit=weights.unit,
        by_broker=dict(zip(layout.brokers, load.tolist(), strict=True)),
        mean=total / up if up else 0.0,
        peak=float(load[at]) if size else 0.0,
        broker=layout.brokers[at] if size else None,
        bound=placement_bound(np.sort(weight)[::-1], up, total),
        hottest=layout.partitions[int(online[hot])].name if hot >= 0 else None,
        hottest_load=float(weight[hot]) if hot >= 0 else 0.0,
        unmeasured=int((~weights.known[online]).sum()),
        online=int(online.size),
        left_out=weights.left_out,
    )


def placement_bound(falling: Floats, brokers: int, total: float) -> float:
    """A lower bound of the peak for any placement of leaders; loads are given heaviest first.

    >>> placement_bound(np.array([1.0, 1.0, 1.0, 1.0]), 3, 4.0)
    2.0
    >>> placement_bound(np.array([9.0, 0.5, 0.5]), 3, 10.0)
    9.0
    """
    if not brokers or not falling.size:
        return 0.0
    sharing = falling[::brokers]
    return max(total / brokers, float((sharing * np.arange(1, sharing.size + 1)).max()))


def topic_excess(
    layout_of_topics: tuple[Ints, Ints, Ints],
    led: Leadership,
    weight: Floats,
    brokers: int,
) -> Floats:
    """For each topic, the load of its fullest leader over the lowest value that this can have.

    The layout is given as the topic of each partition, its leader, and how many partitions of each
    topic have one; `weight` is the load of each of these partitions. The lowest value is the
    largest of: the mean over the brokers that lead the topic, its heaviest partition, and the mean
    number of partitions rounded up. 1 for a topic without load.
    """
    topic_of, leader_of, available = layout_of_topics
    found = np.ones(available.size)
    online = np.flatnonzero(leader_of >= 0)
    if not online.size:
        return found
    pair = topic_of[online] * brokers + leader_of[online]
    order = np.argsort(pair, kind="stable")
    first = np.flatnonzero(np.diff(pair[order], prepend=-1))
    of_row = np.add.reduceat(weight[online][order], first)  # rows as in `led`
    there = np.flatnonzero(np.diff(led.start))
    at = led.start[there]
    peak, total = np.maximum.reduceat(of_row, at), np.add.reduceat(of_row, at)
    begin = np.searchsorted(topic_of[online], there)  # topics are ascending
    heaviest = np.maximum.reduceat(weight[online], begin)
    lightest = np.minimum.reduceat(weight[online], begin)
    leaders = np.diff(led.start)[there]
    most = np.ceil(available[there] / leaders)
    bound = np.maximum.reduce((total / leaders, heaviest, most * lightest))
    loaded = bound > 0
    found[there[loaded]] = peak[loaded] / bound[loaded]
    return found
