"""`trimtab cluster` up to the brokers: who may log in, and folders that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from trimtab.cli import main
from trimtab.local.cluster import (
    BrokerProcessState,
    BrokerStatus,
    ClusterStatus,
    LocalCluster,
    SaslUser,
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[SaslUser | None]:
    """The SASL users of the clusters that were asked for; none is started."""
    seen: list[SaslUser | None] = []

    def up(cluster: LocalCluster) -> ClusterStatus:
        seen.append(cluster._sasl)
        return cluster.status()

    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    monkeypatch.delenv("TRIMTAB_SASL_PASSWORD", raising=False)
    monkeypatch.setattr(LocalCluster, "up", up)
    return seen


def test_the_password_may_come_from_the_environment(
    asked: list[SaslUser | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRIMTAB_SASL_PASSWORD", "open-sesame")

    assert main.run(["cluster", "up", "--sasl-user", "alice"]) == 0
    assert main.run(["cluster", "up"]) == 0

    assert asked == [SaslUser("alice", "open-sesame"), None]


@pytest.mark.parametrize("half", [["--sasl-user", "alice"], ["--sasl-password", "open-sesame"]])
def test_half_a_login_is_refused(asked: list[SaslUser | None], half: list[str]) -> None:
    assert main.run(["cluster", "up", *half]) == 2

    assert asked == []


@pytest.mark.parametrize("verb", ["up", "down", "status"])
def test_a_home_that_cannot_be_used_is_a_setting_to_correct(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path / "file"))

    assert main.run(["cluster", verb]) == 2

    assert "hint: Set TRIMTAB_HOME" in capsys.readouterr().err


def test_an_empty_home_does_not_mean_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "clusters" / "default" / "cluster.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_HOME", "")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))

    assert main.run(["cluster", "down"]) == 0

    assert theirs.exists()


def test_a_cluster_that_was_ended_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = BrokerStatus(id=1, rack="a", port=9092, pid=None, state=BrokerProcessState.DEAD)
    there = ClusterStatus(
        name="default",
        cluster_id="x",
        bootstrap_servers="",
        sasl_bootstrap_servers=None,
        controller=BrokerProcessState.DEAD,
        brokers=(broker,),
    )
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    monkeypatch.setattr(LocalCluster, "status", lambda _: there)
    monkeypatch.setattr(LocalCluster, "down", lambda _, **__: None)

    assert main.run(["cluster", "down"]) == 0
    assert capsys.readouterr().out == 'Cluster "default" is down; its data and logs are removed.\n'

    monkeypatch.undo()
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path))
    assert main.run(["cluster", "down"]) == 0
    assert capsys.readouterr().out == 'There is no local cluster "default".\n'
