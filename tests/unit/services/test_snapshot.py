"""The snapshot service, on a cluster in memory."""

from __future__ import annotations

import pytest

from trimtab.errors import ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.services.snapshot import current_snapshot


def test_a_snapshot_has_everything_but_internal_topics(cluster: Cluster) -> None:
    taken = current_snapshot(cluster, clock=lambda: 7)

    assert (taken.ts, sorted(taken.topics)) == (7, ["orders"])
    assert [p.log_bytes for p in taken.partitions] == [100, 200]
    assert [g.name for g in taken.groups] == ["g"]


def test_named_topics_are_taken_even_when_they_are_internal(cluster: Cluster) -> None:
    assert sorted(current_snapshot(cluster, topics=["trimtab.telemetry"]).topics) == [
        "trimtab.telemetry"
    ]


def test_a_topic_that_does_not_exist_is_refused(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match='no topic "ordres"'):
        current_snapshot(cluster, topics=["orders", "ordres"])
