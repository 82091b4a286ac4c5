"""Ours beside `confluent_kafka.Producer`, call by call, on librdkafka's own mock cluster."""

from __future__ import annotations

import gc
import inspect
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaException,
    Producer,
    SerializingProducer,
)
from structlog.testing import capture_logs

from tests.unit.apply.records.kafka.fake_leaders import HOURS, FakeSource
from tests.unit.apply.records.kafka.producer_cases import (
    BATCH,
    CLOSING,
    METHODS,
    PRODUCE,
    REFUSED,
    Told,
    outcome,
    stated_signatures,
    telling,
    transactions,
)
from trimtab.apply.records.kafka.leader_watch import LeaderWatch
from trimtab.apply.records.kafka.producer_settings import KEYLESS, connection_settings
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.apply.records.outstanding import OutstandingBytes
from trimtab.errors import ConfigError
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.plan.records.registry import partitioner_of

MOCK = {"bootstrap.servers": "x", "test.mock.num.brokers": 3, "linger.ms": 1, "log_level": 0}
SIGNATURES = stated_signatures()


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Producer, RoutedProducer]]:
    """One bare client and one of ours, each with a cluster of its own."""
    with Producer(MOCK) as bare, RoutedProducer(MOCK, "node") as ours:
        yield bare, ours


# ---------------------------------------------------------------- signatures


@pytest.mark.parametrize("name", sorted(SIGNATURES))
def test_a_method_has_the_parameters_that_the_client_states(name: str) -> None:
    ours = list(inspect.signature(getattr(RoutedProducer, name)).parameters.values())[1:]

    found = [(p.name, ... if p.default is inspect.Parameter.empty else p.default) for p in ours]

    assert found == SIGNATURES[name]
    assert {p.kind for p in ours} <= {inspect.Parameter.POSITIONAL_OR_KEYWORD}


def test_no_method_of_the_client_is_left_out() -> None:
    theirs = {name for name in dir(Producer) if not name.startswith("_")}

    assert theirs <= set(dir(RoutedProducer))
    assert theirs <= SIGNATURES.keys()


# ---------------------------------------------------------------- behaviour


@pytest.mark.parametrize("name", PRODUCE)
def test_produce_does_what_the_client_does(name: str, pair: Any) -> None:
    bare, ours = (outcome(PRODUCE[name], producer, "mock") for producer in pair)

    assert ours == bare


@pytest.mark.parametrize("name", BATCH)
def test_produce_batch_does_what_the_client_does(name: str, pair: Any) -> None:
    bare, ours = (outcome(BATCH[name], producer, "mock") for producer in pair)

    assert ours == bare


@pytest.mark.parametrize("name", REFUSED)
def test_of_a_batch_that_is_refused_nothing_is_sent(name: str, pair: Any) -> None:
    for producer in pair:
        told: Told = []
        records = [{"value": b"%d" % i} for i in range(8)] + [dict(REFUSED[name])]

        with pytest.raises((TypeError, ValueError, NotImplementedError)):
            producer.produce_batch("mock", records, callback=telling(told, "batch"))
        producer.flush(10)

        assert told == []


@pytest.mark.parametrize("name", METHODS)
def test_any_other_method_does_what_the_client_does(name: str, pair: Any) -> None:
    bare, ours = (outcome(METHODS[name], producer, "mock") for producer in pair)

    assert ours == bare


@pytest.mark.parametrize("name", CLOSING)
def test_closing_does_what_the_client_does(name: str) -> None:
    bare, ours = (
        outcome(CLOSING[name], producer, "mock")
        for producer in (Producer(MOCK), RoutedProducer(MOCK, "node"))
    )

    assert ours == bare


def test_transactions_do_what_the_client_does() -> None:
    found = []
    for make in (Producer, lambda config: RoutedProducer(config, "node")):
        with make({**MOCK, "transactional.id": "t"}) as producer:
            servers = ",".join(str(b) for b in producer.list_topics(timeout=10).brokers.values())
            addresses = ",".join(part.split("/")[0] for part in servers.split(","))
            consumer = Consumer({"bootstrap.servers": addresses, "group.id": "g", "log_level": 0})
            found.append(outcome(transactions(consumer), producer, "mock"))
            consumer.close()

    bare, ours = found
    assert ours == bare


