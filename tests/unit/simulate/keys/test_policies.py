"""What each policy promises: bounds, choices, whole keys."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trimtab.errors import ConfigError
from trimtab.measure.counters import Count
from trimtab.plan.keys.planner import KeyDecision
from trimtab.plan.keys.smalops import SMALOPS
from trimtab.simulate.keys.arrivals import KeyHashes, arrivals
from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
from trimtab.simulate.keys.key_policies import BoundedLoads, HeavyKeyMap, LearnedKeyMap
from trimtab.simulate.keys.planned import PlannerPolicy, key_counts
from trimtab.simulate.keys.policy import FinishedWindow
from trimtab.simulate.keys.record_policies import (
    MoreChoices,
    PartialKeyGrouping,
    RoundRobin,
    choices_needed,
    two_hash_choices,
)
from trimtab.simulate.keys.registry import key_policies, key_policy_of
from trimtab.simulate.keys.routing import Routing
from trimtab.simulate.keys.window_counts import WindowCounting
from trimtab.workload.key_streams import KeyStream, ZipfMandelbrot

STREAM = KeyStream(rate_s=5000.0, seed=5, distribution=ZipfMandelbrot(keys=5000))
WINDOW_NS = 10**9
M = 8


def finished(stream=STREAM, *, routing=Routing(), busy=frozenset(), threshold=20):  # noqa: B008
    """The first window of a stream, as a policy with this routing sees it."""
    hashes, counting = KeyHashes(), WindowCounting()
    blocks = list(arrivals(stream, duration_s=1.0, window_ns=WINDOW_NS, partitions=M))
    for block in blocks:
        counting.add(block.keys)
    counts = counting.finish(0)
    homes = np.concatenate([block.homes for block in blocks])
    routes = np.concatenate([routing.of(b.keys, b.hashes, b.homes) for b in blocks])
    return FinishedWindow(
        counts=counts,
        hot=counts.hot(Count(threshold)),
        threshold=threshold,
        window_s=1.0,
        loads=np.bincount(routes, minlength=M),
        home_loads=np.bincount(homes, minlength=M),
        routing=routing,
        busy=busy,
        hashes=hashes,
    )


def loads_of(window, routing):
    keys, counts = window.counts.all_keys
    return np.bincount(window.routes(keys, routing), counts, M).astype(int)


def block_of(stream=STREAM):
    return next(arrivals(stream, duration_s=1.0, window_ns=WINDOW_NS, partitions=M))


@pytest.mark.parametrize("c", ["1.25", "1.05"])
def test_bounded_loads_stay_below_the_bound(c):
    policy, window = BoundedLoads(M, c=c), finished()
    limit = policy.limit(window)
    assert window.home_loads.max() > limit, "hashing alone is above it"

    decision = policy.plan(window)

    assert loads_of(window, decision.routing).max() <= limit
    assert limit == -(-round(float(c) * 100) * window.counts.n // (100 * M))


def test_bounded_loads_leave_keys_at_home_where_there_is_room():
    window = finished()
    decision = BoundedLoads(M, c="3").plan(window)

    assert not decision.routing.table
    assert not decision.moved.size


def test_bounded_loads_take_the_least_loaded_where_nobody_has_room():
    window = finished(KeyStream(rate_s=5000.0, seed=5, distribution=ZipfMandelbrot(keys=2, s=0.1)))
    decision = BoundedLoads(M, c="1.05").plan(window)

    assert len(set(window.routes(np.array([0, 1]), decision.routing).tolist())) == 2


def test_a_hot_key_that_cools_down_goes_home():
    away = (int(finished().homes(np.array([4000]))[0]) + 1) % M
    window = finished(routing=Routing(table={4000: away}))

    for policy in (BoundedLoads(M, c="1.05"), HeavyKeyMap()):
        decision = policy.plan(window)
        assert 4000 not in decision.routing.table
        assert decision.moves["cool"] == 1
        assert 4000 in decision.moved


@pytest.mark.parametrize("policy", [BoundedLoads(M, c="1.05"), HeavyKeyMap()])
def test_a_busy_key_stays_where_it_is(policy):
    hot = finished().hot.keys[:4].tolist()
    at = {hot[0]: 5, hot[1]: 5, hot[2]: 2}  # the fourth is on its way home
    window = finished(routing=Routing(table=at), busy=frozenset(hot))

    decision = policy.plan(window)

    own = np.array(hot)
    assert window.routes(own, decision.routing).tolist() == window.routes(own).tolist()
    assert not set(hot) & set(decision.moved.tolist())


def test_the_map_of_heavy_keys_is_more_even_than_hashing_and_then_rests():
    policy, window = HeavyKeyMap(), finished(threshold=5)
    first = policy.plan(window)
    before, after = window.home_loads, loads_of(window, first.routing)
    assert after.max() < 1.05 * after.mean() < before.max()

    again = policy.plan(finished(routing=first.routing, threshold=5))

    assert again.moved.size < first.moved.size / 2


def test_a_learned_map_is_learned_once_and_covers_all_keys():
    policy, window = LearnedKeyMap(M), finished()
    decision = policy.plan(window)

    assert loads_of(window, decision.routing).max() < 1.02 * window.counts.n / M
    assert decision.routing.entries == len(decision.routing.table) + 64 * M
    keys = window.counts.all_keys.keys
    moved = keys[window.routes(keys) != window.routes(keys, decision.routing)]
    assert decision.moved.tolist() == moved.tolist()
    assert decision.moves == {"learn": moved.size}

    later = finished(replace(STREAM, seed=6), routing=decision.routing)
    assert policy.plan(later).routing is decision.routing


def test_a_learned_map_waits_for_records():
    policy = LearnedKeyMap(M)
    empty = replace(finished(), counts=WindowCounting().finish(0))

    assert policy.plan(empty).routing.buckets is None
    assert policy.plan(finished()).routing.buckets is not None


def test_round_robin_goes_on_where_it_stopped():
    policy = RoundRobin(M)
    block = block_of()

    assert policy.choose(block).tolist() == [n % M for n in range(block.keys.size)]
    assert policy.choose(block)[0] == block.keys.size % M


def test_partial_key_grouping_uses_at_most_two_partitions_per_key_and_is_even():
    block = block_of()
    chosen = PartialKeyGrouping(M).choose(block)

    for key in np.unique(block.keys):
        assert np.unique(chosen[block.keys == key]).size <= 2
    loads = np.bincount(chosen, minlength=M)
    assert loads.max() < 1.01 * loads.mean()


def test_two_choices_are_two_partitions():
    block = block_of()
    first, second = two_hash_choices(block, M)

    assert (first == block.homes).all()
    assert (first != second).all()
    assert second.max() == M - 1
    assert [choice.tolist() for choice in two_hash_choices(block, 1)] == [
        block.homes.tolist(),
        block.homes.tolist(),
    ]


@pytest.mark.parametrize("all_partitions", [False, True])
def test_more_choices_are_for_heavy_keys_only(all_partitions):
    policy, block, window = MoreChoices(M, all_partitions=all_partitions), block_of(), finished()
    first = policy.choose(block)
    assert (first == PartialKeyGrouping(M).choose(block)).all(), "no key is heavy yet"

    policy.learn(window)
    chosen = policy.choose(block)

    keys, counts = window.counts.all_keys
    heavy = keys[5 * M * counts > window.counts.n]
    assert policy.entries == heavy.size > 2
    places = {int(key): np.unique(chosen[block.keys == key]).size for key in keys}
    assert max(places[key] for key in places if key not in heavy) <= 2
    if all_partitions:
        assert places[int(heavy[0])] == M


def test_the_number_of_choices_grows_with_the_heaviest_key():
    needed = [choices_needed([share], 10) for share in (0.05, 0.2, 0.35, 0.6)]

    assert needed == sorted(needed)
    assert needed[0] == 2
    assert needed[-1] > 4
    assert choices_needed([], 10) == 2
    assert choices_needed([0.9], 2) == 2


def test_a_planner_gets_hot_keys_and_the_routing_table():
    table = {0: 3, 4000: 2}
    window = finished(routing=Routing(table=table), busy=frozenset({4000}))

    counts = key_counts(window)

    listed = {int(key.key): key for key in counts.keys}
    assert listed.keys() == {*window.hot.keys.tolist(), 0, 4000}
    assert {key for key in listed if listed[key].routed} == set(table)
    assert (listed[0].partition, listed[4000].partition) == (3, 2)
    assert counts.partition_totals == tuple(window.loads.tolist())
    exact = window.counts.all_keys.as_dict()
    assert all(key.count == exact.get(number, 0) for number, key in listed.items())


def test_a_planner_may_get_smoothed_counts():
    seen = []

    def rule(counts, options, context):
        seen.append(counts.records)
        return KeyDecision(moves=())

    planner = replace(SMALOPS, rule=rule)
    windows = [finished(), finished(replace(STREAM, rate_s=9000.0))]
    for smooth in (None, 1.0, 0.25):
        policy = PlannerPolicy(planner, smooth=smooth)
        for window in windows:
            policy.plan(window)

    few, many = (window.counts.n for window in windows)
    assert seen[:4] == [few, many, few, many]
    assert seen[4] == few
    assert few < seen[5] < (few + many) / 2


def test_an_unknown_policy_is_refused_with_the_closest_name():
    with pytest.raises(ConfigError, match='no policy "gedick"') as refused:
        key_policy_of("gedick")

    assert refused.value.hint == 'Did you mean "gedik"?'


# The acceptance layout of hotkeys.md §12 with a fifth of the windows' length and of the threshold.
def test_planned_keys_wait_far_less_than_hashed_ones():
    topic = KeyedTopic(
        partitions=8, service_s=50e-6, window_s=2.0, threshold=Count(20), sketch=False
    )
    kinds = [key_policies()[name] for name in ("hash", "smalops-paper", "trim", "round-robin")]
    stream = KeyStream(rate_s=112_400.0, seed=1)

    found = simulate_keys(stream, topic, kinds, duration_s=6.0)

    usual, paper, trim, keyless = (run.measured.quantile_s(0.99) for run in found.runs)
    assert paper / usual == pytest.approx(0.28, abs=0.06)
    assert trim / paper == pytest.approx(1.0, abs=0.05)
    assert keyless < paper / 5
    assert found.run("hash").mean_imbalance == pytest.approx(1.34, abs=0.02)
    assert found.run("smalops-paper").mean_imbalance < 1.03
    assert 50 * found.run("trim").moved < 5 * found.run("smalops-paper").moved
