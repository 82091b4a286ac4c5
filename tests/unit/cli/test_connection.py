"""Which cluster a command speaks to."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from trimtab.cli.connection import cluster_of, controller_token
from trimtab.cli.forward import _target
from trimtab.errors import ConfigError
from trimtab.kafka import admin
from trimtab.local import cluster as local_cluster
from trimtab.local.cluster import BrokerProcessState
from trimtab.settings import Settings, load_settings


def settings(home: Path, **flags: object) -> Settings:
    return load_settings(home=home, **flags)


def pretend_local(monkeypatch: pytest.MonkeyPatch, state: BrokerProcessState) -> None:
    """A local cluster whose broker is in this state."""
    status = SimpleNamespace(
        bootstrap_servers="127.0.0.1:1",
        sasl_bootstrap_servers="127.0.0.1:2",
        brokers=(SimpleNamespace(state=state),),
    )
    monkeypatch.setattr(local_cluster.LocalCluster, "status", lambda _: status)


def properties_file(folder: Path, text: str) -> Path:
    file = folder / "client.properties"
    file.write_text(text)
    return file


def test_a_named_cluster_wins_over_the_local_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_local(monkeypatch, BrokerProcessState.RUNNING)

    assert cluster_of(settings(tmp_path, bootstrap_server="b:9")).servers == "b:9"


def test_the_properties_file_may_name_the_cluster(tmp_path: Path) -> None:
    file = properties_file(tmp_path, "bootstrap.servers=from.file:9")

    assert cluster_of(settings(tmp_path, command_config=file)).servers == "from.file:9"


def test_the_running_local_cluster_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_local(monkeypatch, BrokerProcessState.RUNNING)

    assert cluster_of(settings(tmp_path)).servers == "127.0.0.1:1"


def test_who_logs_in_meets_the_sasl_listener_of_the_local_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_local(monkeypatch, BrokerProcessState.RUNNING)
    file = properties_file(tmp_path, "security.protocol=SASL_PLAINTEXT")

    assert cluster_of(settings(tmp_path, command_config=file)).servers == "127.0.0.1:2"


@pytest.mark.parametrize("state", [BrokerProcessState.DEAD, BrokerProcessState.ABSENT, None])
def test_without_any_cluster_the_way_to_one_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: BrokerProcessState | None
) -> None:
    if state is not None:
        pretend_local(monkeypatch, state)

    with pytest.raises(ConfigError) as caught:
        cluster_of(settings(tmp_path))

    assert "trimtab cluster up" in (caught.value.hint or "")
    assert "--bootstrap-server" in (caught.value.hint or "")


def test_properties_that_a_client_does_without_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = properties_file(tmp_path, "bootstrap.servers=b:9\nmetric.reporters=com.example.R")

    cluster_of(settings(tmp_path, command_config=file))

    said = capsys.readouterr()
    assert "metric.reporters" in said.err
    assert said.out == ""


# ---------------------------------------------------------------- the controller's token


def test_the_token_comes_from_the_environment_or_from_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert controller_token(load_settings()) is None

    monkeypatch.setenv("TRIMTAB_CONTROLLER__TOKEN", "s3cret\n")  # as from a file with a line end
    assert controller_token(load_settings()) == "s3cret"
    assert "s3cret" not in repr(load_settings())

    (tmp_path / "token").write_text("from-file\n")
    monkeypatch.setenv("TRIMTAB_CONTROLLER__TOKEN_FILE", str(tmp_path / "token"))
    with pytest.raises(ConfigError, match="both set"):
        controller_token(load_settings())

    monkeypatch.delenv("TRIMTAB_CONTROLLER__TOKEN")
    assert controller_token(load_settings()) == "from-file"


@pytest.mark.parametrize("text", ["", "\n", "two words", "schlüssel", "a\nb"])
def test_a_token_that_no_header_can_carry_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text(text)
    monkeypatch.setenv("TRIMTAB_CONTROLLER__TOKEN_FILE", str(tmp_path / "token"))

    with pytest.raises(ConfigError, match=r"token.* is empty, or has spaces"):
        controller_token(load_settings())


def test_a_token_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TRIMTAB_CONTROLLER__TOKEN_FILE", str(tmp_path / "none"))

    with pytest.raises(ConfigError, match="none cannot be read"):
        controller_token(load_settings())


def test_time_outs_of_the_settings_reach_admin_requests_and_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    class Connections:
        def __init__(self, _: object, connect_within_s: float, patience_s: float) -> None:
            asked.append((connect_within_s, patience_s))

        def close(self) -> None: ...

    monkeypatch.setattr(admin, "Connections", Connections)
    for name, value in (("CONNECT_S", "25"), ("ATTEMPT_S", "1m"), ("REQUEST_S", "90")):
        monkeypatch.setenv(f"TRIMTAB_TIMEOUTS__{name}", value)

    cluster = cluster_of(settings(tmp_path, bootstrap_server="far:9092"))
    with cluster.admin():
        pass

    assert asked == [(25.0, 60.0)]
    assert cluster.client("c", {})["socket.timeout.ms"] == 90_000
    assert _target(cluster, "other:9092", None).timeouts == cluster.timeouts
