"""Burato, chapters 3, 6 and 7: the worked examples as test vectors.

`{"A": {1: 1, 2: 2}}` says that broker 1 leads one partition of A, broker 2 two. The figures are
lost; where the text does not fix a placement, it is ours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from itertools import combinations
from typing import Any

import pytest

from trimtab.audit.loads import TopicLoad
from trimtab.audit.topology import Audit, AuditOptions, audit
from trimtab.audit.unevenness import Level
from trimtab.model.cluster import TopicPartition
from trimtab.testing.placements import led, placement


def on(*brokers: int) -> dict[int, int]:
    return dict.fromkeys(brokers, 1)


@dataclass(frozen=True)
class Vector:
    """A placement, its groups with their brokers, pairs with the brokers in common, and so on."""

    placed: dict[str, dict[int, int]]
    groups: dict[str, set[int]]
    pairs: dict[tuple[str, str], set[int]] = field(default_factory=dict)
    by_broker: dict[int, set[str]] = field(default_factory=dict)
    uneven: dict[str, Fraction] = field(default_factory=dict)


SUBSETS = {
    "".join(map(str, of)): on(*of) for size in (1, 2, 3) for of in combinations((1, 2, 3), size)
}

VECTORS = {
    "3.3 three groups": Vector(
        {"A": on(1, 2, 3), "B": on(2, 3), "C": on(2, 3), "D": on(1)},
        {"A": {1, 2, 3}, "BC": {2, 3}, "D": {1}},
        {("A", "BC"): {2, 3}, ("A", "D"): {1}},
        {1: {"A", "D"}, 2: {"A", "BC"}, 3: {"A", "BC"}},
    ),
    "3.2 ring": Vector(
        {"X": on(1, 2), "Y": on(2, 3), "Z": on(3, 1)},
        {"X": {1, 2}, "Y": {2, 3}, "Z": {1, 3}},
        {("X", "Y"): {2}, ("X", "Z"): {1}, ("Y", "Z"): {3}},
        {1: {"X", "Z"}, 2: {"X", "Y"}, 3: {"Y", "Z"}},
    ),
    "3.4 X": Vector({"A": on(1, 2), "B": on(1, 2), "C": on(1, 2)}, {"ABC": {1, 2}}),
    "3.4 Y": Vector({"A": on(1, 2), "B": on(3), "C": on(1, 2)}, {"AC": {1, 2}, "B": {3}}),
    "3.5 Z": Vector(
        {"A": on(1, 2), "B": on(2), "C": on(1, 2)},
        {"AC": {1, 2}, "B": {2}},
        {("AC", "B"): {2}},
        {2: {"AC", "B"}},
    ),
    "3.6 X": Vector({"A": on(1), "B": on(2), "C": on(3)}, {"A": {1}, "B": {2}, "C": {3}}),
    "3.6 Y": Vector({"A": on(1, 2, 3), "B": on(1, 2, 3)}, {"AB": {1, 2, 3}}),
    "3.8": Vector(
        {"A": on(1, 2, 3), "B": {1: 1, 2: 1, 3: 2}},
        {"AB": {1, 2, 3}},
        uneven={"B": Fraction(3, 2)},
    ),
    "6.4 prototype": Vector(
        {"A": {1: 1, 2: 2}, "B": on(2, 3)},
        {"A": {1, 2}, "B": {2, 3}},
        {("A", "B"): {2}},
        {2: {"A", "B"}},
        {"A": Fraction(4, 3)},
    ),
    "6.5 complete overlap": Vector({"A": on(1, 2, 3), "B": on(1, 2, 3)}, {"AB": {1, 2, 3}}),
    "6.6 no overlap": Vector(
        {"A": {1: 1, 2: 2}, "B": on(3, 4)},
        {"A": {1, 2}, "B": {3, 4}},
        uneven={"A": Fraction(4, 3)},
    ),
    "7.3 benchmark": Vector(
        {"P": on(1, 2), "Q": on(1, 2), "U": {1: 1, 2: 2}, "V": {1: 1, 2: 2}},
        {"PQUV": {1, 2}},
        uneven={"U": Fraction(4, 3), "V": Fraction(4, 3)},
    ),
    "1.5.2 layouts": Vector(
        {"A": on(1, 2), "B": on(1, 2), "C": {1: 2}, "X": on(2)},
        {"AB": {1, 2}, "C": {1}, "X": {2}},
        {("AB", "C"): {1}, ("AB", "X"): {2}},
        {1: {"AB", "C"}, 2: {"AB", "X"}},
    ),
}


def called(found: Audit, group: int) -> str:
    return "".join(found.groups[group].topics)


@pytest.mark.parametrize("vector", VECTORS.values(), ids=VECTORS)
def test_groups_overlaps_and_uneven_topics_are_those_of_the_thesis(vector: Vector) -> None:
    found = audit(led(vector.placed))

    assert {"".join(g.topics): set(g.brokers) for g in found.groups} == vector.groups
    assert [g.topics[0] for g in found.groups] == sorted(g.topics[0] for g in found.groups)
    assert {
        (called(found, p.first), called(found, p.second)): set(p.brokers) for p in found.pairs
    } == vector.pairs
    assert found.pairs_total == len(vector.pairs)
    assert {
        broker: {called(found, g) for g in groups}
        for broker, groups in found.overlaps_by_broker.items()
    } == vector.by_broker
    assert set(found.contested) == set(vector.by_broker)
    assert {u.topic: u.peak_to_mean for u in found.uneven} == vector.uneven


def test_figure_3_7_has_the_most_groups_that_three_brokers_can_carry() -> None:
    found = audit(led(SUBSETS))

    assert len(found.groups) == 7
    assert (found.pairs_total, len(found.pairs)) == (15, 15)
    assert {broker: len(groups) for broker, groups in found.overlaps_by_broker.items()} == {
        1: 4,
        2: 4,
        3: 4,
    }
    assert found.components == ((1, 2, 3),)


def test_figure_3_8_is_a_note_that_names_the_third_broker() -> None:
    (uneven,) = audit(led(VECTORS["3.8"].placed)).uneven

    assert (uneven.topic, uneven.spread, uneven.best_possible_spread) == ("B", 1, 1)
    assert (uneven.level, uneven.fullest) == (Level.NOTE, (3,))


def test_separate_groups_are_separate_components_and_overlapping_ones_are_not() -> None:
    assert audit(led(VECTORS["6.6 no overlap"].placed)).components == ((1, 2), (3, 4))
    assert audit(led(VECTORS["6.4 prototype"].placed)).components == ((1, 2, 3),)


# ---------------------------------------------------------------- loads


def loads_of(name: str, **rates: float) -> Any:
    return audit(led(VECTORS[name].placed), TopicLoad(by_topic=rates)).loads


def test_the_ring_with_one_topic_twice_as_fast() -> None:
    found = loads_of("3.2 ring", X=1.0, Y=1.0, Z=2.0)

    assert found.default.by_broker == {1: 1.5, 2: 1.0, 3: 1.5}
    assert found.node.by_broker == found.default.by_broker
    assert found.least.peak == pytest.approx(4 / 3, abs=1e-15)


def test_the_prototype_with_equal_rates_could_be_even() -> None:
    found = loads_of("6.4 prototype", A=6.0, B=6.0)

    assert found.node.by_broker == {1: 3.0, 2: 6.0, 3: 3.0}
    assert found.default.by_broker == {1: 2.0, 2: 7.0, 3: 3.0}
    assert (found.default.peak, found.default.broker) == (7.0, 2)
    assert (found.least.peak, found.least.peak_to_mean) == (4.0, 1.0)


def test_the_prototype_with_one_fast_topic_cannot_be_even() -> None:
    found = loads_of("6.4 prototype", A=6.0, B=2.0)

    assert (found.least.peak, found.mean) == (3.0, 8 / 3)
    assert (found.least.topics, found.least.brokers) == (("A",), (1, 2))


@pytest.mark.parametrize(
    ("alpha", "even"), [(1.0, False), (1.5, True), (3.0, True), (6.0, True), (6.5, False)]
)
def test_the_prototype_is_evened_out_only_while_neither_topic_is_twice_as_fast(
    alpha: float, even: bool
) -> None:
    found = loads_of("6.4 prototype", A=alpha, B=3.0)

    assert (found.least.peak_to_mean == pytest.approx(1.0)) is even


def test_separate_groups_of_equal_rates() -> None:
    found = loads_of("6.6 no overlap", A=6.0, B=6.0)

    assert found.default.by_broker == {1: 2.0, 2: 4.0, 3: 3.0, 4: 3.0}
    assert found.node.by_broker == {1: 3.0, 2: 3.0, 3: 3.0, 4: 3.0}


# ---------------------------------------------------------------- faults

TWO_TWO = {"T": [[1, 2], [2, 3], [3, 1]]}
CROSSING = {"A": [[1, 3], [2, 4]], "B": [[3, 1], [4, 2]]}
INSIDE = {"A": [[1, 2], [2, 1]], "B": [[3, 4], [4, 3]]}
BENCHMARK = {
    "B1": [[1], [2]],
    "B2": [[1, 2], [2, 1]],
    "U1": [[1], [2], [2]],
    "U2": [[1, 2], [2, 1], [2, 1]],
}


def after(found: Audit, *dead: int) -> dict[str, list[int]]:
    """Every partition's leader after these brokers died, by topic."""
    fault = next(f for f in found.faults if f.dead == dead)
    leaders = found.details(fault).leaders
    now: dict[str, list[int]] = {}
    for p in found.layout.partitions:
        now.setdefault(p.topic, []).append(leaders.get(p.name, p.leader))
    return now


