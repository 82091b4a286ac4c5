"""A snapshot as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.audit.layout import layout_of, places_among
from trimtab.audit.topology import AuditOptions, audit
from trimtab.model.cluster import BrokerId
from trimtab.testing.placements import placement


def test_kafkas_own_topics_are_left_out_unless_asked_for() -> None:
    seen = placement({"__consumer_offsets": [[1]], "orders": [[1], [2]]})

    assert layout_of(seen).topics == ("orders",)
    assert layout_of(seen, left_out=lambda _: False).topics == ("__consumer_offsets", "orders")
    assert audit(seen, options=AuditOptions(internal=True)).partitions == 3


def test_a_broker_that_only_a_replica_list_names_has_a_place() -> None:
    seen = placement({"A": [[1, 9], [2, 1]]})
    forgotten = replace(seen, brokers=tuple(b for b in seen.brokers if b.id != 9))

    found = audit(forgotten)

    assert found.brokers == (1, 2, 9)
    assert found.idle == (9,)
    assert {fault.dead for fault in found.faults} == {(1,), (2,), (9,)}


def test_a_leader_nobody_has_heard_of_is_no_crash() -> None:
    seen = placement({"A": [[1], [2]]})
    odd = replace(seen, partitions=tuple(replace(p, leader=BrokerId(77)) for p in seen.partitions))

    assert audit(odd).leaders_per_broker == {1: 0, 2: 0, 77: 2}


def test_partitions_may_come_in_any_order_and_with_gaps_in_their_numbers() -> None:
    seen = placement({"B": [[1], [2]], "A": [[2], [1]]})
    mixed = replace(
        seen,
        partitions=tuple(replace(p, partition=p.partition * 7) for p in reversed(seen.partitions)),
    )

    names = [str(p.name) for p in layout_of(mixed).partitions]

    assert names == ["A-0", "A-7", "B-0", "B-7"]


@pytest.mark.parametrize("large", [1001, 2_000_000_000])
def test_places_are_found_for_ids_of_any_size_and_for_no_others(large: int) -> None:
    asked = np.array([7, 8, large, large + 1, -1])

    assert places_among((7, 42, large), asked).tolist() == [0, -1, 2, -1, -1]
    assert places_among((), asked).tolist() == [-1] * 5
