"""Live runs side by side: rows against the bars and the papers, and what pictures are drawn of.

Promise  Pure. A run that was shortened is never judged by a bar: its figures only stand there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from trimtab.experiments.live.distributions import levels
from trimtab.experiments.live.plan import (
    INTERVAL_S,
    LINGER_MS,
    MAX_QUIET_S,
    REPORTED_RATE,
    SERVICE_MS,
    SLA_S,
    WAIT_S,
    LiveRun,
    Strategy,
    Workload,
)
from trimtab.experiments.live.response import MEASURED
from trimtab.experiments.part import Part
from trimtab.experiments.published import ezzeddine as ezzeddine_paper
from trimtab.experiments.published import landau as landau_paper
from trimtab.experiments.verdict import Row, Verdict, at_least, at_most, beside

Figures = Mapping[str, Any]
Found = Mapping[LiveRun, Figures]

SLA_BAR, MINUTES_BAR, STICKY_BAR, BLOCKED_BAR_S = 0.999, 22.0, 0.80, 1.0
_MEANT = (
    *("records", "sla_share", "p50_s", "p90_s", "p99_s", "max_s", "replica_minutes", "moves"),
    *("most_replicas", "max_lag", "order_findings", "repeats", "unexplained", "decisions"),
    *("refused", "late", "tries"),
)


def comparison(found: Found, workload: Workload) -> Part:
    """A workload's part: every strategy on the same schedule."""
    runs = {run: figures for run, figures in found.items() if run.workload is workload}
    stretch = next(iter(runs)).stretch
    by_strategy = {
        strategy: [figures for run, figures in runs.items() if run.strategy is strategy]
        for strategy in Strategy
    }
    means = {strategy: _mean(each) for strategy, each in by_strategy.items() if each}
    rows = [*_sound(means), *_bars(means, workload), *_published(means, workload)]
    if stretch != 1:
        rows = [row if _always(row) else replace(row, **_UNJUDGED) for row in rows]
    first = {strategy: each[0] for strategy, each in by_strategy.items() if each}
    named = tuple(replace(row, what=f"{row.what}, {workload}") for row in rows)
    return Part(
        settings=_settings(workload, stretch, len({run.seed for run in runs})),
        rows=named,
        figures={
            "strategies": {str(s): dict(figures) for s, figures in means.items()},
            "delays": _chosen(first, "edges_s", "within", "p50_s", "p90_s", "p99_s", "max_s"),
            "curves": _chosen(first, "replicas", "lag", "changes", "ended_s"),
        },
    )


_UNJUDGED: dict[str, Any] = {"tolerance": None, "verdict": Verdict.NOT_COMPARABLE}
_SOUND = ("order findings ", "decisions without a reason ", "sla share of ours above ")


def _always(row: Row) -> bool:
    """Whether a row does not depend on how long the run was."""
    return row.what.startswith(_SOUND)


def _settings(workload: Workload, stretch: float, seeds: int) -> dict[str, Any]:
    return {
        "workload": str(workload),
        "service ms": SERVICE_MS,
        "reported rate": REPORTED_RATE,
        "sla_s": SLA_S,
        "decisions every s": INTERVAL_S,
        "fewer looked for after s": MAX_QUIET_S,
        "cycle s": WAIT_S,
        "linger ms": LINGER_MS,
        "seeds": seeds,
        "stretch": stretch,
    }


def _mean(each: Sequence[Figures]) -> dict[str, Any]:
    """Means over seeds; blocked times are the worst of them."""
    means: dict[str, Any] = {name: fmean(f[name] for f in each) for name in _MEANT}
    for name in ("blocked", "handover"):
        known = [f[name]["p90_s"] for f in each if f[name] and f[name]["p90_s"] is not None]
        means[f"{name}_p90_s"] = max(known, default=None)
        most = [f[name]["max_s"] for f in each if f[name] and f[name]["max_s"] is not None]
        means[f"{name}_max_s"] = max(most, default=None)
    ages = [seconds for f in each for seconds in f.get("responses", {}).get(MEASURED, ())]
    means["rates_after_p50_s"] = levels(ages).get("p50")
    return means


