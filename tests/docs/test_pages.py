"""Every page of the documentation: its links resolve, its JSON parses, its commands exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import trimtab
from tests import ROOT
from trimtab.cli.reference import commands
from trimtab.errors import TrimtabError
from trimtab.model.codec import counts_from, loads_from, measurement_from, snapshot_from
from trimtab.model.json_reader import parse
from trimtab.model.plan_codec import plan_from

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = {path: command for path, command, _ in commands()}


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _blocks(language: str) -> list[Any]:
    """The fenced blocks of a language: place and text."""
    return [pytest.param(place, text, id=place) for place, text in _fenced(language)]


def _fenced(language: str) -> Iterator[tuple[str, str]]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield f"{_name(page)}:{text.count(chr(10), 0, found.start()) + 1}", found[1]


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_the_links_of_a_page_resolve(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        if target.startswith(("http://", "https://")):
            continue
        there = (page.parent / target).resolve() if target else page
        if not there.exists() or (anchor and anchor not in _anchors(there)):
            broken.append(link)

    assert broken == []


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "docs" / "index.md"]
    while ahead:
        page = ahead.pop()
        if page in seen:
            continue
        seen.add(page)
        for link in re.findall(r"\]\(([^)#\s]+\.md)", page.read_text(encoding="utf-8")):
            there = (page.parent / link).resolve()
            if there.is_relative_to(ROOT / "docs"):
                ahead.append(there)

    assert [_name(page) for page in PAGES if "docs" in page.parts and page not in seen] == []


@pytest.mark.parametrize(("place", "text"), _blocks("json"))
def test_an_example_of_a_file_is_one_that_we_read(place: str, text: str) -> None:
    value = json.loads(text)
    node = parse(text, origin=place)

    if "steps" in value:
        loads_from(node)
    elif "brokers" in value:
        snapshot_from(node)
    elif "partition_totals" in value:
        counts_from(node)
    elif value.get("kind") == "measurement":
        measurement_from(node)
    elif value.get("kind") == "plan":
        plan_from(node)
    else:
        newest = 2 if "sample_id" in value else 1  # telemetry is in its second version
        assert value["v"] == newest  # a record of a topic, or a result

    assert node.warnings == []


@pytest.mark.parametrize(("place", "text"), _blocks("json-bad"))
def test_an_example_of_a_bad_file_is_refused_with_the_line_shown(place: str, text: str) -> None:
    # The page shows the complaint right below: `error: FILE: …`.
    page, line = place.rsplit(":", 1)
    below = (ROOT / page).read_text(encoding="utf-8").splitlines()[int(line) :]
    shown = next(text for text in below if text.startswith("error: "))
    name = shown.removeprefix("error: ").partition(":")[0]

    with pytest.raises(TrimtabError) as refused:
        (snapshot_from if "snapshot" in name else loads_from)(parse(text, origin=name))

    assert shown == f"error: {refused.value.message}"


ALSO_PUBLIC = {"trimtab.local.cluster.LocalCluster"}
"""What api.md names beside the names of `trimtab` itself."""


def _imports() -> Iterator[Any]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in re.finditer(r"^(?:>>> )?from (trimtab[\w.]*) import (.+)$", text, re.M):
            line = text.count("\n", 0, found.start()) + 1
            names = re.findall(r"\w+", found[2])
            yield pytest.param(found[1], names, id=f"{_name(page)}:{line}")


@pytest.mark.parametrize(("module", "names"), list(_imports()))
def test_what_the_docs_import_is_public(module: str, names: list[str]) -> None:
    if module == "trimtab":
        assert set(names) <= set(trimtab.__all__)
    else:
        said = (ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8")
        for name in names:
            assert f"{module}.{name}" in ALSO_PUBLIC
            assert f"`{module}.{name}`" in said


def _command_lines() -> Iterator[Any]:
    for place, text in _fenced("console"):
        for line in text.replace("\\\n", " ").splitlines():
            if line.startswith("$ trimtab"):
                words = shlex.split(line.removeprefix("$ "), comments=True)
                yield pytest.param(words[1:], id=f"{place} {' '.join(words[:4])}")


@pytest.mark.parametrize("words", list(_command_lines()))
def test_a_command_line_in_the_docs_exists_with_its_options(words: list[str]) -> None:
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in COMMANDS:
        path = (*path, words.pop(0))

    known = {name for p in COMMANDS[path].params for name in p.opts} | {"--help", "--version"}
    used = {word.partition("=")[0] for word in words if word.startswith("-") and len(word) > 1}

    is_group = hasattr(COMMANDS[path], "commands")
    assert not is_group or used & {"--help", "--version"}, f"{words} names no command"
    assert used <= known


def _mentions() -> Iterator[Any]:
    """Commands within sentences: `trimtab VERB …`."""
    for page in PAGES:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.M)
        for found in sorted(set(re.findall(r"`trimtab ([a-z][^`]*)`", text))):
            yield pytest.param(found.split(), id=f"{_name(page)} {found}")


@pytest.mark.parametrize("words", list(_mentions()))
def test_a_command_named_in_a_sentence_exists_with_its_options(words: list[str]) -> None:
    path: tuple[str, ...] = ()
    while words and (*path, words[0]) in COMMANDS:
        path = (*path, words.pop(0))

    assert path, f"there is no verb {words[0]}"
    below = [command for other, command in COMMANDS.items() if other[: len(path)] == path]
    options = [p for command in below for p in command.params]
    known = {name for p in options for name in (*p.opts, *p.secondary_opts)}
    used = {word.partition("=")[0] for word in words if re.match("--?[a-z]", word)}
    assert used <= known | {"--help", "--version"}
    nothing_or_placeholder = not words or not re.match(r"[a-z]", words[0])
    assert nothing_or_placeholder or not hasattr(COMMANDS[path], "commands"), words


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_a_list_of_verbs_names_verbs_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    verbs = {path[0] for path in COMMANDS if path}
    for found in re.findall(r"`[a-z]+`(?:(?:, | and |, and )`[a-z]+`)+", text):
        names = re.findall(r"[a-z]+", found.replace(" and ", " "))
        if sum(name in verbs for name in names) > 1:
            assert set(names) <= verbs, found


def test_every_path_on_the_page_for_changes_exists_but_those_that_are_to_be_made() -> None:
    text = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:trimtab_lab/)?[a-z_]+/[a-z_/]+(?:\.py|/))`", text)
    new = {"plan/keys/", "plan/brokers/"}

    def found(path: str) -> bool:
        base = ROOT / "src" if path.startswith("trimtab_lab") else ROOT / "src" / "trimtab"
        return (base / path).exists()

    assert len(named) > 30
    assert [path for path in named if path not in new and not found(path)] == []
