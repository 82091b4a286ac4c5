"""The forwarding service, on a cluster in memory and up to its door."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.apply.records.kafka import forwarder as door
from trimtab.apply.records.kafka.forward_route import ForwardReport, Route
from trimtab.errors import ApplyError, ConfigError, TrimtabError
from trimtab.kafka.admin import TopicSpec
from trimtab.kafka.cluster import Cluster
from trimtab.plan.records.partitioner import RoutingOptions
from trimtab.services.forward import forward_records, survey_route
from trimtab.testing.fakes import FakeAdmin

ROUTE = Route(topics={"orders": "copy"}, group="g", partitioner="sqf", options=RoutingOptions())
REPORT = ForwardReport(taken=1, forwarded=1, committed=1, brokers={}, partitions={}, ratios=None)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether the forwarder fails when it runs; it waits until it is stopped otherwise."""
    fails: list[bool] = [False]

    class Forwarder:
        report = REPORT

        def run(self, stop: threading.Event) -> ForwardReport:
            if fails[0]:
                raise ApplyError("refused")
            assert stop.wait(10)
            return REPORT

    @contextmanager
    def open_forwarder(*_: Any) -> Iterator[Forwarder]:
        yield Forwarder()

    monkeypatch.setattr(door, "open_forwarder", open_forwarder)
    return fails


@pytest.fixture
def copied(world: FakeAdmin) -> None:
    world.create_topic(TopicSpec(name="copy", partitions=2, replication=1))


@pytest.mark.usefixtures("copied")
def test_a_survey_says_what_would_be_forwarded(cluster: Cluster) -> None:
    assert survey_route(ROUTE, cluster, cluster).sources == {"orders": 2}


def test_a_route_that_cannot_work_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="no topic copy"):
        survey_route(ROUTE, cluster, cluster)


def test_an_unknown_partitioner_is_refused_before_a_cluster_is_asked() -> None:
    route = Route(topics={"a": "b"}, group="g", partitioner="sqff", options=RoutingOptions())

    with pytest.raises(TrimtabError, match="sqff"):
        survey_route(route, Cluster("nowhere:1"), Cluster("nowhere:1"))


@pytest.mark.usefixtures("copied", "failing")
def test_it_ends_after_its_time(cluster: Cluster) -> None:
    told = Told()
    surveyed = survey_route(ROUTE, cluster, cluster)

    report = forward_records(
        surveyed, cluster, cluster, stop=threading.Event(), for_s=0.01, listener=told
    )

    assert report is REPORT
    assert told.starts == ["Forwarding as group g"]


@pytest.mark.usefixtures("copied")
def test_what_was_forwarded_is_told_when_it_fails(cluster: Cluster, failing: list[bool]) -> None:
    failing[0] = True
    until_then: list[ForwardReport] = []

    with pytest.raises(ApplyError, match="refused"):
        forward_records(
            survey_route(ROUTE, cluster, cluster),
            cluster,
            cluster,
            stop=threading.Event(),
            on_failure=until_then.append,
        )
    assert until_then == [REPORT]