def both(replicas: dict[str, list[list[int]]], **options: Any) -> Audit:
    return audit(placement(replicas, **options), options=AuditOptions(up_to=2))


@pytest.mark.parametrize(
    ("dead", "leaders"), [((3,), [1, 2, 1]), ((1,), [2, 2, 3]), ((2,), [1, 3, 3])]
)
def test_2_2_one_failure_makes_one_survivor_lead_two_partitions(
    dead: tuple[int], leaders: list[int]
) -> None:
    found = both(TWO_TWO)
    fault = next(f for f in found.faults if f.dead == dead)

    assert after(found, *dead) == {"T": leaders}
    assert found.details(fault).newly_uneven == ("T",)
    (uneven,) = audit(led({"T": {b: leaders.count(b) for b in set(leaders)}})).uneven
    assert uneven.peak_to_mean == Fraction(4, 3)


def test_2_2_two_failures_take_a_partition_offline() -> None:
    found = both(TWO_TWO)
    worst = found.faults[0]

    assert after(found, 1, 2) == {"T": [-1, 3, 3]}
    assert worst.offline_partitions == 1
    assert (worst.dead, found.faults[1].dead, found.faults[2].dead) == ((1, 2), (1, 3), (2, 3))
    assert (worst.offline_topics, worst.contested, worst.new_pairs) == (0, (), 0)