def test_a_full_buffer_is_a_buffer_error_and_the_choice_waits_for_the_next_record() -> None:
    found = []
    for make in (Producer, lambda config: RoutedProducer(config, "default")):
        told: Told = []
        with make({**MOCK, "queue.buffering.max.messages": 3}) as producer:
            for _ in range(3):
                producer.produce("mock", b"v", on_delivery=telling(told, "t"))
            with pytest.raises(BufferError) as full:
                producer.produce("mock", b"v", on_delivery=telling(told, "t"))
            refused = [{"value": b"%d" % i} for i in range(2)]
            answer = producer.produce_batch("mock", refused), [sorted(m) for m in refused]
            producer.flush(10)
            found.append((len(told), str(full.value), answer))

    bare, ours = found
    assert ours == bare


def test_a_batch_is_routed_and_a_partition_of_its_own_is_kept() -> None:
    told: Told = []
    with RoutedProducer(MOCK, "default", RoutingOptions(start=0)) as ours:
        records: list[dict[str, Any]] = [{"value": b"v"} for _ in range(8)]
        records.append({"value": b"own", "partition": 2})
        ours.produce_batch("mock", records, on_delivery=telling(told, "t", 0))
        ours.flush(10)

    partitions = sorted(where for _, _, _, value, where in told if value == b"v")
    assert partitions == [0, 0, 1, 1, 2, 2, 3, 3]
    assert [where for *_, value, where in told if value == b"own"] == [2]


def test_the_alias_counts_where_the_client_would_drop_it() -> None:
    told: Told = []
    with RoutedProducer(MOCK, "node") as ours:
        ours.produce("mock", b"v", callback=None, on_delivery=telling(told, "alias"))

    assert [tag for tag, *_ in told] == ["alias"]


def test_a_callback_that_cannot_be_called_is_a_type_error() -> None:
    with RoutedProducer(MOCK, "node") as ours, pytest.raises(TypeError, match="callable"):
        ours.produce("mock", b"v", on_delivery=5)  # type: ignore[arg-type]


# ---------------------------------------------------------------- configured callbacks


@pytest.mark.parametrize("name", ["node", "adaptive"])
def test_a_configured_delivery_callback_is_told_unless_the_record_has_its_own(name: str) -> None:
    told: Told = []
    config = {**MOCK, "on_delivery": telling(told, "configured")}
    with RoutedProducer(config, name) as ours:
        ours.produce("mock", b"1")
        ours.produce("mock", b"2", b"k")
        ours.produce("mock", b"3", partition=1)
        ours.produce("mock", b"4", on_delivery=telling(told, "own"))
        ours.produce_batch("mock", [{"value": b"5"}])

    assert sorted((value, tag) for tag, _, _, value, _ in told) == [
        (b"1", "configured"),
        (b"2", "configured"),
        (b"3", "configured"),
        (b"4", "own"),
        (b"5", "configured"),
    ]


@pytest.mark.parametrize("name", ["node", "adaptive"])
def test_a_configured_delivery_callback_is_told_of_errors(name: str) -> None:
    told: Told = []
    nowhere = {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
        "message.timeout.ms": 50,
        "on_delivery": telling(told, "configured"),
    }
    with LeaderWatch(FakeSource({"t": {0: 1, 1: 2}}), refresh_s=HOURS) as watch:
        outstanding = OutstandingBytes() if name == "adaptive" else None
        with RoutedProducer(
            nowhere, partitioner_of(name), watch=watch, outstanding=outstanding
        ) as ours:
            looked = threading.Event()
            watch.look_again = looked.set  # type: ignore[method-assign]
            ours.produce("t", b"v")
            ours.produce("t", b"v", b"k")
            ours.flush(20)
            assert looked.is_set()

    assert [(tag, error) for tag, error, *_ in told] == [("configured", "_MSG_TIMED_OUT")] * 2


