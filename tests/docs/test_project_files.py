"""The project speaks of itself alone: no machine's paths, no package registry, no loose ends."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import ROOT

TEXTS = {".py", ".md", ".toml", ".txt", ".cfg", ".html", ".jinja", ".css", ".js", ".json", ""}
SKIPPED = {".git", ".venv", "build", "dist", "__pycache__", "spark-warehouse", "artifacts"}


def _files() -> Iterator[Path]:
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [f for f in folders if f not in SKIPPED and not f.endswith(("_cache", "info"))]
        yield from (Path(folder, n) for n in names if Path(n).suffix in TEXTS)


def test_no_file_names_a_place_of_one_machine_or_a_registry() -> None:
    homes = re.compile(r"/(?:home|Users)/[a-z]+/|/root/|/work/(?:main|shared)|\bC:\\Users")
    registries = re.compile(
        r"https?://[^\s)]*(?:/simple\b|artifactory|nexus)|index-url|files\.pythonhosted\.org",
        re.IGNORECASE,
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in _files()
        if path != Path(__file__) and ".hypothesis" not in path.parts
        for pattern in (homes, registries)
        for match in pattern.finditer(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert found == []


def test_the_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []
    assert len(lines) == len({line.partition("==")[0].lower() for line in lines})


def test_every_dependency_is_pinned_and_has_a_note() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    names = [re.split(r"[<>=!~\[; ]", line)[0].lower() for line in wanted]
    pinned = (ROOT / "constraints.txt").read_text(encoding="utf-8").lower().replace("_", "-")
    notes = "".join(
        page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "decisions").glob("*.md")
    ).lower()

    assert [name for name in names if f"{name}==" not in pinned] == []
    assert [name for name in names if name not in notes] == []


@pytest.mark.parametrize("target", ["demo", "test", "lint", "docs", "bench", "clean"])
def test_make_knows(target: str) -> None:
    shown = subprocess.run(
        ["make", "--dry-run", target], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert shown.returncode == 0, shown.stderr


def test_ci_runs_make_test_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    lines = [
        line
        for line in script.read_text(encoding="utf-8").splitlines()
        if not line.startswith(("#", "set ", "cd "))
    ]

    assert os.access(script, os.X_OK)
    assert lines == ["exec make test"]