def test_7_4_a_failure_makes_the_uneven_topic_of_the_benchmark() -> None:
    found = both({"U2": [[1, 2], [2, 1], [3, 2]]})

    assert after(found, 3) == {"U2": [1, 2, 2]}


def test_7_3_unreplicated_topics_go_offline_and_the_others_move() -> None:
    found = both(BENCHMARK)
    fault = next(f for f in found.faults if f.dead == (1,))
    details = found.details(fault)

    assert after(found, 1) == {
        "B1": [-1, 2],
        "B2": [2, 2],
        "U1": [-1, 2, 2],
        "U2": [2, 2, 2],
    }
    assert details.offline_partitions == (TopicPartition("B1", 0), TopicPartition("U1", 0))
    assert (fault.contested, fault.new_pairs) == ((), 0)


def test_crossing_replicas_make_groups_overlap() -> None:
    found = both(CROSSING)
    one = next(f for f in found.faults if f.dead == (1,))
    two = next(f for f in found.faults if f.dead == (1, 2))

    assert found.pairs_total == 0
    assert after(found, 1) == {"A": [3, 2], "B": [3, 4]}
    assert (one.new_pairs, one.vanished_pairs, one.contested) == (1, 0, (3,))
    assert after(found, 1, 2) == {"A": [3, 4], "B": [3, 4]}
    assert (two.new_pairs, two.contested, two.offline_partitions) == (0, (), 0)


def test_replicas_inside_a_group_never_make_it_overlap() -> None:
    found = both(INSIDE)

    assert [f.dead for f in found.faults if f.new_pairs or f.contested] == []
    lost = next(f for f in found.faults if f.dead == (1, 2))
    assert found.details(lost).offline_topics == ("A",)


@pytest.mark.parametrize(("dead", "leader"), [((1,), 3), ((1, 3), -1)])
def test_a_replica_out_of_sync_is_skipped(dead: tuple[int, ...], leader: int) -> None:
    found = both({"A": [[1, 2, 3]]}, out_of_sync=[2])

    assert after(found, *dead) == {"A": [leader]}


@pytest.mark.parametrize(("dead", "leaders"), [((1,), [2, 2]), ((2,), [1, 3]), ((3,), [2, 2])])
def test_a_leader_that_is_not_the_preferred_one_stays_while_it_lives(
    dead: tuple[int], leaders: list[int]
) -> None:
    found = both({"A": [[1, 2, 3], [2, 3, 1]]}, leaders={"A": [2, 2]})

    assert after(found, *dead) == {"A": leaders}
    assert (found.drift.away, found.drift.of) == (1, 2)


# ---------------------------------------------------------------- edges


def test_a_topic_without_any_leader_is_offline_and_in_no_group() -> None:
    found = audit(placement({"A": [[1]], "B": [[], []]}, brokers=[2]))

    assert (found.offline_topics, [g.topics for g in found.groups]) == (("B",), [("A",)])
    assert found.offline_partitions == (TopicPartition("B", 0), TopicPartition("B", 1))
    assert found.idle == (2,)


def test_broker_ids_are_any_numbers() -> None:
    found = audit(led({"A": {7: 1, 42: 2}, "B": {42: 1, 1001: 1}}))

    assert [g.brokers for g in found.groups] == [(7, 42), (42, 1001)]
    assert found.overlaps_by_broker == {42: (0, 1)}
    assert found.leaders_per_broker == {7: 1, 42: 3, 1001: 1}


def test_an_empty_cluster_has_empty_results() -> None:
    found = audit(placement({}))

    assert (found.groups, found.pairs, found.faults, found.uneven) == ((), (), (), ())
    assert (found.leaders_per_broker, found.loads.mean, found.components) == ({}, 0.0, ())


def test_a_single_broker_is_one_group_and_one_failure() -> None:
    found = audit(placement({"A": [[5], [5]], "B": [[5]]}))

    assert [(g.topics, g.brokers) for g in found.groups] == [(("A", "B"), (5,))]
    (fault,) = found.faults
    assert (fault.offline_partitions, fault.offline_topics) == (3, 2)
    assert found.loads.default.peak_to_mean == 1.0
