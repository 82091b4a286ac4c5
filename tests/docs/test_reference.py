"""docs/reference says what the code does, and all of it."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT
from trimtab.cli.reference import SAMPLE, commands, pages, settings_of
from trimtab.kafka.topics import OwnTopics
from trimtab.observe import metrics
from trimtab.plan.registry import PLANNERS
from trimtab.settings import Settings, load_settings

REFERENCE = ROOT / "docs" / "reference"
LEAVES = [
    (path, command) for path, command, _ in commands() if path and not hasattr(command, "commands")
]


def _read(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", sorted(pages()))
def test_a_page_is_what_the_code_makes_of_it(name: str) -> None:
    assert _read(name) == pages()[name], f"docs/reference/{name} is stale: run `make docs`"


def test_no_page_is_left_over() -> None:
    by_hand = {"formats.md", "index.md"}

    assert {path.name for path in REFERENCE.iterdir()} == pages().keys() | by_hand


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_a_command_and_all_its_options_are_documented(path: tuple[str, ...], command: Any) -> None:
    title = " ".join(("trimtab", *path))
    section = _read("cli.md").partition(f"\n## {title}\n")[2].partition("\n## ")[0]

    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    options = [name for parameter in shown for name in parameter.opts if name[0] == "-"]

    assert [name for name in options if not re.search(rf"[\s]{name}[\s,/]", section)] == []
    assert options


@pytest.mark.parametrize(("path", "command"), LEAVES, ids=[" ".join(path) for path, _ in LEAVES])
def test_a_command_speaks_json_and_explains_each_option(
    path: tuple[str, ...], command: Any
) -> None:
    options = [parameter for parameter in command.params if parameter.opts[0].startswith("-")]

    assert any("--json" in option.opts for option in options)
    assert [option.opts for option in options if not option.help] == []
    assert command.help


@pytest.mark.parametrize(
    ("group", "context"),
    [(group, context) for _, group, context in commands() if hasattr(group, "commands")],
    ids=lambda value: getattr(value, "name", None),
)
def test_the_first_lines_of_the_verbs_fit_into_a_narrow_terminal(group: Any, context: Any) -> None:
    context.terminal_width = 80

    assert "..." not in group.get_help(context).partition("Commands:")[2]


@pytest.mark.parametrize("setting", [name for name, _, _ in settings_of(Settings)])
def test_a_setting_is_documented(setting: str) -> None:
    row = next(line for line in _read("settings.md").splitlines() if f"| `{setting}` |" in line)

    assert f"`TRIMTAB_{setting.upper().replace('.', '__')}`" in row
    assert re.search(r"\w", row.split("|")[4])


def test_every_planner_topic_and_metric_is_documented() -> None:
    planners = [name for named in PLANNERS.values() for name in named]

    assert [name for name in planners if f"| `{name}` |" not in _read("planners.md")] == []
    topics = (*OwnTopics().all, *OwnTopics().of_steering)
    assert [t.name for t in topics if f"\n## {t.name}\n" not in _read("topics.md")] == []
    families = [family for _, metric in metrics.ALL for family in metric.describe()]
    assert [f.name for f in families if f.name not in _read("metrics.md")] == []


def test_the_sample_of_settings_names_every_setting_with_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample = _read(SAMPLE)
    for name in [name for name in os.environ if name.startswith("TRIMTAB_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trimtab.toml").write_text(sample, encoding="utf-8")
    assert load_settings() == Settings()  # as it is, it changes nothing

    set_lines = re.sub(r"^#(\w+ = )", r"\1", sample, flags=re.M)
    given = tomllib.loads(set_lines)
    (tmp_path / "trimtab.toml").write_text(set_lines, encoding="utf-8")
    loaded = load_settings()  # with every line in force it is valid

    def flat(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
        for name, value in tree.items():
            if isinstance(value, dict) and value:
                yield from flat(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", value

    assert [name for name, _ in flat(given)] == [name for name, _, _ in settings_of(Settings)]
    monkeypatch.chdir(tmp_path.parent)
    default = dict(flat(load_settings().model_dump()))
    differs = {name for name, value in flat(loaded.model_dump()) if value != default[name]}
    unset = {name for name, value in default.items() if value is None}
    assert differs - {"home", "cache"} == unset
