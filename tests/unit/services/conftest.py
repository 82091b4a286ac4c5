"""A cluster whose admin port is in memory."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from trimtab.kafka.cluster import Cluster
from trimtab.testing.fakes import FakeAdmin


@pytest.fixture
def cluster(world: FakeAdmin, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Leads to `world`, whatever its address says."""
    monkeypatch.setattr(Cluster, "admin", lambda _, **__: nullcontext(world))
    return Cluster("in-memory:9092")
