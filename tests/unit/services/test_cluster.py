"""The services for a local cluster, without starting one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.services.listening import Told
from trimtab.local.cluster import BrokerProcessState, BrokerStatus, ClusterStatus, LocalCluster
from trimtab.services.cluster import (
    BrokerAction,
    LocalClusterConfig,
    bring_up,
    change_broker,
    status_of,
    take_down,
)

BROKER = BrokerStatus(id=1, rack="a", port=9092, pid=None, state=BrokerProcessState.DEAD)
UP = ClusterStatus(
    name="try",
    cluster_id="x",
    bootstrap_servers="127.0.0.1:9092",
    sasl_bootstrap_servers=None,
    controller=BrokerProcessState.RUNNING,
    brokers=(BROKER,),
)


@pytest.fixture
def config(tmp_path: Path) -> LocalClusterConfig:
    return LocalClusterConfig(name="try", home=tmp_path / "home", cache=tmp_path / "cache")


def test_a_cluster_that_was_never_made_has_no_brokers(config: LocalClusterConfig) -> None:
    assert status_of(config).brokers == ()
    assert take_down(config) == (status_of(config), False)


def test_bringing_up_returns_status_and_logs(
    config: LocalClusterConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()

    def up(cluster: Any) -> ClusterStatus:
        cluster._say("starting")
        return UP

    monkeypatch.setattr(LocalCluster, "up", up)

    status, logs = bring_up(config, told)

    assert (status, logs.is_relative_to(config.home)) == (UP, True)
    assert told.notes == ["starting"]


@pytest.mark.parametrize("action", BrokerAction)
def test_each_action_is_done_to_its_broker(
    config: LocalClusterConfig, monkeypatch: pytest.MonkeyPatch, action: BrokerAction
) -> None:
    done: list[tuple[str, int]] = []
    for name in BrokerAction:
        monkeypatch.setattr(LocalCluster, name, lambda _, n, name=name: done.append((name, n)))
    monkeypatch.setattr(LocalCluster, "status", lambda _: UP)

    assert change_broker(config, 2, action) is UP
    assert done == [(action, 2)]


@pytest.mark.parametrize("keep_data", [True, False])
def test_taking_down_tells_whether_the_cluster_was_removed(
    config: LocalClusterConfig, monkeypatch: pytest.MonkeyPatch, keep_data: bool
) -> None:
    monkeypatch.setattr(LocalCluster, "status", lambda _: UP)
    monkeypatch.setattr(LocalCluster, "down", lambda _, *, keep_data: None)

    assert take_down(config, keep_data=keep_data) == (UP, not keep_data)
