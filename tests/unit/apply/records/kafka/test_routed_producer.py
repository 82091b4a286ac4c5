"""A confluent-kafka producer whose partitions we choose: against a fake, and librdkafka's mock.

How it compares with the client itself is in test_producer_api.py.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException

from tests.unit.apply.records.kafka.fake_leaders import HOURS, FakeSource
from trimtab.apply.records.kafka import producer_arguments
from trimtab.apply.records.kafka.leader_watch import LeaderWatch
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.errors import BrokerUnavailable, TrimtabError
from trimtab.model.murmur2 import home
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import PARTITIONERS, partitioner_of

U = {"U": {0: 1, 1: 2, 2: 2}}
FROM_ZERO = RoutingOptions(start=0)


class Message(NamedTuple):
    where: str
    number: int
    said: bytes | None
    whose: bytes | None
    told: Any
    timestamp: int
    headers: Any

    def topic(self) -> str:
        return self.where

    def partition(self) -> int:
        return self.number

    def key(self) -> bytes | None:
        return self.whose

    def __len__(self) -> int:
        return len(self.said or b"")


class FakeProducer:
    """Takes records; `refusals` are raised first, one for each record that comes."""

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.delivered = 0
        self.refusals: list[Exception] = []
        self.polls = 0
        self.looks: list[str] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int,
        callback: Any,
        on_delivery: Any,
        timestamp: int,
        headers: Any,
    ) -> None:
        assert on_delivery is None
        if self.refusals:
            raise self.refusals.pop(0)
        self.taken.append(Message(topic, partition, value, key, callback, timestamp, headers))

    def produce_batch(
        self, topic: str, messages: list[dict[str, Any]], partition: int, callback: Any
    ) -> int:
        taken = 0
        for message in messages:
            if self.refusals and partition >= 0:
                message["_error"] = self.refusals.pop(0).args[0]
            else:
                taken += 1
                rest = (message.get("value"), message.get("key"), callback, 0, None)
                self.taken.append(Message(topic, partition, *rest))
        return taken

    def poll(self, timeout: float) -> int:
        self.polls += 1
        return 0

    def flush(self, timeout: float = -1) -> int:
        self.deliver()
        return 0

    def list_topics(self, topic: str, timeout: float) -> None:
        self.looks.append(topic)

    def deliver(self, error: int | None = None) -> None:
        while self.delivered < len(self.taken):
            message = self.taken[self.delivered]
            self.delivered += 1
            if message.told is not None:
                message.told(None if error is None else KafkaError(error), message)

    def counts(self, topic: str) -> Counter[int]:
        return Counter(m.number for m in self.taken if m.where == topic)


class Stage(NamedTuple):
    client: FakeProducer
    source: FakeSource
    routed: RoutedProducer


@contextmanager
def stage(
    name: str = "node",
    topics: dict[str, dict[int, int]] | None = None,
    *,
    options: RoutingOptions = FROM_ZERO,
    outstanding: OutstandingBytes | None = None,
    keys_by_partitioner: bool = False,
    wait_s: float = 60.0,
) -> Iterator[Stage]:
    client, source = FakeProducer(), FakeSource({**U} if topics is None else topics)
    partitioner = partitioner_of(name, options)
    with (
        LeaderWatch(source, refresh_s=HOURS, first_use_s=0.0) as watch,
        RoutedProducer(
            client,  # type: ignore[arg-type]  # what is asked of it, it has
            partitioner,
            watch=watch,
            outstanding=outstanding,
            on_delivery=lambda *_: None,
            keys_by_partitioner=keys_by_partitioner,
            wait_s=wait_s,
        ) as routed,
    ):
        yield Stage(client, source, routed)


# ---------------------------------------------------------------- choices


def test_node_loads_brokers_alike() -> None:
    with stage() as (client, source, routed):
        for _ in range(400):
            routed.produce("U", b"v")

    assert client.counts("U") == {0: 200, 1: 100, 2: 100}
    assert source.questions == ["U"]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_asked_for_keys_it_puts_them_where_the_java_client_does(name: str) -> None:
    with stage(name, keys_by_partitioner=True) as (client, _, routed):
        for i in range(200):
            routed.produce("U", b"v", f"k{i}" if i % 2 else b"k%d" % i)

    assert [m.number for m in client.taken] == [home(b"k%d" % i, 3) for i in range(200)]


@pytest.mark.parametrize("name", PARTITIONERS)
def test_keyed_records_are_left_to_the_client(name: str) -> None:
    with stage(name) as (client, source, routed):
        for key in (b"k", "k", b"", ""):
            routed.produce("U", b"v", key)

    assert [(m.number, m.whose) for m in client.taken] == [
        (-1, key) for key in (b"k", "k", b"", "")
    ]
    assert not source.questions


def test_a_record_is_handed_over_as_it_is() -> None:
    with stage() as (client, _, routed):
        routed.produce("U", "värde", headers=[("h", b"x")], timestamp=17)
        routed.produce("U", None, b"", partition=2)

    first, second = client.taken
    assert (first.said, first.whose) == ("värde".encode(), None)
    assert (first.headers, first.timestamp) == ([("h", b"x")], 17)
    assert (second.said, second.whose, second.number) == (None, b"", 2)


def test_a_partition_without_leader_gets_nothing_once_that_is_known() -> None:
    with stage("default") as (client, source, routed):
        routed.produce("U", b"v")
        source.topics["U"] = {0: -1, 1: 2, 2: 2}
        routed.watch.refresh()
        for _ in range(10):
            routed.produce("U", b"v")

    assert {m.number for m in client.taken[1:]} == {1, 2}


def test_threads_together_are_as_even_as_one() -> None:
    with stage() as (client, _, routed), ThreadPoolExecutor(4) as pool:

        def produce(_: int) -> None:
            for _ in range(500):
                routed.produce("U", b"v")

        list(pool.map(produce, range(4)))

    assert client.counts("U") == {0: 1000, 1: 500, 2: 500}


def test_producers_may_share_a_partitioner_and_a_watch() -> None:
    source = FakeSource({"A": {0: 1, 1: 2, 2: 2}, "B": {0: 2, 1: 3}})
    clients = FakeProducer(), FakeProducer()
    shared = partitioner_of("sqf", FROM_ZERO)
    with LeaderWatch(source, refresh_s=HOURS) as watch:
        one, two = (RoutedProducer(c, shared, watch=watch) for c in clients)  # type: ignore[arg-type]
        for _ in range(600):
            one.produce("A", b"v")
            two.produce("B", b"v")
        one.close()

        brokers = Counter({1: clients[0].counts("A")[0], 3: clients[1].counts("B")[1]})
        assert brokers == {1: 400, 3: 400}
        watch.refresh()  # closing one did not close what both use


# ---------------------------------------------------------------- faults


@pytest.mark.parametrize("fault", [None, BrokerUnavailable("nobody")])
def test_while_the_leaders_are_not_known_the_client_chooses(fault: TrimtabError | None) -> None:
    with stage(topics={}) as (client, source, routed):
        source.fault = fault
        for _ in range(3):
            routed.produce("U", b"v")
        asked = len(source.questions)
        source.fault = None
        source.topics |= U
        routed.watch.refresh()
        routed.produce("U", b"v")

    assert [m.number for m in client.taken] == [-1, -1, -1, 0]
    assert asked == 1


def test_other_delivery_errors_are_the_callers_business() -> None:
    told: list[Any] = []
    with stage() as (client, source, routed):
        routed.produce("U", b"v", on_delivery=lambda error, _: told.append(error))
        client.deliver(KafkaError.MSG_SIZE_TOO_LARGE)

    assert [error.code() for error in told] == [KafkaError.MSG_SIZE_TOO_LARGE]
    assert source.questions == ["U"]


def test_a_partition_that_is_gone_is_chosen_anew() -> None:
    with stage("default") as (client, source, routed):
        for _ in range(2):
            routed.produce("U", b"v")
        source.topics["U"] = {0: 1}
        client.refusals = [KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))]

        routed.produce("U", b"v")

    assert [m.number for m in client.taken] == [0, 1, 0]
    assert client.looks == ["U"]


def test_a_topic_that_is_gone_for_good_is_the_clients_business() -> None:
    with stage() as (client, source, routed):
        routed.produce("U", b"v")
        del source.topics["U"]
        gone = KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
        client.refusals = [gone]
        routed.produce("U", b"v")
        client.refusals = [gone]
        with pytest.raises(KafkaException, match="UNKNOWN_TOPIC"):
            routed.produce("U", b"v")

    assert [m.number for m in client.taken] == [0, -1]


@pytest.mark.parametrize("code", [KafkaError._UNKNOWN_PARTITION, KafkaError.MSG_SIZE_TOO_LARGE])
def test_a_partition_of_the_callers_own_is_not_replaced(code: int) -> None:
    with stage() as (client, _, routed):
        client.refusals = [KafkaException(KafkaError(code))]

        with pytest.raises(KafkaException):
            routed.produce("U", b"v", partition=9)


def refused(code: int) -> KafkaException:
    return KafkaException(KafkaError(code))


def test_records_of_a_batch_whose_partition_is_gone_are_chosen_anew() -> None:
    with stage("default") as (client, source, routed):
        routed.produce("U", b"v")
        source.topics["U"] = {0: 1}
        client.refusals = [refused(KafkaError._UNKNOWN_PARTITION) for _ in range(2)]
        records = [{"value": b"%d" % n} for n in range(6)]

        assert routed.produce_batch("U", records) == 6

        assert client.looks == ["U"]
        assert sorted(m.said or b"" for m in client.taken[1:]) == [b"%d" % n for n in range(6)]
        assert all("_error" not in record for record in records)


def test_choices_for_records_of_a_batch_that_found_no_room_are_kept() -> None:
    with stage("default") as (client, _, routed):
        client.refusals = [refused(KafkaError._QUEUE_FULL)]
        records = [{"value": b"%d" % n} for n in range(6)]

        assert routed.produce_batch("U", records) == 5
        assert [n for n, record in enumerate(records) if "_error" in record] == [0]
        routed.produce("U", b"0")

        assert client.taken[-1].number == 0
        assert client.counts("U") == {0: 2, 1: 2, 2: 2}


def test_errors_of_the_client_are_not_changed() -> None:
    with stage() as (client, _, routed):
        client.refusals = [error := KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))]

        with pytest.raises(KafkaException) as caught:
            routed.produce("U", b"v")

    assert caught.value is error


# ---------------------------------------------------------------- a full buffer


def test_a_full_buffer_is_waited_for_with_the_choice_kept() -> None:
    with stage("default") as (client, _, routed):
        client.refusals = [BufferError(), BufferError()]
        for _ in range(3):
            routed.produce("U", b"v")

    assert [m.number for m in client.taken] == [0, 1, 2]
    assert client.polls == 2


def test_a_buffer_that_stays_full_is_an_error() -> None:
    with stage(wait_s=1e-9) as (client, _, routed):
        client.refusals = [BufferError()] * 1000

        with pytest.raises(BufferError):
            routed.produce("U", b"v")


def test_whoever_does_not_wait_tries_again_with_the_same_choice() -> None:
    with stage("default", wait_s=0) as (client, _, routed):
        client.refusals = [BufferError()] * 3
        for _ in range(3):
            with pytest.raises(BufferError):
                routed.produce("U", b"v")
        for _ in range(3):
            routed.produce("U", b"v")

    assert [m.number for m in client.taken] == [0, 1, 2]


def test_a_choice_that_lost_its_leader_meanwhile_is_not_kept() -> None:
    with stage("default", wait_s=0) as (client, source, routed):
        client.refusals = [BufferError()]
        with pytest.raises(BufferError):
            routed.produce("U", b"v")
        source.topics["U"] = {0: -1, 1: 2, 2: 2}
        routed.watch.refresh()

        routed.produce("U", b"v")

    assert client.taken[0].number in {1, 2}


def test_a_topic_that_was_forgotten_meanwhile_is_met_again_and_nothing_is_kept() -> None:
    with stage("default", wait_s=0) as (client, source, routed):
        client.refusals = [BufferError()]
        with pytest.raises(BufferError):
            routed.produce("U", b"v")
        del source.topics["U"]
        routed.watch.refresh()
        source.topics |= U

        routed.produce("U", b"v")

    assert client.counts("U").total() == 1


def test_choices_of_two_threads_that_were_refused_together_are_both_kept() -> None:
    with stage("default", wait_s=0) as (client, _, routed):
        both = threading.Barrier(2)

        def refuse(*_: Any) -> None:
            both.wait(20)
            raise BufferError

        def produce() -> None:
            with pytest.raises(BufferError):
                routed.produce("U", b"v")

        routed.watch.ensure_known("U")
        routed._produce = refuse
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(produce) for _ in range(2)]:
                done.result()
        routed._produce = client.produce
        for _ in range(3):
            routed.produce("U", b"v")

    assert client.counts("U") == {0: 1, 1: 1, 2: 1}


# ---------------------------------------------------------------- queues


def test_what_is_under_way_is_known() -> None:
    under_way = OutstandingBytes(batch_bytes=10)
    with stage("default", outstanding=under_way) as (client, _, routed):
        client.refusals = [BufferError(), KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))]
        for _ in range(3):
            routed.produce("U", b"v" * 15, None)
        routed.produce("U", b"v", b"key", partition=2)
        assert under_way.queues("U") == Counter(
            {p: -(-b // 10) for p, b in bytes_by_partition(client).items()}
        )

        client.deliver()

        assert set(under_way.queues("U").values()) == {0}


def test_the_caller_is_told_beside_the_count() -> None:
    told: list[Any] = []
    under_way = OutstandingBytes(batch_bytes=10)
    with stage("default", outstanding=under_way) as (client, _, routed):
        for key in (None, b"k"):
            routed.produce("U", b"v", key, on_delivery=lambda *args: told.append(args))
        client.deliver(KafkaError.NOT_LEADER_FOR_PARTITION)

    assert [message for _, message in told] == client.taken
    assert set(under_way.queues("U").values()) == {0}


@pytest.mark.parametrize("error", [KafkaError._MSG_TIMED_OUT, None])
def test_only_an_acknowledgement_is_a_sign_of_life(error: int | None) -> None:
    now = 0.0
    under_way = OutstandingBytes(stuck_after_s=2.0, clock=lambda: now)
    with stage("default", {"U": {0: 1}}, outstanding=under_way, wait_s=0) as (client, _, routed):
        routed.produce("U", b"v")
        routed.produce("U", b"v")
        now = 2.5
        client.refusals = [BufferError()]
        with pytest.raises(BufferError):
            routed.produce("U", b"v")
        assert under_way.stuck() == {1}

        first = client.taken[0]
        first.told(None if error is None else KafkaError(error), first)

        assert under_way.stuck() == (set() if error is None else {1})
        client.delivered = 1


def bytes_by_partition(client: FakeProducer) -> Counter[int]:
    found: Counter[int] = Counter()
    for m in client.taken:
        found[m.number] += len(m.said or b"") + len(m.whose or b"")
    return found


# ---------------------------------------------------------------- librdkafka's own mock cluster


MOCK = {"bootstrap.servers": "x", "test.mock.num.brokers": 3, "linger.ms": 1, "log_level": 0}


@pytest.mark.parametrize("name", ["default", "node", "sqf", "adaptive", "sticky"])
def test_librdkafka_takes_what_was_chosen(name: str) -> None:
    landed: Counter[int] = Counter()
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, message: Any) -> None:
        if error is not None:
            failures.append(error)
        landed[message.partition()] += 1

    with RoutedProducer(MOCK, name) as routed:
        for _ in range(1200):
            routed.produce("mock", b"v" * 50, on_delivery=on_delivery)
            routed.poll(0)
        routed.flush(30)
        table = routed.watch.snapshot.topic("mock")

    assert not failures
    assert landed.total() == 1200
    assert set(landed) <= set(table.all)
    brokers = Counter({b: sum(landed[p] for p in led) for b, led in table.led.items()})
    if name == "default":
        assert max(landed.values()) - min(landed.values()) <= 1
    if name in {"node", "sqf"}:
        assert max(brokers.values()) - min(brokers.values()) <= 1


def test_nothing_is_left_under_way_after_a_flush() -> None:
    under_way = OutstandingBytes()
    options = RoutingOptions(queues=under_way.queues, stuck=under_way.stuck)
    with RoutedProducer(MOCK, partitioner_of("adaptive", options), outstanding=under_way) as routed:
        for i in range(300):
            routed.produce("mock", b"v" * i, b"k" if i % 3 else None)
        assert sum(under_way.queues("mock").values()) > 0
        routed.flush(30)

    assert set(under_way.queues("mock").values()) == {0}


def test_a_client_that_cannot_be_closed_delivers_what_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Older(FakeProducer):
        """As confluent-kafka before 2.13."""

        def __init__(self, _config: Any) -> None:
            super().__init__()

    monkeypatch.setattr(producer_arguments, "Producer", Older)
    told: list[object] = []
    watch = LeaderWatch(FakeSource({**U}), refresh_s=HOURS)
    with watch, RoutedProducer({}, "node", watch=watch) as routed:
        routed.produce("U", b"v", on_delivery=lambda error, _: told.append(error))

    assert told == [None]


def test_a_lost_connection_makes_it_look_again() -> None:
    looked, told = threading.Event(), threading.Event()
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    with RoutedProducer({**nowhere, "error_cb": lambda _: told.set()}, "node") as routed:
        routed.watch.look_again = looked.set  # type: ignore[method-assign]
        assert _polled_until(routed, looked)
        assert told.is_set()


def _polled_until(routed: RoutedProducer, event: threading.Event) -> bool:
    for _ in range(200):
        routed.poll(0.1)
        if event.is_set():
            return True
    return False
