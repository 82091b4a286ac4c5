"""Measured figures in the how-tos are those of the kept results: new results need a new text."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests import ROOT

HOW_TO = ROOT / "docs" / "how-to"


def _kept(*path: str) -> Any:
    return json.loads(ROOT.joinpath(*path).read_text(encoding="utf-8"))


def test_the_cost_of_routing_is_what_the_benchmark_kept() -> None:
    kept = _kept("benchmarks", "results", "produce.json")["settings"]
    us, ratio = kept["thread_us_per_record"], kept["ratios"]
    measured = {
        "bare client, which stays on a partition for 10 ms": (us["bare"], 1),
        "`node`, a choice for each record": (us["node"], ratio["node"]),
        **{
            f"`node`, a choice per batch of {size}": (
                us[f"node per batch of {size}"],
                ratio[f"node per batch of {size}"],
            )
            for size in ("16 kB", "1 MB")
        },
        "bare client, with a delivery callback for each record": (us["bare, with a callback"], 1),
        "`node`, with one too": (
            us["node, with a callback on both sides"],
            ratio["node, with a callback on both sides"],
        ),
    }
    text = (HOW_TO / "route-keyless-records.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| ([\d.]+) µs \| ([\d.]+) \|$", text, re.MULTILINE)

    shown: dict[str, Any] = {what: (float(cost), float(part)) for what, cost, part in rows}

    assert shown == {
        what: (cost, pytest.approx(part, abs=0.0051)) for what, (cost, part) in measured.items()
    }
    more = (us["node"] - us["bare"]) * 10_000 / 1e6  # of a core, at 10 000 records per second
    assert f"`node` costs {more:.1%} of a core more".replace("%", " %") in text


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("U2 acks=all", "(ratio {ours:.2f}, interval {low:.3g} to {high:.3g}; above 1 is better)"),
        ("U3 acks=all", "it was {ours:.1f} times lower (interval {low:.3g} to {high:.3g})"),
    ],
)
def test_what_steering_brings_is_what_the_experiment_kept(setting: str, told: str) -> None:
    rows = _kept("docs", "papers", "results", "burato.json")["parts"]["open-loop"]["rows"]
    named = f"times lower p95 of weighted-node, {setting}, slowed, 1000 B at 70%"
    [row] = [row for row in rows if row["what"].startswith(named)]
    [(low, high)] = re.findall(r"interval ([\d.]+) – ([\d.]+)", row["what"])
    text = (HOW_TO / "steer-producers.md").read_text(encoding="utf-8")

    assert told.format(ours=row["ours"], low=float(low), high=float(high)) in text
