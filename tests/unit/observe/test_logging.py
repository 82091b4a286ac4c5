"""How the doors log."""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
import structlog

from trimtab.observe.logging import configure, library_log


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    clients = [logging.getLogger(name) for name in ("kafka", "librdkafka")]
    before = [(c.level, c.handlers, c.propagate) for c in clients]
    yield
    structlog.reset_defaults()
    for client, (level, handlers, propagate) in zip(clients, before, strict=True):
        client.setLevel(level)
        client.handlers, client.propagate = handlers, propagate


def test_events_are_json_on_stderr_when_nobody_watches(capsys: pytest.CaptureFixture[str]) -> None:
    configure()

    structlog.get_logger().warning("sample_skipped", why="no broker")

    said = capsys.readouterr()
    event = json.loads(said.err)
    assert (event["event"], event["why"]) == ("sample_skipped", "no broker")
    assert said.out == ""


@pytest.mark.parametrize(("verbose", "lines"), [(False, 0), (True, 1)])
def test_what_merely_happened_is_said_only_to_those_who_ask(
    capsys: pytest.CaptureFixture[str], verbose: bool, lines: int
) -> None:
    configure(verbose=verbose)

    structlog.get_logger().info("sample_taken")

    assert len(capsys.readouterr().err.splitlines()) == lines


def test_clients_are_silent_unless_asked_and_never_print_what_they_send(
    capsys: pytest.CaptureFixture[str],
) -> None:
    client = logging.getLogger("kafka.net")
    configure()
    client.error("lost")
    configure(verbose=True)
    client.info("connected")
    client.debug("Send: b'password'")

    assert capsys.readouterr().err.splitlines() == ["connected"]


def test_a_line_is_written_at_once_so_that_no_other_thread_gets_into_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[str] = []

    class Recorded(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    monkeypatch.setattr(sys, "stderr", Recorded())
    configure(verbose=True)

    structlog.get_logger().info("sample_taken")

    assert [text[-1] for text in written] == ["\n"]


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "exception"])
def test_in_a_program_that_configured_nothing_events_go_to_pythons_logging(
    level: str, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    structlog.reset_defaults()
    caplog.set_level(logging.DEBUG, "trimtab")

    getattr(library_log(), level)("records_are_not_routed", topic="orders")

    (said,) = caplog.records
    assert said.getMessage() == "records_are_not_routed topic='orders'"
    assert said.levelname == ("ERROR" if level == "exception" else level.upper())
    assert capsys.readouterr().out == ""


def test_where_structlog_is_configured_events_go_there(capsys: pytest.CaptureFixture[str]) -> None:
    configure()

    library_log().warning("records_are_not_routed", topic="orders")

    event = json.loads(capsys.readouterr().err)
    assert (event["event"], event["topic"]) == ("records_are_not_routed", "orders")
