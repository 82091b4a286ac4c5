"""What the README shows is what one gets."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from trimtab.cli.main import run

README = Path(__file__).parents[2] / "README.md"


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
