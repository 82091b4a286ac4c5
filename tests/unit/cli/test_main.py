"""Errors become exit codes in one place; results and talk do not mix."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

import pytest
import typer

import trimtab
from trimtab import errors
from trimtab.cli import main
from trimtab.cli.reference import commands
from trimtab.errors import BadFile, BrokerUnavailable, NoFeasiblePlan, PlanOutdated, TrimtabError
from trimtab.observe.logging import library_log


@pytest.fixture
def raising(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """A command line whose verb `fail` raises what the test puts in."""
    planted: dict[str, BaseException] = {}
    app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.callback()
    def _root() -> None: ...

    @app.command()
    def fail() -> None:
        raise planted["error"]

    monkeypatch.setattr(main, "_command", lambda: typer.main.get_command(app))
    return planted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.Findings("f"), 1),
        (BadFile("f"), 2),
        (BrokerUnavailable("f"), 3),
        (NoFeasiblePlan("f"), 4),
        (PlanOutdated("f"), 5),
        (TrimtabError("f"), 70),
        (RuntimeError("f"), 70),
        (KeyboardInterrupt(), 130),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_each_kind_of_error_has_its_exit_code(
    raising: dict[str, BaseException], error: BaseException, code: int
) -> None:
    raising["error"] = error

    assert main.run(["fail"]) == code


def test_an_error_is_one_line_and_a_hint_on_stderr(
    raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    long = "orders.json: steps[0].loads.orders.1: is negative: -5, " + "and so on " * 20
    raising["error"] = BadFile(long + "[red]end", hint="Write a number.")

    main.run(["fail"])

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines() == [f"error: {long}[red]end", "hint: Write a number."]


def test_a_fault_of_ours_shows_its_trace_and_asks_for_a_report(
    raising: dict[str, BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    raising["error"] = ZeroDivisionError("planted")

    main.run(["fail"])

    shown = capsys.readouterr()
    assert "planted" in shown.err
    assert "internal error in Trimtab" in shown.err


@pytest.mark.parametrize("arguments", [["nonsense"], ["plan", "consumers", "--nonsense"], ["plan"]])
def test_wrong_usage_has_exit_code_2(arguments: list[str]) -> None:
    assert main.run(arguments) == 2


def test_a_misspelt_verb_is_answered_with_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main.run(["aply"])

    assert "apply" in capsys.readouterr().err


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0

    assert capsys.readouterr().out == f"trimtab {trimtab.__version__}\n"


@pytest.mark.parametrize("path", [path for path, _, _ in commands()], ids=" ".join)
def test_help_works_for_every_verb_and_goes_to_stdout(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*path, "--help"]) == 0

    shown = capsys.readouterr()
    assert f"Usage: {' '.join(('trimtab', *path))} " in shown.out
    assert shown.err == ""


def test_sigterm_ends_a_verb_as_ctrl_c_does(monkeypatch: pytest.MonkeyPatch) -> None:
    cleaned = []

    def interrupted(*_: object, **__: object) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        finally:
            cleaned.append(1)

    def elsewhere(*_: object) -> None:  # lest a fault ends the tests
        raise SystemExit(99)

    monkeypatch.setattr(main, "_command", lambda: interrupted)
    before = signal.signal(signal.SIGTERM, elsewhere)
    try:
        code = main.run(["anything"])
        after = signal.getsignal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert code == 130
    assert cleaned
    assert after is elsewhere


def test_with_json_stdout_is_one_document(
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TRIMTAB_HOME", str(tmp_path_factory.mktemp("home")))

    assert main.run(["cluster", "status", "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["brokers"] == []


def test_what_is_logged_while_any_verb_runs_goes_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def speaks() -> Callable[..., None]:
        return lambda *_, **__: library_log().warning("brokers_were_slow")

    monkeypatch.setattr(main, "_command", speaks)

    assert main.run(["plan", "consumers", "--json"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert "brokers_were_slow" in said.err
