"""The tour of the README is a part of the quickstart, which a test runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

from tests import ROOT

README = ROOT / "README.md"
QUICKSTART = README.with_name("docs") / "quickstart.md"


def commands_of(page: Path, *, after: str, before: str | None = None) -> list[str]:
    """The commands in a page's console blocks, from one heading to another."""
    text = page.read_text(encoding="utf-8").partition(f"\n{after}")[2]
    assert text, f"{page.name} has no {after}"
    if before is not None:
        text = text.partition(f"\n{before}")[0]
    blocks = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def test_the_tour_is_a_part_of_the_quickstart_in_the_same_order() -> None:
    tour = commands_of(README, after="## A tour", before="No cluster at hand?")
    steps = commands_of(QUICKSTART, after="## 2. ")

    assert len(tour) >= 8
    assert [step for step in steps if step in tour] == tour
