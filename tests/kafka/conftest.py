"""Real brokers, one cluster for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from trimtab.local.cluster import LocalCluster, SaslUser
from trimtab.settings import load_settings

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.kafka)


@pytest.fixture(scope="session")
def sasl_user() -> SaslUser:
    """Who may use the SASL listeners of `cluster`."""
    return SaslUser("alice", "open-sesame")


@pytest.fixture(scope="session")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, sasl_user: SaslUser
) -> Iterator[LocalCluster]:
    """Three brokers in three racks, with a SASL listener; a test that breaks one mends it."""
    home = tmp_path_factory.mktemp("home")
    with LocalCluster("tests", home=home, cache=load_settings().cache, sasl=sasl_user) as running:
        yield running
