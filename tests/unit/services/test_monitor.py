"""The monitoring service, on a cluster in memory."""

from __future__ import annotations

import threading

import pytest

from tests.unit.services.listening import Told
from trimtab.kafka.cluster import Cluster
from trimtab.measure.kafka import monitor as door
from trimtab.measure.kafka.monitor import MonitorScope
from trimtab.services.monitor import sample_cluster
from trimtab.testing.fakes import FakeAdmin, FakePublisher


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> FakePublisher:
    made = FakePublisher()
    monkeypatch.setattr(door, "RecordPublisher", lambda *_, **__: made)
    return made


def test_it_samples_until_its_time_is_over(
    cluster: Cluster, world: FakeAdmin, publisher: FakePublisher
) -> None:
    told = Told()

    report = sample_cluster(
        cluster,
        MonitorScope(topics=frozenset({"orders", "soon"})),
        period_s=0.001,
        stop=threading.Event(),
        for_s=0.01,
        listener=told,
    )

    assert report.samples >= 1
    assert report.published == report.samples  # a record with the partitions of orders
    assert told.warnings == ["topic soon does not exist yet"]
    assert told.starts == ["Sampling"]
    assert cluster.topics.telemetry in world.settings  # made if it lacks
