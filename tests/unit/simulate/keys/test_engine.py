"""The keys simulation: the same records for all policies, delays exact to the nanosecond."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trimtab.measure.counters import Count, Coverage
from trimtab.simulate.keys.engine import KeyedTopic, simulate_keys
from trimtab.simulate.keys.policy import (
    KeyLevelPolicy,
    KeyPolicyKind,
    KeyPolicySettings,
    RoutingDecision,
)
from trimtab.simulate.keys.queues import ServedRecords
from trimtab.simulate.keys.registry import key_policies
from trimtab.simulate.keys.routing import Routing
from trimtab.workload.key_streams import KeyBlock, KeyStream, ZipfMandelbrot
from trimtab_lab.reference_scans.key_queues import plain_queues

KINDS = key_policies()
KEY_LEVEL = [name for name, kind in KINDS.items() if kind.whole_state]
TOPIC = KeyedTopic(partitions=4, service_s=0.0009, window_s=1.0, threshold=Count(20), sketch=False)
STREAM = KeyStream(
    rate_s=3000.0, seed=3, distribution=ZipfMandelbrot(keys=2000), shift=7, shift_every_s=2.0
)


def served_by(stream, topic, kinds, **options):
    """The result, and for each policy the partition and delay of each record, by its number."""
    found: dict[str, list[ServedRecords]] = {kind.name: [] for kind in kinds}
    result = simulate_keys(
        stream, topic, kinds, on_served=lambda name, one: found[name].append(one), **options
    )
    return result, {name: by_number(parts) for name, parts in found.items()}


def by_number(parts):
    numbers = np.concatenate([part.numbers for part in parts])
    order = np.argsort(numbers)
    assert numbers[order].tolist() == list(range(numbers.size)), "every record is served once"
    partitions = np.concatenate([part.partitions for part in parts])[order]
    delays = np.concatenate([part.delays_ns for part in parts])[order]
    return partitions, delays


def records_of(stream, duration_s):
    blocks = list(stream.blocks(duration_s))
    times = np.concatenate([(block.times_s * 1e9).astype(np.int64) for block in blocks])
    return times, np.concatenate([block.keys for block in blocks])


class WanderingKeys:
    """Moves keys at every window without a reason, as given: a list of tables."""

    def __init__(self, tables):
        self._tables = list(tables)

    def plan(self, window):
        table = dict(self._tables.pop(0)) if self._tables else {}
        for key in window.busy:
            table[key] = int(window.routes(np.array([key]))[0])
        routing = Routing(table=table)
        known = np.array(sorted(table.keys() | window.routing.table.keys()), np.int64)
        moved = known[window.routes(known) != window.routes(known, routing)]
        return RoutingDecision(routing=routing, moves={"balance": moved.size}, moved=moved)


def wandering(tables):
    return replace(KINDS["hash"], name="wandering", create=lambda _: WanderingKeys(tables))


class GivenRecords:
    """A stream of given records."""

    rate_s = 10.0

    def __init__(self, times_s, keys):
        self._times, self._keys = np.array(times_s, float), np.array(keys, np.int64)

    def blocks(self, duration_s, *, block_records):
        for start in range(0, len(self._keys), block_records):
            part = slice(start, start + block_records)
            yield KeyBlock(self._times[part], self._keys[part])


@pytest.mark.parametrize("name", KEY_LEVEL)
def test_the_engine_equals_the_plain_loop(name):
    times, keys = records_of(STREAM, 6.0)
    policy = KINDS[name].create(
        KeyPolicySettings(partitions=4, window_s=1.0, service_s=0.0009, handover_s=0.001)
    )
    assert isinstance(policy, KeyLevelPolicy)

    plain = plain_queues(times.tolist(), keys.tolist(), TOPIC, policy)
    result, served = served_by(STREAM, TOPIC, [KINDS[name]], duration_s=6.0)

    partitions, delays = served[name]
    assert partitions.tolist() == plain.partition
    assert delays.tolist() == plain.delay_ns
    assert [dict(window.moves) for window in result.runs[0].windows[1:]] == plain.moves
    assert name == "hash" or result.runs[0].moved > 0


@settings(max_examples=80, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 400), min_size=1, max_size=120),
    keys=st.lists(st.integers(0, 5), min_size=120, max_size=120),
    tables=st.lists(st.dictionaries(st.integers(0, 5), st.integers(0, 2)), max_size=8),
    service=st.integers(1, 400),
    handover=st.integers(0, 1500),
    block_records=st.integers(1, 50),
)
def test_migrations_equal_the_plain_loop_and_keep_order(
    gaps, keys, tables, service, handover, block_records
):
    times = np.cumsum(gaps)
    topic = replace(
        TOPIC, partitions=3, service_s=service / 1e9, window_s=1e-6, handover_s=handover / 1e9
    )
    stream = GivenRecords((times + 0.5) / 1e9, keys[: times.size])
    kinds = [wandering(tables)]

    plain = plain_queues(times.tolist(), keys[: times.size], topic, WanderingKeys(tables))
    _, served = served_by(stream, topic, kinds, duration_s=1.0, block_records=block_records)

    partitions, delays = served["wandering"]
    assert delays.tolist() == plain.delay_ns
    assert partitions.tolist() == plain.partition
    starts = times + delays
    for key in set(keys[: times.size]):
        own = np.flatnonzero(np.array(keys[: times.size]) == key)
        assert (np.diff(starts[own]) >= service).all(), "each begins after the one before ended"
    for partition in range(3):
        own = np.sort(starts[partitions == partition])
        assert (np.diff(own) >= service).all(), "a partition serves one at a time"


def test_results_do_not_depend_on_the_size_of_blocks():
    kinds = list(KINDS.values())

    small = simulate_keys(STREAM, TOPIC, kinds, duration_s=4.0, block_records=777)
    large = simulate_keys(STREAM, TOPIC, kinds, duration_s=4.0)

    assert small.to_json() == large.to_json()


# old partition |--k--|--k--|--k--|        three records of k until 1.8 s, though k moves at 1 s
# new partition             |--o--|  |--k--|    k enters at 1.9 s, o does not wait for it
def test_a_migrated_key_waits_for_its_old_partition_and_nobody_waits_for_it():
    topic = replace(TOPIC, partitions=2, service_s=0.6, window_s=1.0, handover_s=0.1)
    k, o = 8, next(key for key in range(100) if homes_of([key])[0] != homes_of([8])[0])
    stream = GivenRecords([0.0, 0.1, 0.2, 1.0, 1.1], [k, k, k, k, o])
    old, new = (int(home) for home in homes_of([k, o]))

    _, served = served_by(stream, topic, [wandering([{k: new}])], duration_s=2.0)

    partitions, delays = served["wandering"]
    assert partitions.tolist() == [old, old, old, new, new]
    assert (delays / 1e9).round(6).tolist() == [0.0, 0.5, 1.0, 0.9, 0.0]


def homes_of(keys):
    from trimtab.model.murmur2 import homes

    return homes([b"%d" % key for key in keys], 2)


def test_a_key_that_is_still_migrating_is_busy():
    topic = replace(TOPIC, partitions=2, service_s=1.5, window_s=1.0)
    seen = []

    class Watching(WanderingKeys):
        def plan(self, window):
            seen.append(set(window.busy))
            return super().plan(window)

    kind = replace(KINDS["hash"], name="w", create=lambda _: Watching([{8: 1 - at}, {8: at}]))
    at = int(homes_of([8])[0])
    simulate_keys(GivenRecords([0.5, 1.5, 2.5, 3.5], [8] * 4), topic, [kind], duration_s=4.0)

    # Decided at 1 s, while the old partition is busy until 2 s.
    assert seen == [set(), {8}, set()]


def test_policies_see_the_counts_of_the_window_and_their_own_loads():
    seen = []

    class Watching:
        def plan(self, window):
            seen.append(window)
            return RoutingDecision(routing=window.routing)

    kind = replace(KINDS["hash"], create=lambda _: Watching())
    result = simulate_keys(STREAM, TOPIC, [kind], duration_s=3.0)
    times, keys = records_of(STREAM, 3.0)

    for number, window in enumerate(seen):
        own = keys[(times >= number * 10**9) & (times < (number + 1) * 10**9)]
        assert window.counts.all_keys.as_dict() == dict(
            zip(*(a.tolist() for a in np.unique(own, return_counts=True)), strict=True)
        )
        assert window.loads.sum() == window.counts.n == own.size
        assert tuple(window.loads) == result.runs[0].windows[number].loads
        assert window.hot.counts.min() >= 20
    assert len(seen) == 2, "the last window's plan would have no effect"


def test_windows_without_records_are_windows_too():
    result = simulate_keys(
        GivenRecords([0.5, 3.5], [1, 1]), TOPIC, list(KINDS.values()), duration_s=4.0
    )

    assert [window.records for window in result.arrivals] == [1, 0, 0, 1]
    assert {run.windows[1].imbalance for run in result.runs} == {1.0}


def test_nothing_arrives():
    result = simulate_keys(GivenRecords([], []), TOPIC, [KINDS["hash"]], duration_s=4.0)

    assert result.records == 0
    assert result.to_json()["policies"][0]["delays"]["p99"] is None


def test_the_sketch_is_a_real_lossy_counter():
    topic = replace(TOPIC, sketch=True)
    exact = simulate_keys(STREAM, TOPIC, [KINDS["trim"]], duration_s=3.0)
    result = simulate_keys(STREAM, topic, [KINDS["trim"]], duration_s=3.0)

    assert result.runs[0].windows == exact.runs[0].windows
    for window in result.arrivals:
        assert window.hot_keys < (window.sketch_entries or 0) < window.keys
    assert {window.sketch_entries for window in exact.arrivals} == {None}


def test_shards_have_an_imbalance_of_their_own():
    alone = simulate_keys(STREAM, TOPIC, [], duration_s=2.0)
    result = simulate_keys(STREAM, replace(TOPIC, shards=4), [], duration_s=2.0)
    as_many = simulate_keys(STREAM, TOPIC, [KINDS["hash"]], duration_s=2.0)

    assert {window.shard_imbalance for window in alone.arrivals} == {None}
    # Shards and partitions divide keys by the same hash.
    assert [window.shard_imbalance for window in result.arrivals] == [
        window.imbalance for window in as_many.runs[0].windows
    ]


def test_no_policy_that_keeps_keys_whole_and_cold_ones_at_home_is_below_the_bound():
    kinds = [kind for kind in KINDS.values() if kind.whole_state and kind.name != "dkg"]
    stream = replace(STREAM, distribution=ZipfMandelbrot(keys=2000, s=2.0), shift=0)

    found = simulate_keys(stream, TOPIC, kinds, duration_s=4.0)

    assert min(window.bound for window in found.arrivals) > 1.2, "one key is too large"
    for run in found.runs:
        for own, common in zip(run.windows, found.arrivals, strict=True):
            # Keys that are hot no longer may be away from home for one window.
            assert own.imbalance >= 0.97 * common.bound


def test_a_coverage_makes_as_many_keys_hot_as_it_needs():
    topic = replace(TOPIC, threshold=Coverage(0.3))
    result = simulate_keys(STREAM, topic, [KINDS["smalops"]], duration_s=2.0)

    for window in result.arrivals:
        assert window.hot_records >= 0.3 * window.records
        assert window.hot_records - window.threshold < 0.3 * window.records


@pytest.mark.parametrize(
    "wrong",
    [
        {"partitions": 1},
        {"partitions": 70_000},
        {"service_s": 0.0},
        {"window_s": 0.0},
        {"handover_s": -1.0},
        {"sla_s": -1.0},
        {"shards": 0},
        {"smooth": 0.0},
        {"smooth": 1.5},
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        replace(TOPIC, **wrong)


def test_every_policy_says_what_it_gives_up():
    for kind in KINDS.values():
        assert isinstance(kind, KeyPolicyKind)
        assert kind.what
        assert kind.memory
        assert (kind.gives_up == "nothing") == kind.whole_state
