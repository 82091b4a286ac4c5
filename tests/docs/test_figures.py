"""Figures in README and how-tos are those of the kept results: new results need a new text."""

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


README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_strategies_in_the_readme_are_what_the_experiment_kept() -> None:
    parts = _kept("docs", "papers", "results", "ezzeddine-live.json")["parts"]
    kept = parts["live-workload-1"]["figures"]["strategies"]
    shown = re.findall(r"^\| .+ \| ([\d.]+%) \| ([\d.]+) s \| ([\d.]+) \|$", README, re.MULTILINE)

    assert shown == [
        (f"{of['sla_share']:.2%}", f"{of['p99_s']:.3g}", f"{of['replica_minutes']:.1f}")
        for of in (kept[name] for name in ("trim", "cooperative-sticky", "keda-lag", "fixed"))
    ]
    paused = [f"{kept[name]['blocked_p90_s']:.1f} s" for name in ("trim", "ll-ffd-group")]
    assert f"for {paused[0]} (90th percentile)" in README
    assert f"the pause is {paused[1]}" in README
    walks = _kept("docs", "papers", "results", "landau-live.json")["parts"]
    told = " and ".join(
        " against ".join(
            f"{walks[f'live-{walk}']['figures']['strategies'][name]['replica_minutes']:.1f}"
            for name in ("trim", "keda-lag")
        )
        for walk in ("delta-5", "delta-25")
    )
    assert f"it was {told} replica-minutes" in README


def test_the_moved_load_in_the_readme_is_what_the_experiment_kept() -> None:
    rows = _kept("docs", "papers", "results", "landau.json")["parts"]["beyond"]["rows"]

    def of(*words: str) -> list[tuple[float, float]]:
        return [(r["ours"], r["bar"]) for r in rows if all(word in r["what"] for word in words)]

    less = [ours for ours, _ in of("(a) trim's e_rscore below bfd's")]
    more = [ours / mwf - 1 for ours, mwf in of("(c) e_rscore trim against mwf's")]
    with_slack = [ours for ours, _ in of("(b) e_rscore trim slack 0.03 below mwf's")]
    assert f"moves {min(less):.0%} to {max(less):.0%} less load than".replace("%", " %") in README
    assert f"moves {min(more):.0%} to {max(more):.0%} more load than".replace("%", " %") in README
    told = f"moves {min(with_slack):.0%} to {max(with_slack):.0%} less than MWF"
    assert told.replace("%", " %") in README


def test_the_routing_figures_in_the_readme_are_what_the_experiment_kept() -> None:
    rows = _kept("docs", "papers", "results", "burato.json")["parts"]["open-loop"]["rows"]

    def lower(setting: str) -> list[float]:
        named = f"times lower p95 of weighted-node, {setting}, slowed"
        return [row["ours"] for row in rows if row["what"].startswith(named)]

    one = lower("U2 acks=1")
    assert f"is {min(one):.1f} to {max(one):.1f} times lower than" in README
    assert f"With acks=all it is {lower('U3 acks=all')[0]:.1f} times lower" in README
    assert f"no better ({lower('U2 acks=all')[0]:.2f} times)" in README


def test_the_migrations_in_the_readme_are_what_the_experiment_kept() -> None:
    parts = _kept("docs", "papers", "results", "smalops.json")["parts"]
    hash_, smalops, trim = (
        parts["delays"]["figures"]["policies"]["50"][name] for name in ("hash", "smalops", "trim")
    )
    assert f"from {hash_['p99_us']:.0f} µs to {trim['p99_us']:.0f} µs" in README
    needs = f"{smalops['migrations']:.0f} migrations and {smalops['tracked']:.0f} tracked keys"
    assert f"SMALOPS needs {needs} for {smalops['p99_us']:.0f} µs" in README
    assert f"`trim` {trim['migrations']:.0f} and {trim['tracked']:.0f}." in README


def test_the_benchmarks_in_the_readme_are_those_kept() -> None:
    names = ("produce", "live-rate", "rates", "rates-samples")
    kept = {name: _kept("benchmarks", "results", f"{name}.json") for name in names}

    assert f"sends {kept['produce']['ratio']:.2f} times as many records" in README
    assert f"published {kept['live-rate']['ours']:.3f} s after" in README
    assert f"runs at {kept['rates']['ratio']:.2f} times" in README
    assert f"log sizes at {kept['rates-samples']['ratio']:.2f} times" in README
