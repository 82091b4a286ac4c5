"""The laws of a partitioner, for every one in the registry."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import combinations, groupby, islice

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from kafka.partitioner import murmur2 as kafka_murmur2

from trimtab.model.murmur2 import murmur2
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import CountUnit, Granularity, Partitioner, RoutingOptions
from trimtab.plan.records.registry import OURS, PARTITIONERS, PEERS, partitioner_of

unhurried = settings(deadline=None, max_examples=60)
KINDS = [(name, g) for name in OURS for g in Granularity] + [
    (name, Granularity.PER_BATCH) for name in PEERS
]
BY_BROKER = ["node", "sqf", "weighted-node"]
TOPICS = ("a", "b")

brokers = st.sampled_from([-1, 0, 1, 7, 42, 1001])
leaders = st.dictionaries(st.integers(0, 9), brokers, min_size=1, max_size=8)
snapshots = st.builds(
    lambda a, b: LeaderSnapshot({"a": a, "b": b}, {0: "x", 7: "x", 42: "y"}), leaders, leaders
)
records = st.tuples(st.sampled_from(TOPICS), st.sampled_from([0, 1, 40, 100, 300]))
series = st.lists(st.tuples(snapshots, st.lists(records, max_size=25)), min_size=1, max_size=5)
starts = st.one_of(st.integers(-(2**31), 2**31 - 1), st.integers(2**31 - 20, 2**31 - 1))


def each_kind() -> Iterator[tuple[str, Granularity]]:
    """One after the other, each named beside a failure: a world is made once for all."""
    for name, granularity in KINDS:
        note(f"{name} per {granularity}")
        yield name, granularity


def told(granularity: Granularity, seed: int = 1, **options: object) -> RoutingOptions:
    return RoutingOptions(
        granularity=granularity,
        sticky_bytes=250,
        seed=seed,
        rack="x",
        queues=lambda _: {0: 3, 2: 1},
        stuck=lambda: {7},
        weights=lambda: {0: 2.0, 1: 1.0, 42: 0.5},
        **options,  # type: ignore[arg-type]  # a few of its own fields
    )


@unhurried
@given(series, starts, st.sampled_from(Granularity))
def test_default_and_improved_make_the_same_choices(world, start, granularity):
    options = RoutingOptions(start=start, granularity=granularity, sticky_bytes=250)
    default, improved = (partitioner_of(name, options) for name in ("default", "improved"))

    for snapshot, sent in world:
        for topic, size in sent:
            chosen = default.partition(topic, None, size, snapshot)
            assert improved.partition(topic, None, size, snapshot) == chosen


@unhurried
@given(series, st.integers(0, 99))
def test_a_choice_exists_has_a_leader_if_any_has_and_follows_from_the_seed(world, seed):
    for name, granularity in each_kind():
        one, same = (partitioner_of(name, told(granularity, seed)) for _ in range(2))
        for snapshot, sent in world:
            for topic, size in sent:
                chosen = one.partition(topic, None, size, snapshot)
                table = snapshot.topic(topic)
                assert chosen in (table.available or table.all)
                assert same.partition(topic, None, size, snapshot) == chosen


@unhurried
@given(series, st.binary(max_size=20))
def test_a_key_has_one_home_whoever_leads_and_steps_no_counter(world, key):
    for name, granularity in each_kind():
        plain, mixed = (partitioner_of(name, told(granularity)) for _ in range(2))
        for snapshot, sent in world:
            for topic, size in sent:
                everything = snapshot.topic(topic).all
                home = everything[(murmur2(key) & 0x7FFFFFFF) % len(everything)]
                assert mixed.partition(topic, key, size, snapshot) == home
                keyless = mixed.partition(topic, None, size, snapshot)
                assert keyless == plain.partition(topic, None, size, snapshot)


@unhurried
@given(series)
def test_keys_that_are_to_be_ignored_change_nothing(world):
    for name, granularity in each_kind():
        plain = partitioner_of(name, told(granularity))
        ignoring = partitioner_of(name, told(granularity, ignore_keys=True))
        for snapshot, sent in world:
            for topic, size in sent:
                chosen = plain.partition(topic, None, size, snapshot)
                assert ignoring.partition(topic, b"key", size, snapshot) == chosen


@unhurried
@given(snapshots, st.lists(st.sampled_from([0, 1, 40, 100, 300]), min_size=1, max_size=80))
def test_per_batch_a_partition_is_given_whole_batches(snapshot, sizes):
    for name in ("default", "improved", "node", "sqf", "weighted-node", "uniform-sticky"):
        note(name)
        partitioner = partitioner_of(name, told(Granularity.PER_BATCH))
        chosen = [partitioner.partition("a", None, size, snapshot) for size in sizes]
        runs = [list(run) for _, run in groupby(zip(chosen, sizes, strict=True), lambda c: c[0])]
        assert all(sum(max(size, 1) for _, size in run) >= 250 for run in runs[:-1])


@pytest.mark.parametrize("name", PARTITIONERS)
def test_keyed_records_agree_with_the_hash_of_kafka_python(name):
    rng = random.Random(6)
    keys = [b"", b"abc", b"foobar", b"a-little-bit-long-string"]
    check = [275646681, 479470107, 3504634814, 3308985760]
    assert [murmur2(key) for key in keys] == [kafka_murmur2(key) for key in keys] == check
    keys += [rng.randbytes(rng.randrange(24)) for _ in range(10_000)]
    sizes = (1, 3, 12, 50)
    tables = {n: LeaderSnapshot({"t": {p: p % 3 - 1 for p in range(n)}}) for n in sizes}
    partitioner = partitioner_of(name)

    for number, key in enumerate(keys):
        n = sizes[number % len(sizes)]
        home = (kafka_murmur2(key) & 0x7FFFFFFF) % n
        assert partitioner.partition("t", key, len(key), tables[n]) == home


# Constant leaders: how far apart the fullest and the emptiest choice are.


def spread(counts: Counter[int], choices: tuple[int, ...]) -> int:
    found = [counts[choice] for choice in choices]
    return max(found) - min(found)


def assert_even(name: str, chosen: list[int], snapshot: LeaderSnapshot, *, within: int) -> None:
    """Over partitions, or over brokers and inside each of them."""
    table, counts = snapshot.topic("a"), Counter(chosen)
    if name in BY_BROKER and table.brokers:
        by_broker = Counter(table.leader[p] for p in chosen)
        assert spread(by_broker, table.brokers) <= within
        assert all(spread(counts, led) <= within for led in table.led.values())
    else:
        assert spread(counts, table.available or table.all) <= within


@unhurried
@given(snapshots, starts, st.integers(0, 60))
def test_counts_differ_by_one_at_most_and_by_two_through_a_wrap(snapshot, start, number):
    wraps = (start & 0x7FFFFFFF) + number > 2**31
    for name in OURS:
        note(name)
        partitioner = partitioner_of(name, RoutingOptions(start=start))
        chosen = [partitioner.partition("a", None, 100, snapshot) for _ in range(number)]
        assert_even(name, chosen, snapshot, within=2 if wraps else 1)


def in_threads(partitioner: Partitioner, snapshot: LeaderSnapshot, each: int) -> list[int]:
    """What eight threads are told that begin at once, and may be cut off at any line."""
    together = threading.Barrier(8)
    chosen: list[list[int]] = [[] for _ in range(8)]

    def at_every_line(*_):
        os.sched_yield()
        return at_every_line

    def send(into: list[int]) -> None:
        together.wait()
        into += [partitioner.partition("a", None, 100, snapshot) for _ in range(each)]

    threads = [threading.Thread(target=send, args=(into,)) for into in chosen]
    threading.settrace(at_every_line)
    try:
        for thread in threads:
            thread.start()
    finally:
        threading.settrace(None)
        for thread in threads:
            thread.join()
    return [p for into in chosen for p in into]


@pytest.mark.parametrize("name", OURS)
@pytest.mark.parametrize(("start", "within"), [(None, 1), (2**31 - 400, 2)])
def test_eight_threads_are_served_as_evenly_as_one(name, start, within):
    snapshot = LeaderSnapshot({"a": {0: 1, 1: 2, 2: 2, 3: 7, 4: 7, 5: 7, 6: -1}})
    partitioner = partitioner_of(name, RoutingOptions(start=start))

    chosen = in_threads(partitioner, snapshot, 100)

    assert len(chosen) == 800
    assert_even(name, chosen, snapshot, within=within)


@pytest.mark.parametrize("name", OURS)
def test_eight_threads_fill_whole_batches(name):
    snapshot = LeaderSnapshot({"a": {0: 1, 1: 2, 2: 3, 3: 4}})
    options = RoutingOptions(granularity=Granularity.PER_BATCH, sticky_bytes=1000)

    chosen = Counter(in_threads(partitioner_of(name, options), snapshot, 100))

    assert chosen == {0: 200, 1: 200, 2: 200, 3: 200}  # 80 batches of ten records


# Weights.

weights = st.lists(st.integers(1, 1000), min_size=1, max_size=12)


@unhurried
@given(weights, st.integers(1, 400))
def test_shares_follow_the_weights(of, number):
    """Above by less than 1; below by at most 1/2 + … + 1/m, which is less than 1 for m ≤ 3."""
    by_broker = {100 * b: w for b, w in enumerate(of)}
    snapshot = LeaderSnapshot({"a": dict(enumerate(by_broker))})
    partitioner = partitioner_of(
        "weighted-node", RoutingOptions(start=0, weights=lambda: by_broker)
    )

    chosen = Counter(partitioner.partition("a", None, 100, snapshot) for _ in range(number))

    below = sum(1 / k for k in range(2, len(of) + 1))
    for partition, weight in enumerate(of):
        due = number * weight / sum(of)
        assert due - below - 1e-6 <= chosen[partition] < due + 1


@unhurried
@given(st.integers(1, 8), st.data())
def test_nobody_is_given_more_than_one_above_its_share_when_weights_change(m, data):
    of = st.lists(st.integers(1, 1000), min_size=m, max_size=m)
    snapshot = LeaderSnapshot({"a": {p: p for p in range(m)}})
    now: dict[int, float] = {}
    partitioner = partitioner_of("weighted-node", RoutingOptions(start=0, weights=lambda: now))
    due, chosen = Counter[int](), Counter[int]()

    for weighed in data.draw(st.lists(of, min_size=1, max_size=30)):
        now.update(enumerate(weighed))
        for _ in range(7):
            chosen[partitioner.partition("a", None, 100, snapshot)] += 1
            due.update({p: w / sum(weighed) for p, w in enumerate(weighed)})

    assert all(chosen[p] < due[p] + 1 + 1e-6 for p in range(m))


@unhurried
@given(snapshots, st.integers(0, 60), st.sampled_from([0.0, None, 1.0]))
def test_weights_that_are_all_zero_missing_or_equal_choose_as_node_does(snapshot, number, weight):
    table = snapshot.topic("a")
    known = {} if weight is None else dict.fromkeys(table.brokers, weight)
    steered = partitioner_of("weighted-node", RoutingOptions(start=0, weights=lambda: known))
    node = partitioner_of("node", RoutingOptions(start=0))

    for _ in range(number):
        chosen = node.partition("a", None, 100, snapshot)
        assert steered.partition("a", None, 100, snapshot) == chosen


@unhurried
@given(st.sets(st.integers(0, 99), min_size=1, max_size=8), st.sampled_from(Granularity))
def test_where_every_broker_leads_one_partition_equal_weights_choose_as_default_does(ids, each):
    snapshot = LeaderSnapshot({"a": dict(enumerate(sorted(ids)))})
    equal = dict.fromkeys(ids, 1.0)
    steered, default = (
        partitioner_of(name, RoutingOptions(start=0, granularity=each, weights=lambda: equal))
        for name in ("weighted-node", "default")
    )

    for _ in range(400):
        chosen = default.partition("a", None, 100, snapshot)
        assert steered.partition("a", None, 100, snapshot) == chosen


# Theorem F: one shared instance comes to the least possible peak.


def least_peak(loads: dict[str, int], on: dict[str, set[int]]) -> float:
    """Max over sets of topics of their load over the brokers that share it."""
    return max(
        sum(loads[t] for t in some) / len(set().union(*(on[t] for t in some)))
        for size in range(1, len(loads) + 1)
        for some in combinations(sorted(loads), size)
    )


@pytest.mark.parametrize("counted", CountUnit)
@pytest.mark.parametrize("seed", range(8))
def test_shared_sqf_comes_within_two_percent_of_the_least_possible_peak(counted, seed):
    rng = random.Random(seed)
    on = {f"t{n}": set(rng.sample(range(5), rng.randint(1, 3))) for n in range(rng.randint(2, 6))}
    rates = [rng.randint(1, 10) for _ in on]
    snapshot = LeaderSnapshot({t: dict(enumerate(sorted(of))) for t, of in on.items()})
    sqf = partitioner_of("sqf", RoutingOptions(counted=counted, seed=seed))
    loads, used = dict.fromkeys(on, 0), Counter[int]()

    for topic in rng.choices(list(on), rates, k=40_000):
        size = rng.randint(50, 150) if counted is CountUnit.BYTES else 1
        used[snapshot.topic(topic).leader[sqf.partition(topic, None, size, snapshot)]] += size
        loads[topic] += size

    least = least_peak(loads, on)
    assert least <= max(used.values()) * (1 + 1e-9)
    assert max(used.values()) <= 1.02 * least


@unhurried
@given(series, series)
def test_what_it_does_for_one_cluster_changes_nothing_for_another(here, there):
    for name, granularity in each_kind():
        alone, shared = (partitioner_of(name, told(granularity)) for _ in range(2))
        of_others = iter([(at, *one) for at, sent in there for one in sent])
        for snapshot, sent in here:
            for topic, size in sent:
                for elsewhere, other, other_size in islice(of_others, 1):
                    named = LeaderSnapshot(elsewhere._leaders, elsewhere.racks, "another")
                    shared.partition(other, None, other_size, named)
                chosen = alone.partition(topic, None, size, snapshot)
                assert shared.partition(topic, None, size, snapshot) == chosen