def _chosen(first: Mapping[Strategy, Figures], *names: str) -> dict[str, dict[str, Any]]:
    return {str(s): {name: figures[name] for name in names} for s, figures in first.items()}


def _sound(means: Mapping[Strategy, Figures]) -> list[Row]:
    """What must hold whatever the machine does."""
    rows = []
    for strategy, figures in means.items():
        rows.append(at_most(f"order findings {strategy}", 0, figures["order_findings"]))
        if strategy.directed:
            rows.append(
                at_most(f"decisions without a reason {strategy}", 0, figures["unexplained"])
            )
    if {Strategy.OURS, Strategy.STICKY} <= means.keys():
        ours, sticky = (means[s]["sla_share"] for s in (Strategy.OURS, Strategy.STICKY))
        rows.append(at_least("sla share of ours above cooperative-sticky", sticky, ours))
    return rows


def _bars(means: Mapping[Strategy, Figures], workload: Workload) -> list[Row]:
    rows = []
    if (ours := means.get(Strategy.OURS)) is not None:
        if workload is Workload.EZZEDDINE_1:
            rows += [
                at_least("sla share ours", SLA_BAR, ours["sla_share"]),
                at_most("replica-minutes ours", MINUTES_BAR, ours["replica_minutes"]),
            ]
        rows.append(
            beside("s from a sample to its rates, p50, ours", None, ours["rates_after_p50_s"])
        )
        rows.append(
            beside("s from stop to started of a move, p90, ours", None, ours["handover_p90_s"])
        )
        if ours["blocked_p90_s"] is not None:
            rows.append(
                at_most("blocked s of a move, p90, ours", BLOCKED_BAR_S, ours["blocked_p90_s"])
            )
    if workload is Workload.EZZEDDINE_1 and Strategy.STICKY in means:
        share = means[Strategy.STICKY]["sla_share"]
        rows.append(at_most("sla share cooperative-sticky", STICKY_BAR, share))
    return rows


def _published(means: Mapping[Strategy, Figures], workload: Workload) -> list[Row]:
    """The papers' own figures, for information: their machines were others."""
    if workload is not Workload.EZZEDDINE_1:
        return []
    known: Sequence[tuple[Strategy, str, float]] = (
        (Strategy.LL_FFD, "sla_share", ezzeddine_paper.SLA_SHARE),
        (Strategy.LL_FFD, "replica_minutes", ezzeddine_paper.REPLICA_MINUTES),
        (Strategy.STICKY, "sla_share", ezzeddine_paper.STICKY_SLA_SHARE),
        (Strategy.STICKY, "max_lag", ezzeddine_paper.STICKY_MAX_LAG),
    )
    return [
        beside(
            f"{figure.replace('_', ' ')} {strategy}, the paper's", value, means[strategy][figure]
        )
        for strategy, figure, value in known
        if strategy in means
    ]


# ---------------------------------------------------------------- Landau


def peak(found: Mapping[str, Figures], *, scale: float) -> Part:
    """The consumer's peak rate under the three conditions of Table VI."""
    rows = [
        beside(f"peak MB/s, {name}", landau_paper.PEAK_MB_S, figures["mode_mb_s"])
        for name, figures in found.items()
    ]
    modes = [figures["mode_mb_s"] for figures in found.values()]
    rows.append(beside("peak: largest over smallest of the three", None, max(modes) / min(modes)))
    return Part(
        settings={"scale of sizes": scale, "batch bytes": 5_000_000, "wait s": 1.0},
        rows=tuple(rows),
        figures={"conditions": dict(found)},
    )


def responses(found: Mapping[str, Mapping[str, Any]], *, stretch: float) -> Part:
    """The four response times, by workload; published are orders of magnitude."""
    rows = []
    for workload, spans in found.items():
        for name, figures in spans.items():
            bound = landau_paper.RESPONSES_S.get(name)
            p90 = figures["levels"].get("p90")
            rows.append(beside(f"{name} s, p90, {workload}", bound, p90))
    return Part(
        settings={"planner": str(Strategy.MWF), "stretch": stretch},
        rows=tuple(rows),
        figures={"responses": {name: dict(spans) for name, spans in found.items()}},
    )