def test_a_callback_for_all_records_may_be_given_apart() -> None:
    told: Told = []
    with RoutedProducer(MOCK, "node", on_delivery=telling(told, "given")) as ours:
        ours.produce("mock", b"v")

    assert [tag for tag, *_ in told] == ["given"]


def test_other_callbacks_are_called_as_configured() -> None:
    heard: dict[str, Any] = {}
    config = {
        **MOCK,
        "statistics.interval.ms": 10,
        "stats_cb": lambda text: heard.setdefault("stats", text),
        "throttle_cb": lambda event: heard.setdefault("throttle", event),
    }
    with RoutedProducer(config, "node") as ours:
        assert _polled(ours, lambda: "stats" in heard)

    assert heard["stats"].startswith("{")


def test_error_and_token_callbacks_are_called_as_configured() -> None:
    heard: list[str] = []

    def token(_: str) -> tuple[str, float]:
        heard.append("token")
        return "t", time.time() + 60

    config = {
        "bootstrap.servers": "127.0.0.1:1",
        "log_level": 0,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "error_cb": lambda error: heard.append(type(error).__name__),
        "oauth_cb": token,
    }
    with RoutedProducer(config, "node") as ours:
        assert _polled(ours, lambda: {"token", "KafkaError"} <= set(heard))


def test_the_logger_of_the_settings_is_used() -> None:
    lines: list[logging.LogRecord] = []
    logger = logging.getLogger("tests.mine")
    logger.addHandler(_Keeping(lines))
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    nowhere = {"bootstrap.servers": "127.0.0.1:1"}
    for ours in (
        RoutedProducer({**nowhere, "logger": logger}, "node"),
        RoutedProducer(nowhere, "node", logger=logger),
    ):
        with ours:
            lines.clear()
            assert _polled(ours, lambda: bool(lines))


class _Keeping(logging.Handler):
    def __init__(self, lines: list[logging.LogRecord]) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record)


@pytest.mark.parametrize(
    "wrong",
    [
        {"no.such": 1},
        {"on_delivery": 5},
        {"on_delivery": None},
        {"dr_cb": print},
        {"error_cb": 5},
        {"error_cb": None},
        {"partitioner": "nothing"},
        {"logger": None, "acks": "some"},
    ],
)
def test_settings_that_the_client_refuses_are_refused_in_the_same_way(wrong: Any) -> None:
    with pytest.raises((KafkaException, TypeError)) as theirs:
        Producer({**MOCK, **wrong})

    with pytest.raises(type(theirs.value)) as ours:
        RoutedProducer({**MOCK, **wrong}, "node")

    assert str(ours.value) == str(theirs.value)


# ---------------------------------------------------------------- keys


def landed(producer: Any, keys: list[bytes | None]) -> dict[bytes | None, set[int]]:
    found: dict[bytes | None, set[int]] = {}
    for key in keys:
        producer.produce(
            "mock",
            b"v",
            key,
            on_delivery=lambda _, m: found.setdefault(m.key(), set()).add(m.partition()),
        )
    producer.flush(10)
    return found


@pytest.mark.parametrize("as_default", [False, True])
@pytest.mark.parametrize("setting", [None, *KEYLESS])
def test_every_key_goes_where_the_client_itself_puts_it(
    setting: str | None, as_default: bool
) -> None:
    chosen = {} if setting is None else {"partitioner": setting}
    config = MOCK | ({"default.topic.config": chosen} if as_default else chosen)
    config = config | {"sticky.partitioning.linger.ms": 0}
    different = [None, b"", *(b"key-%d" % i for i in range(30))]
    keys = [key for key in different for _ in range(20)]
    with Producer(config) as producer:
        bare = landed(producer, keys)
    with RoutedProducer(config, "default") as routed:
        ours = landed(routed, keys)

    hashed = {key for key, where in bare.items() if len(where) == 1}
    assert {key: ours[key] for key in hashed} == {key: bare[key] for key in hashed}
    for key in bare.keys() - hashed:  # those that the client spreads are spread evenly
        assert ours[key] == {0, 1, 2, 3}


