"""A snapshot as tables."""

from __future__ import annotations

import io
import re
from dataclasses import replace

from rich.console import Console

from trimtab.report.snapshot import snapshot_view
from trimtab.testing.placements import placement


def test_a_broker_that_is_down_is_marked() -> None:
    taken = placement({"A": [[1, 2], [2, 1]]})
    alive = (True, False)
    brokers = tuple(replace(b, alive=up) for b, up in zip(taken.brokers, alive, strict=True))
    console = Console(width=100, file=io.StringIO())

    with console.capture() as captured:
        console.print(snapshot_view(replace(taken, brokers=brokers)))

    assert re.search(r"^ 1 +–", captured.get(), re.M)
    assert re.search(r"^ 2 \(down\) +–", captured.get(), re.M)
