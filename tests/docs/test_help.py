"""Help: verbs in groups, and examples that the command line takes as they are."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from trimtab.cli import main
from trimtab.cli.examples import EXAMPLES as OF_THE_PRODUCT
from trimtab.cli.reference import commands
from trimtab_lab.cli.verbs import EXAMPLES as OF_THE_LABORATORY

LEAVES = {
    " ".join(path): command for path, command, _ in commands() if not hasattr(command, "commands")
}
EXAMPLES = {**OF_THE_PRODUCT, **OF_THE_LABORATORY}
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
    panels = {verb: command.rich_help_panel for verb, command in root.commands.items()}
    assert set(panels.values()) == set(main._GROUPS)
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


def test_the_laboratory_adds_its_verbs_and_a_broken_add_on_costs_only_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root: Any = get_command(main.app)
    assert {"demo", "experiment", "bench", "run"} <= set(root.commands)
    broken = EntryPoint(name="broken", value="nothing_of_ours:add", group=main.ADD_ONS)
    monkeypatch.setattr(main, "entry_points", lambda group: [broken])

    main._add_verbs_of_add_ons()

    assert "the verbs of nothing_of_ours:add are missing" in capsys.readouterr().err
