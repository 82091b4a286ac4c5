"""The steering service without brokers: when it speaks, what it says, what it counts."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException

from trimtab.apply.records.kafka import steering
from trimtab.apply.records.kafka.intake import Intake
from trimtab.apply.records.kafka.steering import ClusterObserver, Steerer, SteeringStep, led
from trimtab.apply.records.probe_log import Probes
from trimtab.apply.records.steering import Observation, SteeringRules
from trimtab.kafka.cluster import Cluster
from trimtab.kafka.topics import OwnTopics
from trimtab.model.cluster import Broker, BrokerId, TopicPartition
from trimtab.model.control import PartitionRate, TopicRates
from trimtab.observe.clock import wall_clock_us
from trimtab.testing.fakes import FakeAdmin, FakePublisher
from trimtab.testing.placements import placement


def steady(latency_s: float) -> Observation:
    answers = tuple((0.1 * n, latency_s) for n in reversed(range(100)))
    return Observation(probes=Probes(answers=answers, pace_s=0.1))


class World:
    """Brokers as they look now, and time that passes by hand."""

    def __init__(self, *, execute: bool = True) -> None:
        self.now = 100.0
        self.brokers = {1: steady(0.002), 2: steady(0.002)}
        self.publisher = FakePublisher()
        self.steps: list[SteeringStep] = []
        self.steerer = Steerer(
            self,
            self.publisher if execute else None,
            topic="trimtab.weights",
            interval_s=0.2,
            valid_s=10.0,
            on_step=self.steps.append,
            clock=lambda: self.now,
            wall_us=lambda: int(self.now * 1e6),
        )

    def observe(self) -> Mapping[int, Observation]:
        return self.brokers

    def after(self, seconds: float) -> None:
        """Looks every 200 ms for so long."""
        for _ in range(round(seconds / 0.2)):
            self.now += 0.2
            self.steerer.step()

    @property
    def said(self) -> list[dict[str, object]]:
        return [json.loads(value) for _, value in self.publisher.records]


def test_the_first_look_is_published_as_the_contract_says():
    world = World()
    world.after(0.2)

    assert [key for key, _ in world.publisher.records] == [b"brokers"]
    assert world.said == [
        {"v": 1, "ts": 100_200_000, "valid_s": 10, "weights": {"1": 1.0, "2": 1.0}}
    ]


def test_what_does_not_change_is_repeated_three_times_while_it_holds():
    world = World()
    world.after(30)

    times = [int(str(record["ts"])) for record in world.said]
    gaps = [(b - a) / 1e6 for a, b in pairwise(times)]
    assert max(gaps) <= 10 / 3
    assert len(times) < 15


def test_a_change_is_published_at_once():
    world = World()
    world.after(1)
    world.brokers[2] = steady(0.3)
    before = len(world.said)
    world.after(0.2)

    assert world.said[before:][0]["weights"] == {"1": 1.0, "2": 0.0}
    assert world.steps[-1].changed
    assert world.steps[-1].published
    assert world.steerer.report.changes == 1


def test_without_a_publisher_it_only_tells():
    world = World(execute=False)
    world.after(1)

    assert world.said == []
    assert len(world.steps) == 5
    assert not any(step.published for step in world.steps)
    assert world.steerer.report.published == 0


def test_where_nobody_was_looked_at_nothing_is_said():
    world = World()
    world.brokers = {}
    world.after(1)

    assert world.said == []
    assert world.steps == []


def test_it_ends_when_told_to_and_delivers_what_is_left():
    world, stop = World(), threading.Event()
    world.steerer._on_step = lambda _: stop.set()

    report = world.steerer.run(stop)

    assert report.steps == 1
    assert world.publisher.published == 1


def test_a_longer_interval_looks_back_further():
    rules = SteeringRules.paced(0.5)

    assert (rules.lately_s, rules.long_s) == (10.0, 50.0)
    assert SteeringRules.paced(0.1) == SteeringRules()


@pytest.mark.parametrize(("age_s", "loads"), [(5, {1: (30.0, 3.0), 2: (40.0, 4.0)}), (61, {})])
def test_bytes_per_broker_are_those_of_the_partitions_that_it_leads(age_s, loads):
    def rate(bytes_s: float) -> PartitionRate:
        return PartitionRate(
            bytes_s=bytes_s,
            records_s=bytes_s / 10,
            end_offset=None,
            lag={},
            complete=True,
            stale=False,
        )

    rates = {
        "t": TopicRates(topic="t", ts=0, partitions={0: rate(10), 1: rate(20), 2: rate(40)}),
    }
    leaders = {TopicPartition("t", n): broker for n, broker in enumerate((1, 1, 2))}

    assert led(rates, leaders, ts=int(age_s * 1e6)) == loads


class Breaking:
    """A consumer of rates whose first look fails."""

    looks = 0
    looked_again = threading.Event()

    def __init__(self, _config: object) -> None:
        pass

    def assign(self, _partitions: object) -> None:
        pass

    def consume(self, _most: int, _timeout: float) -> list[object]:
        Breaking.looks += 1
        if Breaking.looks == 1:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        Breaking.looked_again.set()
        return []

    def close(self) -> None:
        pass


def test_rates_that_cannot_be_read_do_not_end_the_look_at_the_cluster(monkeypatch):
    admin = FakeAdmin(brokers=[Broker(id=BrokerId(1))])
    monkeypatch.setattr(Cluster, "admin", lambda *_, **__: nullcontext(admin))
    monkeypatch.setattr("confluent_kafka.Consumer", Breaking)
    monkeypatch.setattr(steering, "_LOOK_EVERY_S", 0.01)
    own = OwnTopics()
    told = {own.of_steering[1]: lambda _: None}
    intake = Intake(Cluster("x:1"), without=())
    observer = ClusterObserver(Cluster("x:1"), told, intake)
    observer.ensure(admin)

    with observer:
        assert Breaking.looked_again.wait(10)


class Published:
    """A consumer of rates, and each message that it returns."""

    def __init__(self, *values: Mapping[str, object]) -> None:
        self.values = values

    def consume(self, _most: int, _timeout: float) -> list[Published]:
        return [Published(value) for value in self.values]

    def error(self) -> None:
        return None

    def key(self) -> bytes:
        return b"t"

    def value(self) -> bytes:
        return json.dumps(self.values[0]).encode()


def test_rates_that_are_split_count_when_all_parts_have_come():
    placed = placement({"t": [[1], [1]]})
    admin = FakeAdmin(
        brokers=placed.brokers, partitions=[replace(p, end_offset=0) for p in placed.partitions]
    )
    intake = Intake(Cluster("x:1"), without=())
    intake.count(admin)
    observer = ClusterObserver(Cluster("x:1"), {}, intake)
    rate = {"bytes_s": 5, "records_s": 1, "end_offset": 1, "complete": True, "stale": False}
    head = {"v": 1, "ts": wall_clock_us(), "topic": "t", "of": 2}
    first, second = (head | {"part": n, "partitions": {str(n): rate}} for n in range(2))

    observer._read_rates(cast("Consumer", Published(first)))
    assert observer.observation(1, Probes()).bytes_s is None
    observer._read_rates(cast("Consumer", Published(second)))

    assert observer.observation(1, Probes()).bytes_s == 10


def test_records_are_those_that_were_counted_and_else_those_that_somebody_measures():
    intake = Intake(Cluster("x:1"), without=())
    observer = ClusterObserver(Cluster("x:1"), {}, intake)

    assert observer.observation(1, Probes()).records_s is None

    placed = placement({"t": [[1]]})
    admin = FakeAdmin(
        brokers=placed.brokers, partitions=[replace(p, end_offset=0) for p in placed.partitions]
    )
    intake.count(admin)
    intake.count(admin)

    assert observer.observation(1, Probes()).records_s == 0.0
    assert observer.observation(9, Probes()).records_s is None
