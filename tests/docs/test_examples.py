"""What README and pages show is what one gets."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from tests import ROOT
from trimtab.cli.main import run

README = ROOT / "README.md"
DOCS = README.with_name("docs")


def test_the_plan_in_the_readme_is_the_plan_that_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = README.read_text(encoding="utf-8")
    example = re.search(r"^\$ echo '(.*?)' > loads\.json\n\$ .*?\n(.*?)^```", text, re.S | re.M)
    assert example is not None
    loads, shown = example.groups()
    (tmp_path / "loads.json").write_text(loads)

    code = run(["plan", "consumers", "--loads", str(tmp_path / "loads.json")])

    assert code == 0
    assert capsys.readouterr().out.splitlines()[:4] == shown.splitlines()


@pytest.mark.parametrize(
    "page",
    [page for page in sorted(DOCS.rglob("*.md")) if "\n>>> " in page.read_text(encoding="utf-8")],
    ids=lambda page: str(page.relative_to(DOCS)),
)
def test_a_session_in_the_docs_answers_as_shown(page: Path) -> None:
    found = doctest.testfile(str(page), module_relative=False, encoding="utf-8")

    assert found.attempted > 0
    assert found.failed == 0