@pytest.mark.parametrize("setting", ["consistent", "murmur2", "fnv1a"])
def test_a_setting_that_leaves_nothing_to_route_is_said(setting: str) -> None:
    with capture_logs() as lines, RoutedProducer({**MOCK, "partitioner": setting}, "node"):
        pass

    assert [line["event"] for line in lines] == ["nothing_is_routed"]
    assert setting in lines[0]["why"]


def test_an_existing_client_hashes_its_keys_by_its_own_setting() -> None:
    keys: list[bytes | None] = [b"", *(b"key-%d" % i for i in range(30))]
    with Producer({**MOCK, "partitioner": "murmur2_random"}) as client:
        bare = landed(client, keys)
        ours = landed(RoutedProducer(client, "node"), keys)

    assert ours == bare


def test_told_otherwise_keys_are_hashed_as_java_does() -> None:
    keys: list[bytes | None] = [b"", *(b"key-%d" % i for i in range(30))]
    with Producer({**MOCK, "partitioner": "murmur2_random"}) as client:
        java = landed(client, keys)
    with RoutedProducer(MOCK, "node", keys_by_partitioner=True) as routed:
        assert landed(routed, keys) == java


def test_keys_that_are_to_be_ignored_are_routed() -> None:
    options = RoutingOptions(ignore_keys=True, start=0)
    with RoutedProducer(MOCK, "default", options) as routed:
        assert landed(routed, [b"k"] * 8) == {b"k": {0, 1, 2, 3}}


# ---------------------------------------------------------------- an existing client


def test_an_existing_client_keeps_its_callback_and_stays_open() -> None:
    told: Told = []
    with Producer({**MOCK, "on_delivery": telling(told, "configured")}) as client:
        with RoutedProducer(client, "node") as routed:
            routed.produce("mock", b"1")
            assert routed.producer is client
        client.produce("mock", b"2")
        client.flush(10)

    assert [(tag, value) for tag, _, _, value, _ in told] == [
        ("configured", b"1"),
        ("configured", b"2"),
    ]


def test_counting_does_not_replace_the_callback_of_an_existing_client_unasked() -> None:
    told: Told = []
    with Producer(MOCK) as client:
        with pytest.raises(ConfigError, match="delivery"):
            RoutedProducer(client, "adaptive")
        with RoutedProducer(client, "adaptive", on_delivery=telling(told, "given")) as routed:
            routed.produce("mock", b"v")

    assert [tag for tag, *_ in told] == ["given"]


def test_racks_of_an_existing_client_need_settings() -> None:
    with (
        Producer(MOCK) as client,
        pytest.raises(ConfigError, match="racks of brokers cannot be read"),
    ):
        RoutedProducer(client, "rack-aware", on_delivery=print)


@pytest.mark.parametrize("other", [None, 5, "127.0.0.1:9092", object()])
def test_what_is_no_producer_is_refused(other: Any) -> None:
    with pytest.raises(TypeError, match="RoutedProducer takes"):
        RoutedProducer(other, "node")


@pytest.mark.parametrize("other", [None, 5, b"node"])
def test_what_is_no_partitioner_is_refused(other: Any) -> None:
    with pytest.raises(TypeError, match="partitioner"):
        RoutedProducer(MOCK, other)


def test_settings_by_name_go_before_those_of_the_dict_as_with_the_client() -> None:
    large = {**MOCK, "queue.buffering.max.messages": 1000}
    small: dict[str, Any] = {"queue.buffering.max.messages": 1}
    with Producer(large, **small) as bare, RoutedProducer(large, "node", **small) as ours:
        for producer in (bare, ours):
            producer.produce("mock", b"v")
            with pytest.raises(BufferError):
                producer.produce("mock", b"v")
        with pytest.raises(TypeError, match="takes no acks"):
            RoutedProducer(bare, "node", acks=1)
    with pytest.raises(KafkaException, match="No such configuration property"):
        RoutedProducer(MOCK, "node", no_such_setting=1)


