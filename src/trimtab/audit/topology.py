"""The topology audit: one value that says all there is to say of a snapshot.

Why      Groups, overlaps, uneven leaders, loads and failures are one question to the person who
         asks: is this cluster well laid out, and will it stay so?
Promise  Pure: a snapshot goes in, an equal snapshot gives an equal audit. An empty cluster, one
         without any leader and one with a single broker are audited like any other.
Cost     Linear in the partitions but for sorting, the flow of the least possible peak, and the
         failures, which may be left out.
Paper    Burato, chapters 3 and 6.

>>> from trimtab.testing.placements import placement
>>> found = audit(placement({"T": [[1, 2], [2, 3], [3, 1]]}))
>>> [(fault.dead, fault.newly_uneven) for fault in found.faults]
[((1,), 1), ((2,), 1), ((3,), 1)]
>>> found.details(found.faults[0]).leaders
{TopicPartition(topic='T', partition=0): 2}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from trimtab.audit.carried import (
    WANTED_AFTER,
    WANTED_PEAK,
    Basis,
    Carried,
    PartitionWeights,
    carried,
    weights_of,
)
from trimtab.audit.faults import (
    Details,
    Fault,
    FaultScan,
    Progress,
    led_by_brokers_up,
    ranked,
)
from trimtab.audit.groups import (
    Groups,
    MaxGroup,
    Pair,
    components,
    contested,
    count_pairs,
    heaviest_pairs,
    max_groups,
    overlaps_by_broker,
)
from trimtab.audit.layout import Layout, is_internal, layout_of
from trimtab.audit.leader_moves import (
    LeaderMove,
    leader_moves,
    peak_after,
    preferred_moves,
)
from trimtab.audit.loads import (
    BrokerLoads,
    TopicLoad,
    broker_loads,
    rates_by_place,
    sent_by_groups,
)
from trimtab.audit.scenarios import MOST_SCENARIOS, racks, scenarios
from trimtab.audit.unevenness import (
    Drift,
    Uneven,
    below_min_insync,
    drift,
    group_counts,
    leaders_per_broker,
    out_of_sync,
    stacked_topics,
    uneven_topics,
)
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition

MOST_PAIRS = 20
WANTED_LEADERS = 1.5
SERVER = "HOST:PORT"
"""Stands for the address of a cluster in commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """How an audit is made.

    Attributes:
        internal: Kafka's own topics are audited too.
        pairs: How many overlapping pairs are listed, the heaviest; None is all.
        up_to: Failures of up to so many brokers at once; 0 is none.
        racks: Every rack fails as a whole, too.
        domains: Further sets of brokers that fail as a whole, by name.
        max_scenarios: More failures than these are drawn from.
        seed: Of that draw.
        min_insync: In-sync replicas that a write with acks=all needs, by topic; else 1.
        down: Brokers known to be down: they neither count in means nor take over.
        wanted_peak: Peak over mean of the measured load that is still fine.
        wanted_leaders: Without rates: most leaders of a broker over the best spread, still fine.
        wanted_after: Peak after a failure over the least that it can be, still fine.
        server: The brokers that the commands in advice name.
        quiet: Where no broker carries so much, measured loads are too little to act upon.
    """

    internal: bool = False
    pairs: int | None = MOST_PAIRS
    up_to: int = 1
    racks: bool = False
    domains: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    max_scenarios: int = MOST_SCENARIOS
    seed: int = 0
    min_insync: Mapping[str, int] = field(default_factory=dict)
    down: frozenset[int] = frozenset()
    wanted_peak: float = WANTED_PEAK
    wanted_leaders: float = WANTED_LEADERS
    wanted_after: float = WANTED_AFTER
    server: str = SERVER
    quiet: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """What an audit found.

    Attributes:
        cluster: The cluster's id, where it is known.
        options: How it was made.
        rates: What it was told of rates; None is nothing.
        brokers: Ids, ascending.
        topics: Names, ascending.
        partitions: How many.
        groups: The max groups.
        group_counts: Of each group, how many partitions each of its brokers leads.
        pairs: Pairs of groups that overlap, by group; the heaviest where they are many.
        pairs_total: How many there are.
        overlaps_by_broker: The groups that meet on a broker, where several do.
        contested: Those brokers.
        components: The brokers of each connected part of the overlap graph.
        uneven: Topics whose leaders have different numbers of partitions.
        stacked: Topics with several partitions on a broker although another one leads none.
        offline_topics: Topics without any leader.
        offline_partitions: Partitions without a leader.
        leaders_per_broker: How many partitions each broker leads.
        idle: Brokers that lead none.
        drift: Partitions that are not led by their first replica.
        under_replicated: Partitions with a replica out of sync.
        silent: Brokers that hold replicas, none of them in sync.
        below_min_insync: Partitions with a leader that acks=all cannot be written to.
        carried: What brokers carry, as far as is known; verdicts rest on this.
        leader_moves: Leaders to move to replicas in sync, where that would help.
        led_by_down: Partitions listed as led by a broker that is down: as if another were elected.
        loads: What brokers would take under each policy; advice.
        faults: What failures would do, the worst first.
        scenarios_of: How many failures there are; more than in `faults`: they were drawn from.
    """

    cluster: str | None
    options: AuditOptions
    rates: TopicLoad | None
    brokers: tuple[BrokerId, ...]
    topics: tuple[str, ...]
    partitions: int
    groups: tuple[MaxGroup, ...]
    group_counts: tuple[tuple[int, ...], ...]
    pairs: tuple[Pair, ...]
    pairs_total: int
    overlaps_by_broker: Mapping[BrokerId, tuple[int, ...]]
    contested: tuple[BrokerId, ...]
    components: tuple[tuple[BrokerId, ...], ...]
    uneven: tuple[Uneven, ...]
    stacked: tuple[str, ...]
    offline_topics: tuple[str, ...]
    offline_partitions: tuple[TopicPartition, ...]
    leaders_per_broker: Mapping[BrokerId, int]
    idle: tuple[BrokerId, ...]
    drift: Drift
    under_replicated: int
    silent: tuple[BrokerId, ...]
    below_min_insync: int
    carried: Carried
    leader_moves: tuple[LeaderMove, ...]
    led_by_down: int
    loads: BrokerLoads
    faults: tuple[Fault, ...]
    scenarios_of: int
    layout: Layout = field(repr=False, compare=False)
    weights: PartitionWeights = field(repr=False, compare=False)
    scan: FaultScan | None = field(repr=False, compare=False)

    @property
    def is_quiet(self) -> bool:
        """Whether rates were measured and no broker carries enough for them to matter."""
        return self.carried.basis is Basis.RATES and self.carried.peak < self.options.quiet

    def details(self, fault: Fault) -> Details:
        """A failure in full."""
        return self._scanned().details(fault.dead)

    def carried_after(self, fault: Fault) -> Carried:
        """What brokers carry after a failure."""
        layout = self._scanned().layout_after(fault.dead)
        return carried(layout, self.weights, down=self.options.down.union(fault.dead))

    def _scanned(self) -> FaultScan:
        if self.scan is None:
            raise ValueError("no failure was looked at in this audit")
        return self.scan


