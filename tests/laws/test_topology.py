"""The topology audit against the definitions, by brute force on small clusters of any shape."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.audit.document import audit_to
from trimtab.audit.faults import FaultScan, after
from trimtab.audit.findings import findings
from trimtab.audit.groups import (
    components,
    contested,
    count_pairs,
    heaviest_pairs,
    max_groups,
    overlaps_by_broker,
    pairs,
)
from trimtab.audit.known_loads import (
    carried,
    equal_weights,
    placement_bound,
    topic_excess,
    weights_of,
)
from trimtab.audit.layout import layout_of
from trimtab.audit.leader_moves import leader_moves, peak_after
from trimtab.audit.least_peak import least_peak
from trimtab.audit.loads import (
    TopicLoad,
    broker_loads,
    rates_by_place,
    ratio,
    sent_by_groups,
    topic_rates,
)
from trimtab.audit.scenarios import Scenario
from trimtab.audit.topology import AuditOptions, audit
from trimtab.audit.unevenness import Level, uneven_topics
from trimtab.model.cluster import ClusterSnapshot
from trimtab.model.codec import dumps
from trimtab.model.load import Unit
from trimtab.testing.placements import led, placement
from trimtab_lab.reference_scans.topology import dpo, dpo2, get_max_groups, node_lists

IDS = (7, 42, 3, 1001)
thousand = settings(max_examples=1000)
hundred = settings(max_examples=100)


@st.composite
def clusters(draw: Any, *, least_replicas: int = 0) -> ClusterSnapshot:
    """Up to seven topics on up to four brokers; some partitions offline, some replicas behind."""
    brokers = IDS[: draw(st.integers(1, len(IDS)))]
    replicas = st.lists(
        st.sampled_from(brokers), unique=True, min_size=least_replicas, max_size=len(brokers)
    )
    topics = draw(
        st.dictionaries(
            st.sampled_from("ABCDEFG"), st.lists(replicas, min_size=1, max_size=4), max_size=7
        )
    )
    behind = draw(st.lists(st.sampled_from(brokers), unique=True, max_size=1))
    return placement(topics, brokers=brokers, out_of_sync=behind)


def nodes_of(snapshot: ClusterSnapshot) -> dict[str, frozenset[int]]:
    """N(t) of every topic with a leader."""
    return {topic: frozenset(nodes) for topic, nodes in node_lists(snapshot).items()}


def rates_by_partition(snapshot: ClusterSnapshot, seed: int) -> TopicLoad:
    """Rates of most partitions; some topics are known in part, some not at all."""
    rng = random.Random(seed)
    names = [p.name for p in snapshot.partitions if rng.random() < 0.8]
    return topic_rates(snapshot, {n: float(rng.choice((0, 1, 2, 9))) for n in names}, Unit.BYTES_S)


def rates_for(snapshot: ClusterSnapshot, seed: int) -> TopicLoad:
    rng = random.Random(seed)
    return TopicLoad(by_topic={topic: float(rng.randint(0, 9)) for topic in snapshot.topics})


# ---------------------------------------------------------------- groups and overlaps


@thousand
@given(snapshot=clusters())
def test_groups_and_overlaps_are_what_the_definitions_say(snapshot: ClusterSnapshot) -> None:
    nodes = nodes_of(snapshot)
    found = max_groups(layout_of(snapshot))
    groups = [frozenset(group.topics) for group in found.groups]

    # Definitions 1 and 2: topics of one node set, to which no other topic can be added.
    def is_group(topics: frozenset[str]) -> bool:
        return len({nodes[t] for t in topics}) == 1

    subsets = chain.from_iterable(combinations(nodes, k) for k in range(1, len(nodes) + 1))
    maximal = {
        one
        for one in map(frozenset, subsets)
        if is_group(one) and not any(is_group(one | {t}) for t in nodes if t not in one)
    }
    assert set(groups) == maximal
    assert [set(g.brokers) for g in found.groups] == [nodes[g.topics[0]] for g in found.groups]
    # Theorem A: each topic with a leader in exactly one, and no more than either bound.
    assert sorted(chain.from_iterable(groups)) == sorted(nodes)
    assert len(groups) <= min(len(nodes), 2 ** len(snapshot.brokers) - 1)
    # Definition 3: pairs that overlap, and the groups on each broker.
    of_group = [nodes[min(group)] for group in groups]
    overlapping = [
        (i, j, tuple(sorted(of_group[i] & of_group[j])))
        for i, j in combinations(range(len(groups)), 2)
        if of_group[i] & of_group[j]
    ]
    assert [pair[:3] for pair in pairs(found)] == overlapping
    assert count_pairs(found) == len(overlapping)
    by_broker = {
        b: tuple(g for g, brokers in enumerate(of_group) if b in brokers) for b in sorted(IDS)
    }
    shared = {b: those for b, those in by_broker.items() if len(those) > 1}
    assert overlaps_by_broker(found) == shared
    # Theorem G: the pairs inside the sets of DPO2 are the pairs of DPO.
    assert {pair for those in shared.values() for pair in combinations(those, 2)} == {
        (i, j) for i, j, _ in overlapping
    }
    assert set(found.named(contested(found.masks))) == set(shared)
    # Theorem B: without overlap, no more groups than brokers, one for each that leads.
    if not overlapping:
        assert len(groups) <= len(snapshot.brokers)
        assert all(len(those) <= 1 for those in by_broker.values())


@hundred
@given(snapshot=clusters())
def test_the_published_algorithms_find_the_same(snapshot: ClusterSnapshot) -> None:
    lists = node_lists(snapshot)
    found = max_groups(layout_of(snapshot))

    scanned = get_max_groups(lists)

    assert scanned == [list(group.topics) for group in found.groups]
    assert [(i, j, tuple(sorted(common))) for i, j, common in dpo(scanned, lists)] == [
        pair[:3] for pair in pairs(found)
    ]
    assert dict(dpo2(scanned, lists, sorted(IDS))) == {
        broker: list(those) for broker, those in overlaps_by_broker(found).items()
    }


@pytest.mark.parametrize("brokers", range(1, 7))
def test_no_more_groups_than_non_empty_sets_of_brokers_can_be(brokers: int) -> None:
    ids = range(1, brokers + 1)
    subsets = chain.from_iterable(combinations(ids, k) for k in range(1, brokers + 1))
    topics = {str(of): dict.fromkeys(of, 1) for of in subsets}

    assert len(max_groups(layout_of(led(topics))).groups) == 2**brokers - 1  # theorem C


@hundred
@given(snapshot=clusters())
def test_components_are_the_connected_parts_of_the_overlap_graph(snapshot: ClusterSnapshot) -> None:
    found = max_groups(layout_of(snapshot))

    parts = [set(found.named(part)) for part in components(found.masks)]

    merged: list[set[int]] = []
    for group in found.groups:
        touched = [part for part in merged if part & set(group.brokers)]
        merged = [part for part in merged if part not in touched]
        merged.append(set(group.brokers).union(*touched))
    assert sorted(map(sorted, parts)) == sorted(map(sorted, merged))


@hundred
@given(snapshot=clusters(least_replicas=1), seed=st.integers(0, 99), limit=st.integers(1, 8))
def test_the_pairs_that_are_kept_are_the_heaviest(
    snapshot: ClusterSnapshot, seed: int, limit: int
) -> None:
    layout = layout_of(snapshot)
    found = max_groups(layout)
    rates = rates_for(snapshot, seed)
    sent = sent_by_groups(layout, found, rates_by_place(layout, rates)[0])

    kept = heaviest_pairs(found, sent, limit=limit)

    alone = {
        group: broker_loads(
            layout, found, TopicLoad(by_topic={t: rates.by_topic[t] for t in one.topics})
        ).default.by_broker
        for group, one in enumerate(found.groups)
    }
    weights = {
        (p.first, p.second): sum(alone[g][b] for g in (p.first, p.second) for b in p.brokers)
        for p in pairs(found)
    }
    heaviest = sorted(weights.values(), reverse=True)[:limit]
    assert [p.rate for p in kept] == pytest.approx(heaviest)
    assert [weights[p.first, p.second] for p in kept] == pytest.approx(heaviest)


# ---------------------------------------------------------------- uneven topics and loads


@hundred
@given(snapshot=clusters())
def test_a_topic_is_uneven_by_its_counts_alone(snapshot: ClusterSnapshot) -> None:
    expected = {}
    for topic in snapshot.topics:
        leaders = [p.leader for p in snapshot.of_topics(frozenset({topic})) if not p.offline]
        counts = {broker: leaders.count(broker) for broker in sorted(set(leaders))}
        spread = max(counts.values(), default=0) - min(counts.values(), default=0)
        if spread:
            peak = Fraction(max(counts.values()) * len(counts), len(leaders))
            divides = len(leaders) % len(counts) == 0
            level = Level.NOTE if spread == 1 and not divides else Level.WARNING
            expected[topic] = (counts, spread, peak, level)

    found = uneven_topics(layout_of(snapshot))

    assert {
        u.topic: (
            dict(zip(u.brokers, u.counts, strict=True)),
            u.spread,
            u.peak_to_mean,
            u.level,
        )
        for u in found
    } == expected


@hundred
@given(snapshot=clusters(least_replicas=1))
def test_a_component_is_level_for_all_rates_only_if_it_is_one_group_of_even_topics(
    snapshot: ClusterSnapshot,
) -> None:
    # Theorem D. Loads are linear in the rates: one topic at a time speaks for all of them.
    layout = layout_of(snapshot)
    found = max_groups(layout)
    nodes = nodes_of(snapshot)
    uneven = {u.topic for u in uneven_topics(layout)}
    for part in components(found.masks):
        brokers = set(found.named(part))
        topics = [topic for topic in nodes if nodes[topic] <= brokers]
        one_group = all(nodes[topic] == brokers for topic in topics)
        level = {"default": True, "node": True}
        for topic in topics:
            loads = broker_loads(layout, found, TopicLoad(by_topic={topic: 60.0}))
            for policy, of in (("default", loads.default), ("node", loads.node)):
                level[policy] &= len({round(of.by_broker[b], 9) for b in brokers}) == 1
        assert level["default"] == (one_group and not uneven & set(topics))
        assert level["node"] == one_group


@settings(max_examples=300)
@given(
    items=st.lists(
        st.tuples(st.integers(0, 400), st.lists(st.integers(0, 4), unique=True, min_size=1)),
        max_size=10,
    )
)
def test_the_least_possible_peak_is_the_highest_ratio_of_any_set(
    items: list[tuple[int, list[int]]],
) -> None:
    # Theorem F, by its direct formula over all sets, each a smaller one and an item more.
    sets: list[tuple[int, frozenset[int]]] = [(0, frozenset())]
    for rate, ways in items:
        sets += [(total + rate, brokers | set(ways)) for total, brokers in sets]
    highest = max((Fraction(total, 4 * len(brokers)) for total, brokers in sets[1:]), default=0)

    found = least_peak([rate / 4 for rate, _ in items], [ways for _, ways in items])

    assert found.peak == float(highest)
    used = {broker for i in found.items for broker in items[i][1]}
    assert used == set(found.brokers)
    if used:
        assert Fraction(sum(items[i][0] for i in found.items), 4 * len(used)) == highest


# ---------------------------------------------------------------- what brokers carry


def skewed_topics(layout: Any, weight: Any) -> set[str]:
    """Topics whose fullest leader has more than 1.25 times what it must have at least."""
    found = set()
    for topic in layout.topics:
        led: dict[int, list[float]] = {}
        for at, p in enumerate(layout.partitions):
            if p.topic == topic and layout.leader_of[at] >= 0:
                led.setdefault(int(layout.leader_of[at]), []).append(float(weight[at]))
        loads = [w for of in led.values() for w in of]
        if sum(loads) > 0:
            most = -(-len(loads) // len(led))
            bound = max(sum(loads) / len(led), *loads, most * min(loads))
            if max(map(sum, led.values())) > 1.25 * bound * (1 + 1e-9):
                found.add(topic)
    return found


@hundred
@given(snapshot=clusters(least_replicas=1), seed=st.integers(0, 99))
def test_the_excess_of_topics_is_that_of_the_definition(
    snapshot: ClusterSnapshot, seed: int
) -> None:
    layout = layout_of(snapshot)
    weight = weights_of(layout, rates_by_partition(snapshot, seed)).weight
    of_topics = layout.topic_of, layout.leader_of, layout.available

    excess = topic_excess(of_topics, layout.led, weight, len(layout.brokers))

    skewed = {t for t, one in zip(layout.topics, excess, strict=True) if one > 1.25 * (1 + 1e-9)}
    assert skewed == skewed_topics(layout, weight)


@hundred
@given(loads=st.lists(st.integers(0, 9), max_size=6), brokers=st.integers(1, 3))
def test_no_placement_of_leaders_gets_below_the_bound(loads: list[int], brokers: int) -> None:
    best = min(
        max(sum(w for w, on in zip(loads, places, strict=True) if on == b) for b in range(brokers))
        for places in product(range(brokers), repeat=len(loads))
    )

    bound = placement_bound(np.array(sorted(loads, reverse=True), float), brokers, sum(loads))

    assert bound <= best + 1e-9
    if len(set(loads)) == 1:
        assert bound == best


@hundred
@given(
    brokers=st.integers(1, 12),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=20),
    start=st.integers(0, 11),
    scale=st.sampled_from((None, 0.001, 1.0, 1e9)),
)
def test_a_balanced_cluster_has_no_finding_of_load(
    brokers: int, sizes: list[int], start: int, scale: float | None
) -> None:
    # Partitions of all topics are dealt to brokers in turn, every other broker in sync.
    lists: dict[str, list[list[int]]] = {}
    at = start
    for number, size in enumerate(sizes):
        lists[f"t{number}"] = []
        for _ in range(size):
            lists[f"t{number}"].append([(at + shift) % brokers + 1 for shift in range(brokers)])
            at += 1
    snapshot = placement(lists)
    rates = None
    if scale is not None:
        given_rates = {p.name: scale for p in snapshot.partitions}
        rates = topic_rates(snapshot, given_rates, Unit.BYTES_S)

    found = findings(audit(snapshot, rates, AuditOptions(up_to=0)))

    assert [f for f in found if f.kind == "leaders"] == []
    assert [f for f in found if f.kind == "peak" and f.level is not Level.NOTE] == []
    if at - start >= 5 * brokers or (at - start) % brokers == 0:
        assert [f for f in found if f.kind == "peak"] == []


def placed_by_kafka(
    rng: random.Random, *, brokers: int, partitions: int, replicas: int
) -> list[list[int]]:
    """Replica lists as KRaft makes them: a ring of brokers from a random start, mixed anew."""
    order = rng.sample(range(1, brokers + 1), brokers)
    start, made = rng.randrange(brokers), []
    for number in range(partitions):
        if number and number % brokers == 0:
            rng.shuffle(order)
        made.append([order[(start + number + next_) % brokers] for next_ in range(replicas)])
    return made


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("brokers", "topics", "partitions"),
    [(3, 1, 3), (3, 1, 6), (3, 5, 6), (3, 40, 6), (6, 20, 12), (10, 20, 10), (12, 60, 6)],
)
def test_a_cluster_as_kafka_places_it_has_no_warning(
    brokers: int, topics: int, partitions: int, seed: int
) -> None:
    rng = random.Random(seed)
    snapshot = placement(
        {
            f"t{n:03}": placed_by_kafka(rng, brokers=brokers, partitions=partitions, replicas=3)
            for n in range(topics)
        }
    )
    rates = topic_rates(snapshot, {p.name: 5.0 for p in snapshot.partitions}, Unit.BYTES_S)
    options = AuditOptions(min_insync=dict.fromkeys(snapshot.topics, 2))

    # Where a topic has fewer partitions than there are brokers, chance may measure 1.3 × the mean.
    for known in (None, rates) if partitions >= brokers else (None,):
        found = findings(audit(snapshot, known, options))
        assert [f for f in found if f.level is not Level.NOTE] == []


@hundred
@given(counts=st.lists(st.integers(0, 40), min_size=2, max_size=6))
def test_a_cluster_passes_only_if_no_broker_leads_much_more_than_it_must(
    counts: list[int],
) -> None:
    owners = [broker for broker, count in enumerate(counts, 1) for _ in range(count)]
    snapshot = placement(
        {f"t{n:03}": [[owner]] for n, owner in enumerate(owners)},
        brokers=range(1, len(counts) + 1),
    )
    least = -(-sum(counts) // len(counts))

    found = {f.kind: f.level for f in findings(audit(snapshot))}

    much = max(counts) > 1.5 * least and max(counts) >= least + 2
    assert found.get("leaders") is (
        Level.WARNING if much else Level.NOTE if max(counts) > 1.25 * least else None
    )


@hundred
@given(snapshot=clusters(least_replicas=1), seed=st.integers(0, 99), goal=st.integers(0, 9))
def test_leader_moves_lower_the_peak_and_go_to_replicas_in_sync(
    snapshot: ClusterSnapshot, seed: int, goal: int
) -> None:
    layout = layout_of(snapshot)
    weights = weights_of(layout, rates_by_partition(snapshot, seed))
    before = carried(layout, weights)

    moves = leader_moves(layout, weights.weight, goal=goal)

    assert len({move.name for move in moves}) == len(moves)
    moved = {move.name: move for move in moves}
    then = replace(
        snapshot,
        partitions=tuple(
            replace(p, leader=moved[p.name].to) if p.name in moved else p
            for p in snapshot.partitions
        ),
    )
    for p in snapshot.partitions:
        if p.name in moved:
            move = moved[p.name]
            assert move.source == p.leader != move.to
            assert move.to in p.isr
            assert (move.replicas[0], set(move.replicas)) == (move.to, set(p.replicas))
    after = carried(layout_of(then), weights)
    assert peak_after(before.by_broker, moves) == pytest.approx(after.peak)
    if moves:
        assert after.peak < before.peak


def test_equal_weights_count_leaders() -> None:
    layout = layout_of(led({"A": {1: 2, 2: 1}}))

    assert carried(layout, equal_weights(layout)).by_broker == {1: 2.0, 2: 1.0}


# ---------------------------------------------------------------- faults


def overlapping_topics(snapshot: ClusterSnapshot) -> set[tuple[str, str]]:
    nodes = nodes_of(snapshot)
    return {
        (a, b) for a, b in combinations(nodes, 2) if nodes[a] & nodes[b] and nodes[a] != nodes[b]
    }


@hundred
@given(
    snapshot=clusters(least_replicas=1),
    seed=st.integers(0, 99),
    rated=st.sampled_from((None, rates_for, rates_by_partition)),
    data=st.data(),
)
def test_a_failure_looked_at_by_its_changes_equals_the_whole_cluster_after_it(
    snapshot: ClusterSnapshot, seed: int, rated: Any, data: Any
) -> None:
    ids = [broker.id for broker in snapshot.brokers]
    dead = tuple(sorted(data.draw(st.sets(st.sampled_from(ids), min_size=1))))
    rates = rated(snapshot, seed) if rated else None
    needs = dict.fromkeys(snapshot.topics, 1 + seed % 3)
    layout = layout_of(snapshot)
    scan = FaultScan(layout, rates, min_insync=needs, wanted=1.25)
    before = carried(layout, weights_of(layout, rates))

    fault, details = scan.fault(Scenario(dead)), scan.details(dead)

    then = after(snapshot, dead)
    assert node_lists(snapshot, dead=frozenset(dead)) == node_lists(then)
    moved = {
        p.name: p.leader
        for p, was in zip(then.partitions, snapshot.partitions, strict=True)
        if p.leader != was.leader
    }
    assert details.leaders == moved
    assert fault.moved + fault.offline_partitions == len(moved)
    assert details.offline_partitions == tuple(name for name in moved if moved[name] == -1)
    assert details.offline_topics == tuple(
        topic for topic in nodes_of(snapshot) if topic not in nodes_of(then)
    )
    assert fault.offline_topics == len(details.offline_topics)
    was, now = overlapping_topics(snapshot), overlapping_topics(then)
    assert (fault.new_pairs, fault.vanished_pairs) == (len(now - was), len(was - now))
    whole = layout_of(then)
    groups = max_groups(whole)
    assert fault.contested == groups.named(contested(groups.masks))
    uneven = {u.topic for u in uneven_topics(whole)} - {u.topic for u in uneven_topics(layout)}
    assert details.newly_uneven == tuple(sorted(uneven))
    weight = weights_of(layout, rates).weight
    skewed = skewed_topics(whole, weight) - skewed_topics(layout, weight)
    assert (set(details.newly_skewed), fault.newly_skewed) == (skewed, len(skewed))
    online = [p.leader >= 0 for p in layout.partitions]
    total = sum(w for w, led in zip(weight, online, strict=True) if led)
    part = sum(
        w
        for p, w, led in zip(layout.partitions, weight, online, strict=True)
        if led and p.topic in skewed
    )
    assert fault.skewed_share == pytest.approx(part / total if total else 0.0)
    loads = broker_loads(whole, groups, rates, down=dead)
    assert fault.default_to_mean == pytest.approx(loads.default.peak_to_mean)
    assert fault.node_to_mean == pytest.approx(loads.node.peak_to_mean)
    carries = carried(whole, weights_of(layout, rates), down=dead)
    assert fault.peak_to_mean == pytest.approx(carries.peak_to_mean)
    stays = [before.by_broker[b] for b in ids if b not in dead]
    moved_loads = [
        float(w)
        for p, w in zip(whole.partitions, weight, strict=True)
        if moved.get(p.name, -1) >= 0
    ]
    if stays:
        bound = max(carries.bound, *stays, min(stays) + max(moved_loads, default=0.0))
        assert fault.bound_to_mean == pytest.approx(ratio(bound, carries.mean))
        assert fault.excess >= 1 - 1e-9
    assert scan.least_to_mean(dead) == pytest.approx(loads.least.peak_to_mean)
    if rates is None and loads.doubled:
        assert fault.doubled_to_mean == pytest.approx(loads.doubled[0].peak_to_mean)

    def unwritable(cluster: ClusterSnapshot) -> set[Any]:
        return {
            p.name
            for p in cluster.partitions
            if not p.offline and len(p.isr) < needs.get(p.topic, 1)
        }

    assert fault.below_min_insync == len(unwritable(then) - unwritable(snapshot))


@hundred
@given(data=st.data())
def test_groups_whose_replicas_stay_inside_never_begin_to_overlap(data: Any) -> None:
    halves = ((1, 2), (3, 4, 5))
    topics = {}
    for name in data.draw(st.sets(st.sampled_from("ABCDEF"))):
        home = data.draw(st.sampled_from(halves))
        # Every broker of the half leads, and every replica is in the half.
        topics[name] = [data.draw(st.permutations([b, *set(home) - {b}])) for b in home]
        for at, leader in enumerate(home):
            topics[name][at] = [leader, *(b for b in topics[name][at] if b != leader)]

    found = audit(placement(topics, brokers=range(1, 6)), options=AuditOptions(up_to=1))

    assert found.pairs_total == 0
    # Two topics of one half may part by a failure, never two of different halves.
    homes = {name: topics[name][0][0] in halves[0] for name in topics}
    for fault in found.faults:
        then = after(placement(topics, brokers=range(1, 6)), fault.dead)
        assert all(homes[a] == homes[b] for a, b in overlapping_topics(then))


# ---------------------------------------------------------------- the whole


@hundred
@given(snapshot=clusters(), seed=st.integers(0, 99))
def test_the_document_does_not_depend_on_the_order_of_the_snapshot(
    snapshot: ClusterSnapshot, seed: int
) -> None:
    rng = random.Random(seed)
    mixed = replace(
        snapshot,
        brokers=tuple(rng.sample(snapshot.brokers, len(snapshot.brokers))),
        partitions=tuple(rng.sample(snapshot.partitions, len(snapshot.partitions))),
    )
    options = AuditOptions(up_to=2, pairs=None)
    rates = rates_for(snapshot, seed)

    one, other = (dumps(audit_to(audit(s, rates, options))) for s in (snapshot, mixed))

    assert one == other