def test_a_serializing_producer_is_refused_since_it_takes_the_key_first() -> None:
    with pytest.raises(ConfigError, match="key before value"):
        RoutedProducer(SerializingProducer({**MOCK}), "node")


def test_options_beside_a_partitioner_that_was_made_already_are_refused() -> None:
    with pytest.raises(ConfigError, match="given by name"):
        RoutedProducer(MOCK, partitioner_of("node"), RoutingOptions(seed=1))


# ---------------------------------------------------------------- settings of the admin client


def test_the_admin_client_has_all_settings_but_those_of_a_producer() -> None:
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "a", "sasl.password": "b"}
    token = {"oauth_cb": print, "logger": logging.getLogger("x")}
    of_producer = {"on_delivery": print, "error_cb": print, "transactional.id": "t"}

    assert connection_settings({**MOCK, **login, **token, **of_producer}) == {
        "bootstrap.servers": "x",
        "log_level": 0,
        **login,
        **token,
    }


def test_the_rack_of_the_client_is_that_of_the_partitioner() -> None:
    config = {**MOCK, "client.rack": "b"}
    source = FakeSource({"mock": {0: 1, 1: 2, 2: 3}})
    source.where = {1: "a", 2: "b", 3: "c"}
    told: Told = []
    with (
        LeaderWatch(source, refresh_s=HOURS) as watch,
        RoutedProducer(config, "rack-aware", watch=watch, racks=True) as routed,
    ):
        for _ in range(5):
            routed.produce("mock", b"v", on_delivery=telling(told, "t", 0))

    assert {where for *_, where in told} == {1}


# ---------------------------------------------------------------- leaders that are not known


def test_a_client_without_brokers_takes_records_as_ever() -> None:
    told: Told = []
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 50}
    source = FakeSource({})
    with (
        LeaderWatch(source, refresh_s=HOURS, first_use_s=0.0) as watch,
        capture_logs() as lines,
        RoutedProducer(nowhere, "node", watch=watch) as ours,
    ):
        for _ in range(3):
            ours.produce("t", b"v", on_delivery=telling(told, "t"))
        assert len(source.questions) == 1  # only the first record waited
        ours.flush(20)

        source.topics = {"t": {0: 1}}
        watch.refresh()
        assert watch.snapshot.topics == ("t",)

    assert [error for _, error, *_ in told] == ["_MSG_TIMED_OUT"] * 3
    assert [line["topic"] for line in lines if line["event"] == "records_are_not_routed"] == ["t"]


def test_a_producer_that_is_dropped_leaves_no_thread_behind() -> None:
    ours = RoutedProducer(MOCK, "node")
    ours.produce("mock", b"v")
    ours.flush(10)
    thread = ours.watch._thread
    assert thread is not None
    assert thread.is_alive()

    del ours
    gc.collect()

    thread.join(20)
    assert not thread.is_alive()


def _polled(producer: Any, arrived: Any) -> bool:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        producer.poll(0.05)
        if arrived():
            return True
    return False


def test_a_difference_would_be_noticed() -> None:
    class Swallowing(RoutedProducer):
        def produce(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("on_delivery", None)
            super().produce(*args, **kwargs)

    with Producer(MOCK) as bare, Swallowing(MOCK, "node") as ours:
        assert outcome(PRODUCE["value"], ours, "mock") != outcome(PRODUCE["value"], bare, "mock")


@pytest.mark.parametrize("name", ["adaptive", "rack-aware"])
def test_who_hears_only_of_errors_cannot_count_what_is_under_way(name: str) -> None:
    config = {**MOCK, "delivery.report.only.error": True}
    with pytest.raises(ConfigError, match="cannot be counted"):
        RoutedProducer(config, name, admin={"bootstrap.servers": "x"})
    with RoutedProducer(config, "node"):
        pass