def audit(
    snapshot: ClusterSnapshot,
    rates: TopicLoad | None = None,
    options: AuditOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Audit:
    """Audits a snapshot; `progress` hears of every failure looked at, and of how many there are."""
    how = options or AuditOptions()
    snapshot, led_by_down = led_by_brokers_up(snapshot, how.down)
    layout = layout_of(snapshot, left_out=_nothing if how.internal else is_internal)
    groups = max_groups(layout)
    weights = weights_of(layout, rates)
    load = carried(layout, weights, down=how.down)
    leads = leaders_per_broker(layout)
    behind, silent = out_of_sync(layout)
    down = how.down.intersection(layout.brokers)
    sets = scenarios(
        set(layout.brokers) - down,
        up_to=how.up_to,
        domains={**(racks(snapshot.brokers) if how.racks else {}), **how.domains},
        most=how.max_scenarios,
        seed=how.seed,
    )
    scan = None
    if sets.kept:
        scan = FaultScan(
            layout,
            rates,
            weights=weights,
            min_insync=how.min_insync,
            down=down,
            wanted=how.wanted_after,
        )
    return Audit(
        cluster=snapshot.cluster,
        options=how,
        rates=rates,
        brokers=layout.brokers,
        topics=layout.topics,
        partitions=len(layout.partitions),
        groups=groups.groups,
        group_counts=group_counts(layout, groups),
        pairs=_pairs(layout, groups, rates, how.pairs),
        pairs_total=count_pairs(groups),
        overlaps_by_broker=overlaps_by_broker(groups),
        contested=groups.named(contested(groups.masks)),
        components=tuple(groups.named(part) for part in components(groups.masks)),
        uneven=uneven_topics(layout),
        stacked=stacked_topics(layout, len(layout.brokers) - len(down)),
        offline_topics=tuple(
            layout.topics[topic] for topic in np.flatnonzero(layout.available == 0).tolist()
        ),
        offline_partitions=tuple(
            layout.partitions[at].name for at in np.flatnonzero(layout.leader_of < 0).tolist()
        ),
        leaders_per_broker=leads,
        idle=tuple(broker for broker, led in leads.items() if not led and broker not in down),
        drift=drift(layout),
        under_replicated=behind,
        silent=silent,
        below_min_insync=below_min_insync(layout, how.min_insync),
        carried=load,
        leader_moves=_leader_moves(layout, weights, load, how),
        led_by_down=led_by_down,
        loads=broker_loads(layout, groups, rates, down=how.down),
        faults=ranked(scan, sets.kept, progress=progress) if scan is not None else (),
        scenarios_of=sets.of,
        layout=layout,
        weights=weights,
        scan=scan,
    )


def _leader_moves(
    layout: Layout, weights: PartitionWeights, load: Carried, how: AuditOptions
) -> tuple[LeaderMove, ...]:
    """Moves for brokers that could be more even; back to preferred leaders where that is enough."""
    if load.thin or load.excess <= how.wanted_peak or load.peak_to_mean <= how.wanted_peak:
        return ()
    if load.basis is Basis.RATES and load.peak < how.quiet:
        return ()
    elected = preferred_moves(layout, weights.weight, down=how.down)
    if elected and peak_after(load.by_broker, elected) <= how.wanted_peak * load.bound:
        return elected
    goal = load.bound * (1 + (how.wanted_peak - 1) / 4)
    return leader_moves(layout, weights.weight, goal=goal, down=how.down)


def _nothing(_topic: str) -> bool:
    return False


def _pairs(
    layout: Layout, groups: Groups, rates: TopicLoad | None, limit: int | None
) -> tuple[Pair, ...]:
    rate, _ = rates_by_place(layout, rates)
    most = count_pairs(groups) if limit is None else limit
    if not most:
        return ()
    found = heaviest_pairs(groups, sent_by_groups(layout, groups, rate), limit=most)
    return tuple(sorted(found, key=lambda pair: (pair.first, pair.second)))
