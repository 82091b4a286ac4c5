"""Kafka's own partitioners since 2.4, as far as a partitioner can tell."""

from __future__ import annotations

from collections import Counter
from itertools import groupby, pairwise

import pytest

from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.peers import Sticky, running_sums
from trimtab.plan.records.registry import PEERS, partitioner_of

SEEN = LeaderSnapshot({"t": {0: 1, 1: 2, 2: 3}}, {1: "a", 2: "a", 3: "b"})
UNIFORM = ["uniform-sticky", "adaptive", "rack-aware"]


def choices(partitioner, sizes, snapshot=SEEN):
    return [partitioner.partition("t", None, size, snapshot) for size in sizes]


def runs(chosen):
    return [(p, len(list(run))) for p, run in groupby(chosen)]


def per_record(name, records=3000, **options):
    """Every record is a batch of its own."""
    partitioner = partitioner_of(name, RoutingOptions(seed=1, sticky_bytes=1, **options))
    return Counter(choices(partitioner, [1] * records))


def test_sticky_fills_a_batch_then_takes_another_partition():
    chosen = choices(partitioner_of("sticky", RoutingOptions(seed=1, sticky_bytes=250)), [100] * 60)

    assert [length for _, length in runs(chosen)] == [2] * 30
    assert len(set(chosen)) == 3


def test_sticky_gives_a_record_that_is_too_big_a_batch_of_its_own():
    chosen = choices(partitioner_of("sticky", RoutingOptions(seed=1, sticky_bytes=50)), [100] * 60)

    assert all(a != b for a, b in pairwise(chosen))


def test_sticky_goes_on_when_the_time_of_a_batch_is_over():
    now = 0.0
    options = RoutingOptions(seed=1, linger_s=5.0, clock=lambda: now)
    sticky = partitioner_of("sticky", options)
    (first,) = choices(sticky, [1])
    now = 4.9
    assert choices(sticky, [1]) == [first]
    now = 5.0
    (second,) = choices(sticky, [1])
    now = 9.9

    assert first != second
    assert choices(sticky, [1]) == [second]


def test_sticky_goes_on_when_the_client_closes_its_batch_and_only_then():
    sticky = partitioner_of("sticky", RoutingOptions(seed=1))
    sticky.closed("t", 0)  # of nobody's batch
    (first,) = choices(sticky, [1])
    sticky.closed("t", (first + 1) % 3)
    assert choices(sticky, [1]) == [first]
    sticky.closed("t", first)
    (second,) = choices(sticky, [1])
    sticky.closed("t", first)  # news of yesterday

    assert second != first
    assert choices(sticky, [1]) == [second]


def test_sticky_that_is_told_of_batches_does_not_guess_when_they_are_done():
    now = 0.0
    options = RoutingOptions(seed=1, sticky_bytes=50, linger_s=5.0, clock=lambda: now)
    sticky = Sticky(options)
    sticky.batches_are_reported()
    (first,) = choices(sticky, [100])
    now = 100.0

    assert choices(sticky, [100] * 5) == [first] * 5
    sticky.closed("t", first)
    assert choices(sticky, [100]) != [first]


def test_sticky_stays_where_no_other_has_a_leader():
    alone = LeaderSnapshot({"t": {0: -1, 1: 2, 2: -1}})
    sticky = partitioner_of("sticky", RoutingOptions(seed=1, sticky_bytes=1))

    assert set(choices(sticky, [1] * 20, alone)) == {1}


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_ones_give_at_least_a_batch_and_end_with_the_record_that_fills_it(name):
    partitioner = partitioner_of(name, RoutingOptions(seed=1, sticky_bytes=250))

    lengths = [length for _, length in runs(choices(partitioner, [100] * 600))]

    assert all(length % 3 == 0 for length in lengths)  # the same one may be drawn again
    assert min(lengths) == 3


@pytest.mark.parametrize("name", UNIFORM)
def test_a_closed_batch_does_not_move_the_uniform_ones(name):
    partitioner = partitioner_of(name, RoutingOptions(seed=1))
    (first,) = choices(partitioner, [1])
    for partition in range(3):
        partitioner.closed("t", partition)

    assert choices(partitioner, [1] * 20) == [first] * 20


@pytest.mark.parametrize("name", UNIFORM)
def test_equal_queues_are_drawn_alike(name):
    drawn = per_record(name, queues=lambda _: {0: 4, 1: 4, 2: 4})

    assert all(count == pytest.approx(1000, abs=100) for count in drawn.values())


def test_weights_are_the_longest_queue_plus_one_less_the_own():
    """Queues 0, 3, 1 give weights 4, 1, 3."""
    assert running_sums([0, 3, 1]) == [4, 5, 8]

    drawn = per_record("adaptive", 8000, queues=lambda topic: {"t": {1: 3, 2: 1}}[topic])

    assert [drawn[p] / 1000 for p in range(3)] == pytest.approx([4, 1, 3], abs=0.15)


@pytest.mark.parametrize("name", ["adaptive", "rack-aware"])
def test_a_stuck_broker_is_left_out_unless_all_are(name):
    assert set(per_record(name, stuck=lambda: {2})) == {0, 2}
    assert set(per_record(name, stuck=lambda: {1, 2, 3})) == {0, 1, 2}


def test_a_client_keeps_to_its_own_rack_where_anything_is_led_there():
    assert set(per_record("rack-aware", rack="a")) == {0, 1}
    assert set(per_record("rack-aware", rack="b", stuck=lambda: {3})) == {0, 1}
    assert set(per_record("rack-aware", rack="elsewhere")) == {0, 1, 2}
    assert set(per_record("rack-aware")) == {0, 1, 2}


def test_queues_count_inside_the_rack():
    drawn = per_record("rack-aware", rack="a", queues=lambda _: {0: 2, 2: 9})

    assert drawn[1] / drawn[0] == pytest.approx(3, rel=0.2)


@pytest.mark.parametrize("name", PEERS)
def test_where_nobody_leads_anything_all_are_drawn_from(name):
    offline = LeaderSnapshot({"t": {0: -1, 1: -1, 2: -1}})
    partitioner = partitioner_of(name, RoutingOptions(seed=1, sticky_bytes=1))

    assert set(choices(partitioner, [1] * 100, offline)) == {0, 1, 2}
