"""Addresses: a wrong port is called a wrong port, wherever it is given."""

from __future__ import annotations

import pytest
import typer

from trimtab.cli import main
from trimtab.cli.addresses import check_servers, listen_address
from trimtab.errors import ConfigError


@pytest.mark.parametrize(
    "servers",
    [
        "localhost:9092",
        "localhost",
        "kafka-1:9092, kafka-2:9093",
        "[::1]:9092",
        "PLAINTEXT://127.0.0.1:9092",
    ],
)
def test_addresses_of_brokers_are_taken_as_clients_take_them(servers: str) -> None:
    check_servers(servers)


@pytest.mark.parametrize(
    ("servers", "told"),
    [
        ("localhost:99999", "'99999' is not between 1 and 65535"),
        ("localhost:0", "'0' is not between 1 and 65535"),
        ("localhost:", "'' is not between 1 and 65535"),
        ("localhost:abc", "'abc' is not between"),
        ("a:9092,,b:9092", "'' in --bootstrap-server is not an address"),
        (":9092", "is not an address"),
        ("a:1:2", "is not an address"),
        ("localhost:" + "9" * 5000, "is not between"),
    ],
)
def test_an_address_that_no_client_can_use_is_refused(servers: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        check_servers(servers)


@pytest.mark.parametrize("variable", [False, True])
def test_a_wrong_port_of_a_broker_is_a_matter_of_settings(
    variable: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if variable:
        monkeypatch.setenv("TRIMTAB_BOOTSTRAP_SERVER", "localhost:99999")
    flag = [] if variable else ["--bootstrap-server", "localhost:99999"]
    assert main.run(["snapshot", *flag]) == 2
    assert "has no valid port" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["127.0.0.1:8765", "localhost:0", "[::1]:8765", None])
def test_an_address_to_listen_on_has_host_and_port(text: str | None) -> None:
    assert listen_address(text) == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("127.0.0.1:99999", "'99999' is not a port: 0 to 65535"),
        ("127.0.0.1:x", "'x' is not a port"),
        ("8765", "is not an address"),
        (":8765", "is not an address"),
        ("::1:8765", "is not an address"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused(text: str, told: str) -> None:
    with pytest.raises(typer.BadParameter, match=told):
        listen_address(text)


@pytest.mark.parametrize("option", ["--listen", "--keda", "--metrics-port"])
def test_every_option_that_takes_a_port_says_so(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    value = "99999" if option == "--metrics-port" else "127.0.0.1:99999"
    assert main.run(["run", "--group", "g", "--topic", "t", option, value]) == 2
    error = capsys.readouterr().err
    assert option in error
    assert "65535" in error
