"""Failures beyond the paper's examples: eligible leaders, brokers that are down, ranking."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trimtab.audit.faults import FaultScan, after
from trimtab.audit.layout import layout_of
from trimtab.audit.scenarios import Scenario
from trimtab.audit.topology import AuditOptions, audit
from trimtab.model.cluster import BrokerId, ClusterSnapshot, TopicPartition
from trimtab.testing.placements import placement, random_placement

A0 = TopicPartition("A", 0)


def with_eligible(snapshot: ClusterSnapshot, *brokers: int) -> ClusterSnapshot:
    ids = tuple(map(BrokerId, brokers))
    return replace(snapshot, partitions=tuple(replace(p, elr=ids) for p in snapshot.partitions))


def test_failures_that_block_writes_rank_above_those_that_only_add_load() -> None:
    # A needs both of its replicas, on 1 and 2; when 3 dies, 4 has twice the load of the others.
    snapshot = placement({"A": [[1, 2], [2, 1]], "B": [[3, 4], [4, 3]], "C": [[3, 4], [4, 3]]})

    found = audit(snapshot, options=AuditOptions(min_insync={"A": 2})).faults

    assert [(fault.dead, fault.below_min_insync) for fault in found] == [
        ((1,), 2),
        ((2,), 2),
        ((3,), 0),
        ((4,), 0),
    ]
    assert found[-1].peak_to_mean > found[0].peak_to_mean


def test_one_offline_partition_ranks_below_many_that_refuse_writes() -> None:
    snapshot = placement({"A": [[1, 2], [2, 1], [1, 2]], "B": [[3]]})

    found = audit(snapshot, options=AuditOptions(min_insync={"A": 2})).faults

    assert [fault.unwritable for fault in found] == [3, 3, 1]
    assert found[-1].dead == (3,)


def test_with_nobody_in_sync_the_first_eligible_replica_leads() -> None:
    behind = placement({"A": [[1, 2, 3]]}, out_of_sync=[2, 3])
    scan = FaultScan(layout_of(with_eligible(behind, 3, 2)))

    assert FaultScan(layout_of(behind)).details([1]).leaders == {A0: -1}
    assert scan.details([1]).leaders == {A0: 2}  # in the order of replicas
    assert scan.details([1, 2]).leaders == {A0: 3}
    assert scan.details([1, 2, 3]).leaders == {A0: -1}
    assert after(with_eligible(behind, 3), [1]).partitions[0].leader == 3


def test_an_eligible_replica_waits_while_another_one_is_in_sync() -> None:
    seen = with_eligible(placement({"A": [[1, 2, 3]]}, out_of_sync=[2]), 2)

    assert FaultScan(layout_of(seen)).details([1]).leaders == {A0: 3}


def test_a_broker_that_is_down_takes_nothing_over_and_does_not_fail_again() -> None:
    seen = with_eligible(placement({"A": [[1, 2, 3]]}, out_of_sync=[2, 3]), 2, 3)

    found = audit(seen, options=AuditOptions(down=frozenset({2})))

    assert [fault.dead for fault in found.faults] == [(1,), (3,)]
    assert found.details(found.faults[0]).leaders == {A0: 3}
    assert found.idle == (3,)


def test_a_partition_that_is_offline_already_is_not_counted_again() -> None:
    found = audit(placement({"A": [[1], []]}))

    (fault,) = found.faults
    assert (fault.offline_partitions, fault.offline_topics) == (1, 1)
    assert found.details(fault).offline_partitions == (A0,)


def test_failures_are_ranked_by_what_goes_offline_then_by_the_peak() -> None:
    # Losing 3 takes C offline; losing 1 makes 2 carry all of A; losing 2 makes 1 carry most.
    found = audit(placement({"A": [[1, 2], [1, 2], [2, 1]], "C": [[3]]}))

    assert [f.dead for f in found.faults] == [(3,), (1,), (2,)]
    ranks = [f.rank for f in found.faults]
    assert ranks == sorted(ranks)


def test_the_least_possible_peak_is_told_of_the_worst_failures_only() -> None:
    found = audit(random_placement(topics=20, brokers=15, partitions=4))

    told = [fault.least_to_mean is not None for fault in found.faults]
    assert told == [True] * 10 + [False] * 5


def test_writes_that_a_failure_blocks_are_counted_once() -> None:
    seen = placement({"A": [[1, 2], [2, 1], [1]]})

    fault = FaultScan(layout_of(seen), min_insync={"A": 2}).fault(Scenario((BrokerId(1),)))

    # fall to one in sync; A-2 goes offline, and had too few before.
    assert (fault.below_min_insync, fault.offline_partitions) == (2, 1)


def test_everything_may_die_at_once() -> None:
    seen = placement({"A": [[1, 2], [2, 1]]})

    fault = FaultScan(layout_of(seen)).fault(Scenario((BrokerId(1), BrokerId(2))))

    assert (fault.offline_partitions, fault.moved) == (2, 0)
    assert (fault.default_to_mean, fault.contested) == (1.0, ())


def test_a_dead_broker_never_has_the_peak() -> None:
    fault = next(f for f in audit(placement({"A": [[1]]}, brokers=[2])).faults if f.dead == (1,))

    assert (fault.peak_broker, fault.peak_to_mean) == (None, 1.0)


def test_progress_is_told_of_every_failure() -> None:
    heard: list[tuple[int, int]] = []

    audit(placement({"A": [[1, 2]]}), progress=lambda done, of: heard.append((done, of)))

    assert heard == [(1, 2), (2, 2)]


def test_details_without_a_scan_are_refused() -> None:
    one = audit(placement({"A": [[1]]}))
    none = audit(placement({"A": [[1]]}), options=AuditOptions(up_to=0))

    assert (none.faults, none.scenarios_of) == ((), 0)
    with pytest.raises(ValueError, match="simulated no failures"):
        none.details(one.faults[0])
