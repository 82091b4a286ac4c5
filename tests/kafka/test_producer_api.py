"""Ours beside `confluent_kafka.Producer`, call by call, on real brokers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from tests.unit.apply.records.kafka.producer_cases import (
    BATCH,
    CLOSING,
    METHODS,
    PRODUCE,
    Told,
    outcome,
    telling,
    transactions,
)
from trimtab.apply.records.kafka.producer_settings import KEYLESS
from trimtab.apply.records.kafka.routed_producer import RoutedProducer
from trimtab.errors import MeasurementError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.local.cluster import LocalCluster
from trimtab_lab.benchmarks.kafka.producing import ProducerSide, compared

KEYS = [b"", *(b"key-%d" % i for i in range(40))]


@pytest.fixture(scope="module")
def topic(cluster: LocalCluster) -> Iterator[str]:
    name = f"api-{uuid.uuid4().hex[:8]}"
    with Cluster(cluster.bootstrap_servers).admin() as admin:
        admin.create_topic(TopicSpec(name=name, partitions=4, replication=2))
        yield name
        admin.delete_topic(name)


@pytest.fixture(scope="module")
def config(cluster: LocalCluster) -> dict[str, Any]:
    return {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 1}


@pytest.fixture(scope="module")
def pair(config: dict[str, Any]) -> Iterator[tuple[Producer, RoutedProducer]]:
    with Producer(config) as bare, RoutedProducer(config, "node") as ours:
        yield bare, ours


@pytest.mark.parametrize(
    "case",
    [*PRODUCE.values(), *BATCH.values(), *METHODS.values()],
    ids=[*PRODUCE, *(f"batch: {name}" for name in BATCH), *METHODS],
)
def test_a_call_does_what_it_does_with_the_client(case: Any, pair: Any, topic: str) -> None:
    bare, ours = (outcome(case, producer, topic) for producer in pair)

    assert ours == bare


def test_closing_does_what_it_does_with_the_client(config: dict[str, Any], topic: str) -> None:
    for name, case in CLOSING.items():
        bare = outcome(case, Producer(config), topic)
        assert outcome(case, RoutedProducer(config, "node"), topic) == bare, name


def test_transactions_do_what_they_do_with_the_client(config: dict[str, Any], topic: str) -> None:
    found = []
    for make in (Producer, lambda settings: RoutedProducer(settings, "node")):
        consumer = Consumer({**config_of(config), "group.id": uuid.uuid4().hex})
        with make({**config, "transactional.id": uuid.uuid4().hex}) as producer:
            found.append(outcome(transactions(consumer), producer, topic))
        consumer.close()

    bare, ours = found
    assert ours == bare
    assert not isinstance(bare, type), "the client itself could not do it"


def config_of(config: dict[str, Any]) -> dict[str, Any]:
    return {"bootstrap.servers": config["bootstrap.servers"]}


def test_every_key_goes_where_the_client_itself_puts_it(config: dict[str, Any], topic: str) -> None:
    for setting in (None, *(name for name, of in KEYLESS.items() if not of.keyed)):
        settings = config if setting is None else {**config, "partitioner": setting}
        keys = KEYS if setting not in (None, "consistent_random") else KEYS[1:]
        found = []
        for make in (Producer, lambda asked: RoutedProducer(asked, "node")):
            told: Told = []
            with make(settings) as producer:
                for key in keys:
                    producer.produce(topic, b"v", key, on_delivery=telling(told, "t", 0))
            found.append(sorted(told))

        bare, ours = found
        assert len(bare) == len(keys)
        assert ours == bare, setting


def test_a_configured_callback_is_told_of_a_record_that_the_broker_refuses(
    config: dict[str, Any], topic: str
) -> None:
    told: Told = []
    callback = telling(told, "configured")
    large = {"message.max.bytes": 10_000_000, "on_delivery": callback}
    with RoutedProducer({**config, **large}, "node") as ours:
        ours.produce(topic, b"v" * 5_000_000)
        ours.produce(topic, b"v")

    assert sorted(error or "" for _, error, *_ in told) == ["", "MSG_SIZE_TOO_LARGE"]


def test_the_cost_is_measured_on_records_that_arrive(config: dict[str, Any], topic: str) -> None:
    with Cluster(config["bootstrap.servers"]).admin() as admin:
        leaders = {p.name: p.leader for p in admin.topics([topic])}

        def stored() -> int:
            return sum(end for _, end in admin.offsets(leaders).values())

        before = stored()
        sides = compared(config["bootstrap.servers"], topic, 300, 1)

        assert stored() == before + 4 * 2 * 2 * 300  # settings, sides, a warm-up each
    assert len(sides.ours) == len(sides.rival) == 1
    assert len(sides.settings["ratios"]) == 4
    assert len(sides.settings["thread_us_per_record"]) == 6


def test_records_that_do_not_arrive_are_not_measured() -> None:
    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 50}
    with Producer(nowhere) as producer, pytest.raises(MeasurementError, match="1 records"):
        ProducerSide(producer, "t", 1, with_callback=True)()
