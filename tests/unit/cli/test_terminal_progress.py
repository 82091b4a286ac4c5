"""What a service tells, as it is shown on stderr."""

from __future__ import annotations

import io

import pytest

from trimtab.cli import output
from trimtab.cli.output import TerminalProgress
from trimtab.services.progress import NoListener, ProgressListener


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Takes what would be shown on a terminal."""
    seen = io.StringIO()
    console = output._Plain(file=seen, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(output, "talk", console)
    return seen


def test_a_listener_may_be_a_terminal_or_none_at_all() -> None:
    listeners: list[ProgressListener] = [TerminalProgress(), NoListener()]

    assert len(listeners) == 2


def test_what_goes_on_notes_and_warnings_are_lines(capsys: pytest.CaptureFixture[str]) -> None:
    with TerminalProgress() as shown:
        shown.started("Sampling")
        shown.note("two brokers")
        shown.warning("topic a does not exist yet")
        shown.progress("work", 1, 100)

    assert capsys.readouterr().err.splitlines() == [
        "Sampling; press Ctrl-C to stop.",
        "two brokers",
        "warning: topic a does not exist yet",
    ]


def test_a_bar_is_shown_on_a_terminal(terminal: io.StringIO) -> None:
    with TerminalProgress(least=50) as shown:
        shown.progress("failures", 3, 60)

    assert "failures" in terminal.getvalue()
    assert "3/60" in terminal.getvalue()


def test_short_work_has_no_bar(terminal: io.StringIO) -> None:
    with TerminalProgress(least=50) as shown:
        shown.progress("failures", 3, 49)

    assert terminal.getvalue() == ""


def test_the_bar_may_be_stopped_and_begins_anew(terminal: io.StringIO) -> None:
    with TerminalProgress() as shown:
        shown.progress("watching", 1, 2)
        shown.stop()
        shown.progress("measuring", 0, None)
        shown.progress("measuring", 1, 3)

    assert "watching" in terminal.getvalue()
    assert "1/3" in terminal.getvalue()
