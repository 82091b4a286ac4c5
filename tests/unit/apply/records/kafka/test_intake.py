"""What each broker takes, counted by the ends of what it leads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from trimtab.apply.records.kafka import intake as module
from trimtab.apply.records.kafka.intake import Intake, taken
from trimtab.errors import BrokerUnavailable
from trimtab.kafka.cluster import Cluster
from trimtab.model.cluster import BrokerId, TopicPartition
from trimtab.testing.fakes import FakeAdmin
from trimtab.testing.placements import placement


@pytest.fixture
def cluster() -> FakeAdmin:
    """Broker 1 leads t-0, broker 2 leads t-1, broker 3 a partition of a topic of ours."""
    placed = placement({"t": [[1], [2]], "own": [[3]]})
    return FakeAdmin(
        brokers=placed.brokers, partitions=[replace(p, end_offset=0) for p in placed.partitions]
    )


def grow(admin: FakeAdmin, topic: str, number: int, by: int) -> None:
    name = TopicPartition(topic, number)
    known = admin.partitions[name]
    admin.partitions[name] = replace(known, end_offset=(known.end_offset or 0) + by)


def fresh() -> Intake:
    return Intake(Cluster("x:1"), without=["own"])


def test_a_rate_takes_two_counts_and_our_own_topics_are_no_load(cluster):
    intake = fresh()
    intake.count(cluster)
    assert intake.records_s() == {}

    grow(cluster, "t", 0, by=1000)
    grow(cluster, "own", 0, by=500)
    intake.count(cluster)

    found = intake.records_s()
    assert found[1] > 0
    assert (found[2], found[3]) == (0.0, 0.0)


def test_who_does_not_answer_keeps_what_it_had_and_is_counted_over_the_whole_gap(cluster):
    intake = fresh()
    intake.count(cluster)
    grow(cluster, "t", 0, by=1000)
    intake.count(cluster)
    before = intake.records_s()[1]

    cluster.silent.add(BrokerId(1))
    intake.count(cluster)
    assert intake.records_s()[1] == before

    cluster.silent.clear()
    intake.count(cluster)
    assert intake.records_s()[1] == 0.0


def test_a_topic_made_anew_takes_nothing_rather_than_less_than_nothing():
    at = TopicPartition("t", 0)
    assert taken({at: (500, 1.0)}, {at: (20, 3.0)}, {at: 1}) == {1: 0.0}
    assert taken({}, {at: (20, 3.0)}, {at: 1}) == {}


def test_a_broker_that_leads_nothing_any_more_is_forgotten(cluster):
    intake = fresh()
    intake.count(cluster)
    intake.count(cluster)
    assert set(intake.records_s()) == {1, 2, 3}
    del cluster.partitions[TopicPartition("t", 1)]
    intake.count(cluster)
    assert set(intake.records_s()) == {1, 3}


def test_old_counts_are_unknown(cluster, monkeypatch):
    intake = fresh()
    intake.count(cluster)
    intake.count(cluster)
    assert intake.records_s()
    monkeypatch.setattr(module, "_HOLD_S", -1.0)
    assert intake.records_s() == {}


def test_it_goes_on_counting_after_a_cluster_that_could_not_be_asked(cluster, monkeypatch):
    counts = threading.Semaphore(0)
    failed: list[int] = []

    def looked() -> None:
        if not failed:
            failed.append(1)
            raise BrokerUnavailable("nobody answers")
        counts.release()

    @contextmanager
    def opened(*_: object, **__: object) -> Iterator[FakeAdmin]:
        yield cluster

    cluster.before["ends"] = looked
    monkeypatch.setattr(Cluster, "admin", opened)
    monkeypatch.setattr(module, "_EVERY_S", 0.001)
    with fresh():
        for _ in range(3):
            assert counts.acquire(timeout=10)
    assert failed
