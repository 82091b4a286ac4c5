"""The page about keyed order names every broken variant that the model knows."""

from __future__ import annotations

import re

from tests import ROOT
from trimtab.simulate.key_protocol.broken_variants import BROKEN_VARIANTS

PAGE = (ROOT / "docs" / "concepts-keyed-order.md").read_text(encoding="utf-8")


def test_the_page_lists_the_variants_as_they_are() -> None:
    listed = re.findall(r"^\| `([a-z-]+)` \| (.*?) \| (.*?) \|", PAGE, re.MULTILINE)

    assert listed == [
        (variant.name, variant.wrong, variant.kind.split(" (")[0]) for variant in BROKEN_VARIANTS
    ]
