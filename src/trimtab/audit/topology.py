"""The topology audit: groups, overlaps, uneven leaders, loads and failures of a snapshot.

Why      Together they show whether leaders are placed well now and after a failure.
Promise  Pure: equal snapshots give equal audits. An empty cluster, one without any leader and one
         with a single broker are valid input.
Cost     Linear in the partitions, plus sorting, the maximum flow of the least possible peak, and
         the failures, which can be left out.
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
from trimtab.audit.known_loads import (
    WANTED_AFTER,
    WANTED_PEAK,
    Basis,
    CarriedLoads,
    PartitionWeights,
    carried,
    weights_of,
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
    UnevenTopic,
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
"""Placeholder for the bootstrap servers in commands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions:
    """The options of an audit.

    Attributes:
        internal: Audit Kafka's internal topics too.
        pairs: How many overlapping pairs to list, the heaviest first; None lists all.
        up_to: Simulate failures of up to this many brokers at once; 0 simulates none.
        racks: Also simulate the failure of each whole rack.
        domains: Further sets of brokers that fail together, by name.
        max_scenarios: If there are more failures than this, they are sampled.
        seed: The seed of that sample.
        min_insync: min.insync.replicas of each topic; 1 for a topic not named.
        down: Brokers known to be down: they do not count in means and take over nothing.
        wanted_peak: Highest acceptable ratio of peak to mean of the measured load.
        wanted_leaders: Without rates: highest acceptable ratio of the peak to the best spread.
        wanted_after: Highest acceptable ratio of the peak after a failure to the lowest possible.
        server: The bootstrap servers to name in the commands of the advice.
        quiet: If no broker has more load than this, the load is too small to act on.
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
    """The result of an audit.

    Attributes:
        cluster: The cluster's id, if known.
        options: The options of the audit.
        rates: The rates given to the audit; None if there were none.
        brokers: Broker ids, ascending.
        topics: Topic names, ascending.
        partitions: The number of partitions.
        groups: The max groups.
        group_counts: For each group, how many partitions each of its brokers leads.
        pairs: Pairs of groups that overlap, by group; only the heaviest if there are many.
        pairs_total: The number of pairs that overlap.
        overlaps_by_broker: The groups of each broker that leads topics of several groups.
        contested: The brokers that lead topics of several groups.
        components: The brokers of each connected part of the overlap graph.
        uneven: Topics whose leaders have different numbers of partitions.
        stacked: Topics with several partitions on one broker while another broker leads none.
        offline_topics: Topics without any leader.
        offline_partitions: Partitions without a leader.
        leaders_per_broker: How many partitions each broker leads.
        idle: Brokers that lead no partition.
        drift: Partitions that are not led by their preferred (first) replica.
        under_replicated: Partitions with a replica out of sync.
        silent: Brokers that hold replicas, none of them in sync.
        below_min_insync: Partitions with a leader that refuse writes with acks=all.
        carried: Broker loads from the best data available; findings are based on these.
        leader_moves: Leader moves to in-sync replicas that would balance the brokers.
        led_by_down: Partitions listed as led by a broker that is down; audited after re-election.
        loads: Broker loads under each partitioner; used for advice.
        faults: The simulated failures, the worst first.
        scenarios_of: The number of possible failures; if above `len(faults)`, they were sampled.
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
    uneven: tuple[UnevenTopic, ...]
    stacked: tuple[str, ...]
    offline_topics: tuple[str, ...]
    offline_partitions: tuple[TopicPartition, ...]
    leaders_per_broker: Mapping[BrokerId, int]
    idle: tuple[BrokerId, ...]
    drift: Drift
    under_replicated: int
    silent: tuple[BrokerId, ...]
    below_min_insync: int
    carried: CarriedLoads
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
        """Whether rates were measured and every broker's load is too small to act on."""
        return self.carried.basis is Basis.RATES and self.carried.peak < self.options.quiet

    def details(self, fault: Fault) -> Details:
        """The full details of a failure."""
        return self._scanned().details(fault.dead)

    def carried_after(self, fault: Fault) -> CarriedLoads:
        """Broker loads after a failure."""
        layout = self._scanned().layout_after(fault.dead)
        return carried(layout, self.weights, down=self.options.down.union(fault.dead))

    def _scanned(self) -> FaultScan:
        if self.scan is None:
            raise ValueError("this audit simulated no failures")
        return self.scan


def audit(
    snapshot: ClusterSnapshot,
    rates: TopicLoad | None = None,
    options: AuditOptions | None = None,
    *,
    progress: Progress | None = None,
) -> Audit:
    """Audits a snapshot; `progress` is called with (done, total) after each simulated failure."""
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
    scan = _fault_scan(layout, rates, weights, how) if sets.kept else None
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
        offline_topics=_offline_topics(layout),
        offline_partitions=_offline_partitions(layout),
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


def _fault_scan(
    layout: Layout, rates: TopicLoad | None, weights: PartitionWeights, how: AuditOptions
) -> FaultScan:
    return FaultScan(
        layout,
        rates,
        weights=weights,
        min_insync=how.min_insync,
        down=how.down.intersection(layout.brokers),
        wanted=how.wanted_after,
    )


def _offline_topics(layout: Layout) -> tuple[str, ...]:
    return tuple(layout.topics[topic] for topic in np.flatnonzero(layout.available == 0).tolist())


def _offline_partitions(layout: Layout) -> tuple[TopicPartition, ...]:
    without = np.flatnonzero(layout.leader_of < 0).tolist()
    return tuple(layout.partitions[at].name for at in without)


def _leader_moves(
    layout: Layout, weights: PartitionWeights, load: CarriedLoads, how: AuditOptions
) -> tuple[LeaderMove, ...]:
    """Leader moves that balance brokers; a preferred leader election if that is enough."""
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
