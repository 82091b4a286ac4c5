"""Help: verbs in groups, and examples that the command line takes as they are."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trimtab.cli import main
from trimtab.cli.examples import EXAMPLES
from trimtab.cli.reference import commands

LEAVES = {
    " ".join(path): command for path, command, _ in commands() if not hasattr(command, "commands")
}
SHOWN = [(name, example) for name, examples in EXAMPLES.items() for example in examples]


def test_every_verb_has_two_examples_and_no_other() -> None:
    assert EXAMPLES.keys() == LEAVES.keys()
    assert [name for name, examples in EXAMPLES.items() if len(set(examples)) < 2] == []


@pytest.mark.parametrize(("name", "example"), SHOWN, ids=[example for _, example in SHOWN])
def test_an_example_is_one_that_the_command_line_takes(
    name: str, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(example)
    assert words[: 1 + len(name.split())] == ["trimtab", *name.split()]

    context = LEAVES[name].make_context(name, words[1 + len(name.split()) :])  # raises if not

    assert context.args == []


def test_options_within_an_option_are_taken_too() -> None:
    for _, example in SHOWN:
        words = shlex.split(example)
        if "--consume" in words:
            inner = shlex.split(words[words.index("--consume") + 1])
            needed = ["--group", "g", "--topic", "t", "--index", "0"]
            LEAVES["consume"].make_context("consume", [*needed, *inner])


@pytest.mark.parametrize("path", [path for path, _, _ in commands() if path], ids=" ".join)
def test_help_shows_two_examples_unbroken(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run([*path, "--help"]) == 0
    below = capsys.readouterr().out.partition("Examples:\n")[2]
    lines = [line.strip() for line in below.splitlines() if line.strip()]
    assert len(lines) >= 2
    known = {example for _, example in SHOWN}
    assert set(lines) <= known


def test_verbs_are_grouped_by_what_they_are_for() -> None:
    root: Any = get_command(main.app)
    listed = [verb for verbs in main._VERBS.values() for verb in verbs]
    assert sorted(listed) == sorted(root.commands)
    out = subprocess.run(
        [sys.executable, "-m", "trimtab.cli.main", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COLUMNS": "80"},
    ).stdout
    places = [out.index(f"\n{title}:\n") for title in ("Look", "Decide", "Act", "Try")]
    assert places == sorted(places)
    assert out.index("\n  audit") < places[1] < out.index("\n  plan") < places[2]
    assert max(map(len, out.splitlines())) <= 80
