"""What `trimtab measure` refuses before it starts Spark, and which span it measures."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partialmethod
from typing import Any

import pytest

from trimtab.cli import main
from trimtab.cli.time_options import MICROS, span_of
from trimtab.errors import BrokerUnavailable, ConfigError
from trimtab.kafka.cluster import Cluster
from trimtab.local.ports import free_ports
from trimtab.model.cluster import Broker, BrokerId, Replicas
from trimtab.spark.session import SparkOptions, check_master
from trimtab.testing.fakes import FakeAdmin

NOW = 1_000_000 * MICROS
ONE = (BrokerId(1),)


@pytest.fixture
def measure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Runs the verb on a cluster in memory; a start of Spark is an error.

    With `server` it asks that one, as it would outside of tests.
    """
    world = FakeAdmin(
        brokers=[Broker(id=ONE[0])],
        partitions=[Replicas(topic="orders", partition=0, leader=ONE[0], replicas=ONE, isr=ONE)],
    )

    def started(*_: Any, **__: Any) -> None:
        raise BrokerUnavailable("Spark was started.")

    monkeypatch.setattr("trimtab.cli.spark.spark_session", started)

    def run(*arguments: str, server: str | None = None) -> tuple[int, str]:
        with monkeypatch.context() as patched:
            if server is None:
                patched.setattr(Cluster, "admin", lambda _, **__: nullcontext(world))
            address = server or "127.0.0.1:1"
            code = main.run(["measure", "--bootstrap-server", address, *arguments])
        return code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--topic", "ordres"), "There is no topic ordres."),
        (("--pattern", "x.*"), "No topic matches"),
        (("--topic", "orders", "--keys", "guess"), "--keys takes auto"),
        (("--topic", "orders", "--continuous", "--keys", "two-pass"), "not with two-pass"),
        (("--topic", "orders", "--offsets", '{"orders":{"7":[0,1]}}'), "no partition orders-7"),
        (("--topic", "orders", "--from", "2999-01-01T00:00:00", "--to", "2999-01-02"), "future"),
        (("--topic", "orders", "--for", "5s", "--since", "1m"), "--for starts now"),
        (("--topic", "orders", "--since", "2s"), "a rate needs at least 3 s"),
        (("--topic", "orders", "--for", "2s"), "a rate needs at least 3 s"),
        (("--events", "no-such-folder"), "no such file or folder"),
        (("--events", "e", "--since", "1m"), "can be narrowed only with --from and --to"),
        (("--samples", "s", "--topic", "orders"), "can be narrowed only with --from and --to"),
        (
            ("--topic", "orders", "--continuous", "-o", "m.json"),
            "--continuous cannot be combined with -o",
        ),
        (("--events", "e", "--publish"), "--publish cannot be combined with --events"),
        (("--topic", "orders", "--master", "spark://127.0.0.1"), "Invalid Spark master"),
        (("--topic", "orders", "--master", "spark://127.0.0.1:99999"), "Invalid Spark master"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_spark_is_started(
    measure: Callable[..., tuple[int, str]], arguments: tuple[str, ...], says: str
) -> None:
    code, err = measure(*arguments)

    assert code in (2, 3)
    assert says in err
    assert "Spark was started" not in err


def test_a_broker_that_does_not_answer_is_noticed_before_spark_is_started(
    measure: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (port,) = free_ports(1)
    soon = partialmethod(Cluster.admin, connect_within_s=0.2, patience_s=0.2)
    monkeypatch.setattr(Cluster, "admin", soon)

    code, err = measure("--topic", "orders", server=f"127.0.0.1:{port}")

    assert code == 3
    assert f"127.0.0.1:{port}" in err
    assert "Spark was started" not in err


def test_a_master_that_cannot_be_reached_is_noticed_before_spark_is_started(
    measure: Callable[..., tuple[int, str]],
) -> None:
    (port,) = free_ports(1)

    code, err = measure("--topic", "orders", "--master", f"spark://127.0.0.1:{port}")

    assert code == 2
    assert f"No Spark master could be reached: 127.0.0.1:{port}" in err
    assert "Spark was started" not in err


def test_now_is_when_the_command_was_given_and_not_when_spark_is_up(
    measure: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = [NOW], []

    def slowly_started(*_: Any, **__: Any) -> object:
        clock[0] += 40 * MICROS
        return object()

    def from_kafka(_session: Any, _admin: Any, _target: Any, ask: Any, **_: Any) -> None:
        asked.append((ask.from_ts, ask.to_ts))
        raise BrokerUnavailable("That is enough.")

    monkeypatch.setattr("trimtab.cli.measure.wall_clock_us", lambda: clock[0])
    monkeypatch.setattr("trimtab.cli.spark.spark_session", slowly_started)
    monkeypatch.setattr("trimtab.measure.spark.spans.from_kafka", from_kafka)

    assert "That is enough." in measure("--topic", "orders", "--since", "1m")[1]
    assert clock == [NOW + 40 * MICROS]
    assert asked == [(NOW - 60 * MICROS, NOW)]


def test_what_can_be_measured_starts_spark(measure: Callable[..., tuple[int, str]]) -> None:
    assert "Spark was started" in measure("--topic", "orders")[1]


def test_a_topic_that_does_not_exist_yet_is_named_when_measuring_goes_on(
    measure: Callable[..., tuple[int, str]],
) -> None:
    err = measure("--topic", "soon", "--continuous")[1]

    assert "topic soon does not exist yet" in err
    assert "Spark was started" in err


def test_a_master_that_nobody_listens_at_is_named() -> None:
    (port,) = free_ports(1)

    with pytest.raises(
        ConfigError, match=rf"No Spark master could be reached: 127\.0\.0\.1:{port}"
    ):
        check_master(SparkOptions(master=f"spark://127.0.0.1:{port}"))


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]", "yarn"])
def test_masters_of_another_kind_are_not_asked(master: str) -> None:
    check_master(SparkOptions(master=master))


def test_one_master_of_several_is_enough() -> None:
    import socket

    (silent,) = free_ports(1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(SparkOptions(master=f"spark://127.0.0.1:{silent},127.0.0.1:{port}"))


def test_a_span_is_counted_back_from_when_the_command_was_given() -> None:
    assert span_of(60.0, None, None, now=NOW) == (NOW - 60 * MICROS, NOW)
    assert span_of(None, None, None, now=NOW) == (NOW - 300 * MICROS, NOW)
    assert span_of(None, 5, 9, now=NOW) == (5, 9)
    assert span_of(None, 5, NOW + MICROS, now=NOW) == (5, NOW)
    assert span_of(60.0, None, NOW - MICROS, now=NOW) == (NOW - 61 * MICROS, NOW - MICROS)
