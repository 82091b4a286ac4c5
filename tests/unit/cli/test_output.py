"""Text is printed as it is, however long; results go where -o says."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from trimtab.cli.output import result, say, warn, write_file

LONG = "127.0.0.1:20001,[red]" + ",".join(f"/a/long/path/{n}" for n in range(20))


def test_no_line_of_talk_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    say(LONG)
    warn([LONG])

    assert capsys.readouterr().err == f"{LONG}\nwarning: {LONG}\n"


def test_a_line_of_text_among_the_results_is_not_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")

    result(LONG)

    assert capsys.readouterr().out == f"{LONG}\n"


def test_an_output_that_is_thrown_away_leaves_the_device_as_it_is() -> None:
    write_file(Path("/dev/null"), "{}\n")

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
