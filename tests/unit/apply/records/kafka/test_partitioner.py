"""Our partitioners behind kafka-python's interface, through its own producer and buffer."""

from __future__ import annotations

import gc
import inspect
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest
from kafka import TopicPartition
from kafka.partitioner import DefaultPartitioner, Partitioner, StickyPartitioner

from tests.unit.apply.records.kafka.offline_producer import OfflineProducer, learn, metadata
from trimtab.apply.records.kafka.partitioner import (
    RoutedPartitioner,
    WaitingBatches,
    for_kafka_python,
)
from trimtab.errors import ConfigError
from trimtab.model.murmur2 import home
from trimtab.plan.records.leaders import LeaderSnapshot
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import PARTITIONERS, partitioner_of

VALUE = b"v" * 100
U = {"U": {0: 1, 1: 2, 2: 2}}


class Spy:
    """Chooses the first partition that has a leader, and keeps what it was shown."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, bytes | None, int]] = []
        self.seen: list[LeaderSnapshot] = []
        self.closings: list[tuple[str, int]] = []

    def partition(
        self, topic: str, key: bytes | None, size: int, snapshot: LeaderSnapshot, /
    ) -> int:
        self.asked.append((topic, key, size))
        self.seen.append(snapshot)
        return (snapshot.topic(topic).available or snapshot.topic(topic).all)[0]

    def closed(self, topic: str, partition: int, /) -> None:
        self.closings.append((topic, partition))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def ask(routed: RoutedPartitioner, live: Any, topic: str = "t") -> int:
    return routed.partition(topic, None, None, None, VALUE, live)


def even(partitions: int) -> dict[str, dict[int, int]]:
    return {"t": {p: p + 1 for p in range(partitions)}}


def sent(partitioner: Any, leaders: dict[str, dict[int, int]], *, threads: int) -> Counter[int]:
    """2,000 keyless records through kafka-python's own buffer."""
    (topic,) = leaders
    producer = OfflineProducer(partitioner, metadata(leaders), batch_size=1000)
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(send, producer, topic, 2000 // threads) for _ in range(threads)]:
            done.result()
    return producer.counts(topic)


def send(producer: OfflineProducer, topic: str, records: int) -> None:
    for _ in range(records):
        producer.send(topic, VALUE)


# ---------------------------------------------------------------- asked twice


@pytest.mark.parametrize(
    ("name", "partitions", "threads"),
    [
        *((name, count, 1) for name in ("default", "node") for count in (2, 3, 4)),
        *((name, count, 4) for name in ("default", "node") for count in (2, 3, 4)),
        *((name, 2, 1) for name in ("improved", "sqf", "weighted-node")),
    ],
)
def test_keyless_records_are_spread_evenly_though_the_producer_asks_twice(
    name: str, partitions: int, threads: int
) -> None:
    routed = RoutedPartitioner(partitioner_of(name))

    counts = sent(routed, even(partitions), threads=threads)

    assert counts.total() == 2000
    assert set(counts) == set(range(partitions))
    assert max(counts.values()) - min(counts.values()) <= 1


@pytest.mark.parametrize("name", ["node", "sqf"])
def test_brokers_of_an_uneven_topic_share_it_evenly(name: str) -> None:
    counts = sent(RoutedPartitioner(partitioner_of(name)), U, threads=1)

    assert abs(counts[0] - 1000) <= 1
    assert max(abs(counts[p] - 500) for p in (1, 2)) <= 1


def test_a_round_robin_that_steps_twice_would_be_noticed() -> None:
    class Naive(Partitioner):  # type: ignore[misc] # the library has no types
        def __init__(self) -> None:
            self._steps = count()

        def partition(self, topic: str, *_: Any) -> int:
            return next(self._steps) % 2

    assert sorted(sent(Naive(), even(2), threads=1).values()) == [0, 2000]


def test_the_second_answer_is_the_first_one_and_nobody_is_asked_for_it() -> None:
    spy, live = Spy(), metadata(even(2))
    routed = RoutedPartitioner(spy)

    first = ask(routed, live)
    routed.on_new_batch("t", live, 1)

    assert [ask(routed, live), ask(routed, live)] == [1, first]
    assert len(spy.asked) == 2


def test_another_topic_in_between_does_not_take_the_answer_over() -> None:
    spy, live = Spy(), metadata({**even(2), "other": {0: 1}})
    routed = RoutedPartitioner(spy)

    routed.on_new_batch("t", live, 1)

    assert ask(routed, live, "other") == 0
    assert ask(routed, live) == 1


def test_an_answer_whose_leader_is_gone_meanwhile_is_not_repeated() -> None:
    spy, live = Spy(), metadata(even(2))
    routed = RoutedPartitioner(spy)

    routed.on_new_batch("t", live, 1)
    learn(live, {"t": {0: 1, 1: -1}})

    assert ask(routed, live) == 0


def test_sticky_moves_on_when_a_batch_would_open() -> None:
    routed = RoutedPartitioner(partitioner_of("sticky", RoutingOptions(seed=1)))
    live = metadata(even(3))

    first = ask(routed, live)
    assert ask(routed, live) == first
    routed.on_new_batch("t", live, first)

    assert ask(routed, live) != first


@pytest.mark.parametrize("partitions", [2, 3])
@pytest.mark.parametrize("size", [100, 1000])
def test_sticky_starves_no_partition(size: int, partitions: int) -> None:
    routed = RoutedPartitioner(partitioner_of("sticky", RoutingOptions(seed=1)))
    producer = OfflineProducer(routed, metadata(even(partitions)))

    for _ in range(5000):
        producer.send("t", b"v" * size)

    counts = producer.counts("t")
    assert counts.total() == 5000
    assert all(counts[p] > 0.7 * 5000 / partitions for p in range(partitions))


def test_a_batch_wise_choice_fills_a_batch_before_it_moves_on() -> None:
    options = RoutingOptions(sticky_bytes=1000, seed=1)
    routed = RoutedPartitioner(partitioner_of("uniform-sticky", options))

    counts = sent(routed, even(4), threads=1)

    assert counts.total() == 2000
    assert all(n % 10 == 0 for n in counts.values())


# ---------------------------------------------------------------- records


@pytest.mark.parametrize("name", PARTITIONERS)
def test_keyed_records_go_where_the_java_client_puts_them(name: str) -> None:
    producer = OfflineProducer(RoutedPartitioner(partitioner_of(name)), metadata(even(5)))
    keys = [b"key-%d" % i for i in range(200)] + [b""]

    for key in keys:
        producer.send("t", VALUE, key=key)

    assert producer.counts("t") == Counter(home(key, 5) for key in keys)


def test_a_key_may_be_a_bytearray_and_counts_into_the_size() -> None:
    spy, live = Spy(), metadata(even(1))

    RoutedPartitioner(spy).partition("t", "k", bytearray(b"abc"), None, None, live)  # type: ignore[arg-type]

    assert spy.asked == [("t", b"abc", 3)]


def test_a_topic_that_the_producer_does_not_know_is_an_error() -> None:
    with pytest.raises(ValueError, match="nobody"):  # as kafka-python's own partitioners do
        ask(RoutedPartitioner(partitioner_of("node")), metadata(even(1)), "nobody")


# ---------------------------------------------------------------- what leads


def test_a_leader_that_moves_without_a_word_is_noticed_when_the_table_is_old() -> None:
    spy, clock, live = Spy(), Clock(), metadata(even(2))
    routed = RoutedPartitioner(spy, table_ttl_ms=100, clock=clock)
    ask(routed, live)

    assert live.update_partition_leader(TopicPartition("t", 0), 7, 2)  # no listener is told
    clock.now = 0.099
    ask(routed, live)
    clock.now = 0.1
    ask(routed, live)

    before, early, late = spy.seen
    assert early is before
    assert late.topic("t").leader == {0: 7, 1: 2}


def test_a_refresh_is_noticed_at_once() -> None:
    spy, live = Spy(), metadata(even(2))
    routed = RoutedPartitioner(spy, clock=Clock())
    ask(routed, live)

    learn(live, {"t": {0: -1, 1: 2, 2: 3}, "new": {0: 5}}, racks={3: "c"})

    assert ask(routed, live) == 1
    assert spy.seen[-1].topics == ("new", "t")
    assert spy.seen[-1].topic("t").available == (1, 2)
    assert spy.seen[-1].racks[3] == "c"


def test_the_snapshot_stays_the_same_object_while_nothing_changes() -> None:
    spy, clock, live = Spy(), Clock(), metadata({**even(2), "quiet": {0: 3}})
    routed = RoutedPartitioner(spy, clock=clock)

    for _ in range(5):
        ask(routed, live)
        learn(live, {**even(2), "quiet": {0: 3}})
        clock.now += 1

    assert len({id(snapshot) for snapshot in spy.seen}) == 1


def test_a_topic_made_anew_with_fewer_partitions_is_seen_as_it_is() -> None:
    spy, live = Spy(), metadata(even(4))
    routed = RoutedPartitioner(spy)
    ask(routed, live)

    learn(live, even(2))
    ask(routed, live)

    assert spy.seen[-1].topic("t").all == (0, 1)


def test_producers_of_one_cluster_share_what_they_know() -> None:
    spy = Spy()
    routed = RoutedPartitioner(spy)
    one, two = metadata({"A": {0: 1, 1: 2}}), metadata({"B": {0: 2, 1: 3}})

    for _ in range(3):
        ask(routed, one, "A")
        ask(routed, two, "B")

    assert spy.seen[-1].leading == {1, 2, 3}
    assert len({id(snapshot) for snapshot in spy.seen[1:]}) == 1


def test_of_two_views_of_a_topic_the_later_change_counts() -> None:
    spy = Spy()
    routed = RoutedPartitioner(spy)
    stale, fresh = metadata(even(2)), metadata(even(2))
    ask(routed, stale)
    ask(routed, fresh)

    learn(fresh, {"t": {0: -1, 1: 2}})

    assert [ask(routed, fresh), ask(routed, stale)] == [1, 1]


@pytest.mark.parametrize("names", [("x", "y"), (None, None)])
def test_clusters_are_not_mixed(names: tuple[str | None, str | None]) -> None:
    spy = Spy()
    routed = RoutedPartitioner(spy)
    one, two = (metadata({"t": {0: b}}, cluster=name) for b, name in enumerate(names, 1))

    ask(routed, one)
    ask(routed, two)
    ask(routed, one)

    assert [snapshot.leading for snapshot in spy.seen] == [{1}, {2}, {1}]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_two_clusters_with_the_same_broker_ids_do_not_disturb_each_other(name: str) -> None:
    options = RoutingOptions(start=0, seed=1)
    shared = RoutedPartitioner(partitioner_of(name, options))
    alone = RoutedPartitioner(partitioner_of(name, options))
    here, there = (metadata(even(2), cluster=c) for c in "xy")
    for _ in range(7):
        shared.partition("t", None, None, None, VALUE * 9, there)

    chosen = [(ask(shared, here), ask(shared, there))[0] for _ in range(40)]

    assert chosen == [ask(alone, here) for _ in range(40)]


@pytest.mark.parametrize("name", PARTITIONERS)
@pytest.mark.parametrize("key", [b"", b"k", bytearray(b"customer"), memoryview(b"7" * 33)])
def test_keyed_records_go_where_kafka_python_itself_puts_them(
    name: str, key: bytes | bytearray | memoryview
) -> None:
    live = metadata(even(7))

    chosen = RoutedPartitioner(partitioner_of(name)).partition("t", key, key, b"", b"", live)  # type: ignore[arg-type]

    assert chosen == DefaultPartitioner().partition("t", key, key, b"", b"", live)


@pytest.mark.parametrize(
    ("method", "theirs"),
    [("partition", DefaultPartitioner), ("on_new_batch", StickyPartitioner)],
)
def test_a_method_has_the_parameters_of_kafka_pythons_own(method: str, theirs: type) -> None:
    ours = inspect.signature(getattr(RoutedPartitioner, method)).parameters

    assert list(ours) == list(inspect.signature(getattr(theirs, method)).parameters)
    assert isinstance(RoutedPartitioner(Spy()), Partitioner)


@pytest.mark.parametrize(
    "sent",
    [
        {"value": VALUE},
        {"value": VALUE, "key": b"k"},
        {"value": VALUE, "key": b""},
        {"value": None, "key": b"k"},
        {"value": VALUE, "partition": 2},
        {"value": VALUE, "key": b"k", "partition": 0},
        {"value": VALUE, "partition": -1},
        {"value": VALUE, "partition": 99},
        {"value": VALUE, "key": bytearray(b"k")},
        {"value": memoryview(VALUE), "key": memoryview(b"k")},
        {"value": VALUE, "key": "text"},
        {"value": None},
        {"value": VALUE, "headers": [("h", b"x")], "timestamp_ms": 5},
    ],
)
def test_a_record_is_sent_as_with_kafka_pythons_own_partitioner(sent: dict[str, Any]) -> None:
    def outcome(partitioner: Any) -> object:
        producer = OfflineProducer(partitioner, metadata({"t": {0: 1, 1: 2, 2: -1, 3: 3}}))
        try:
            producer.send("t", **sent)
        except Exception as error:
            return type(error), str(error)
        counts = producer.counts("t")
        free = sent.get("key") is None and "partition" not in sent
        return counts.total() if free else counts

    assert outcome(RoutedPartitioner(partitioner_of("node"))) == outcome(DefaultPartitioner())


def test_a_producer_that_is_gone_is_forgotten() -> None:
    routed = RoutedPartitioner(Spy())
    live = metadata(even(1))
    ask(routed, live)
    gone = weakref.ref(live)

    del live
    gc.collect()

    assert gone() is None
    assert not routed._views
    assert not routed._clusters


# ---------------------------------------------------------------- version 2


def test_version_2_gets_a_plain_function_that_goes_round() -> None:
    legacy: Any = for_kafka_python("default", RoutingOptions(start=0), version="2.0.2")

    assert [legacy(None, [0, 1, 2], [0, 2]) for _ in range(4)] == [0, 2, 0, 2]
    assert [legacy(None, [0, 1, 2], []) for _ in range(3)] == [1, 2, 0]
    assert legacy(b"foobar", [0, 1, 2], [0]) == home(b"foobar", 3)


@pytest.mark.parametrize("name", ["node", "sqf", "weighted-node", "sticky", "adaptive"])
def test_version_2_is_refused_what_needs_leaders(name: str) -> None:
    with pytest.raises(ConfigError, match="does not give leaders") as refused:
        for_kafka_python(name, version="2.3.0")

    assert "kafka-python 3" in str(refused.value.hint)


def test_version_3_gets_the_partitioner_itself() -> None:
    assert isinstance(for_kafka_python("node", version="3.1.0"), RoutedPartitioner)
    assert isinstance(for_kafka_python("node"), Partitioner)


# ---------------------------------------------------------------- queues


def test_batches_that_wait_are_counted_over_all_watched_producers() -> None:
    waiting = WaitingBatches()
    producers = [OfflineProducer(RoutedPartitioner(Spy()), metadata(even(2))) for _ in range(2)]
    for producer in producers:
        waiting.watch(producer)
        for _ in range(3):
            producer.send("t", b"v" * 20_000)

    assert waiting("t") == {0: 6}
    assert waiting("other") == {}


def test_a_producer_whose_buffer_cannot_be_reached_has_no_queues() -> None:
    waiting = WaitingBatches()

    waiting.watch(object())

    assert waiting("t") == {}


def test_adaptive_leaves_a_long_queue_alone() -> None:
    waiting = WaitingBatches()
    options = RoutingOptions(queues=waiting, sticky_bytes=1, seed=3)
    producer = OfflineProducer(
        RoutedPartitioner(partitioner_of("adaptive", options)), metadata(even(2)), batch_size=100
    )
    waiting.watch(producer)
    for _ in range(500):
        producer.send("t", VALUE, partition=0)

    send(producer, "t", 200)

    assert producer.counts("t")[1] > 150
