"""Compares live runs with the bars and the papers, and collects the data for plots.

Promise  Pure. A shortened run is never compared with a bar: its figures are shown without verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from trimtab_lab.papers.live.distributions import levels
from trimtab_lab.papers.live.plan import (
    CAPACITY_BYTES_S,
    INTERVAL_S,
    LINGER_MS,
    REPORTED_RATE,
    SERVICE_BYTES_S,
    SERVICE_MS,
    SIZE_MEANS,
    SLA_S,
    WAIT_S,
    LiveRun,
    LiveWorkload,
    Strategy,
)
from trimtab_lab.papers.live.response import MEASURED
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import ezzeddine as ezzeddine_paper
from trimtab_lab.papers.published import landau as landau_paper
from trimtab_lab.papers.verdict import RowVerdict, VerdictRow, at_least, at_most, for_information

Figures = Mapping[str, Any]
Found = Mapping[LiveRun, Figures]
Means = Mapping[Strategy, Figures]

SLA_BAR, MINUTES_BAR, STICKY_BAR, BLOCKED_BAR_S = 0.999, 22.0, 0.80, 1.0
BYTES_SLA_BAR = 0.99
"""In the paper's model (section VI-C) no byte waits longer than a move takes, 5 s."""

_MEANT = (
    *("records", "sla_share", "p50_s", "p90_s", "p99_s", "max_s", "replica_minutes", "moves"),
    *("most_replicas", "max_lag", "order_findings", "repeats", "unexplained", "decisions"),
    *("refused", "late", "tries"),
)


def comparison(found: Found, workload: LiveWorkload) -> Part:
    """The part of a workload: every strategy on the same schedule."""
    runs = {run: figures for run, figures in found.items() if run.workload is workload}
    by_strategy = {
        strategy: [figures for run, figures in runs.items() if run.strategy is strategy]
        for strategy in Strategy
    }
    means = {strategy: _mean(each) for strategy, each in by_strategy.items() if each}
    first = {strategy: each[0] for strategy, each in by_strategy.items() if each}
    one = next(iter(runs))
    return Part(
        settings=_settings(one, seeds=len({run.seed for run in runs})),
        rows=rows_of(means, workload, stretch=one.stretch),
        figures={
            "strategies": {str(s): dict(figures) for s, figures in means.items()},
            "delays": _chosen(first, "edges_s", "within", "p50_s", "p90_s", "p99_s", "max_s"),
            "curves": _chosen(first, "replicas", "lag", "changes", "ended_s"),
        },
    )


def rows_of(means: Means, workload: LiveWorkload, *, stretch: float) -> tuple[VerdictRow, ...]:
    """The rows of a workload, from the means of each strategy."""
    bars = _bytes_bars(means) if workload.in_bytes else _bars(means, workload)
    rows = [*_required(means), *bars, *_beside_the_paper(means, workload)]
    if stretch != 1:
        rows = [row if _always_checked(row) else replace(row, **_WITHOUT_VERDICT) for row in rows]
    return tuple(replace(row, what=f"{row.what}, {workload}") for row in rows)


_WITHOUT_VERDICT: dict[str, Any] = {"tolerance": None, "verdict": RowVerdict.NOT_COMPARABLE}
_ALWAYS_CHECKED = ("order findings ", "sla share of trim beside ")


def _always_checked(row: VerdictRow) -> bool:
    """Whether a row is checked for shortened runs as well."""
    return row.what.startswith(_ALWAYS_CHECKED)


def _settings(run: LiveRun, *, seeds: int) -> dict[str, Any]:
    service: dict[str, Any] = {"service ms": SERVICE_MS, "reported rate": REPORTED_RATE}
    if run.workload.in_bytes:
        service = {
            "service bytes/s": round(SERVICE_BYTES_S),
            "packing capacity bytes/s": round(CAPACITY_BYTES_S),
            "mean value bytes": list(SIZE_MEANS),
            "first s not judged": run.lead_in_s,
        }
    return {
        "workload": str(run.workload),
        **service,
        "sla_s": SLA_S,
        "decisions every s": INTERVAL_S,
        "window s": run.window_s,
        "fewer looked for after s": run.max_quiet_s,
        "cycle s": WAIT_S,
        "linger ms": LINGER_MS,
        "seeds": seeds,
        "stretch": run.stretch,
    }


def _mean(each: Sequence[Figures]) -> dict[str, Any]:
    """Means over seeds; times without reading are maxima over seeds."""
    means: dict[str, Any] = {name: fmean(f[name] for f in each) for name in _MEANT}
    for name in ("blocked", "handover", "rebalance"):
        known = [f[name] for f in each if f.get(name)]
        for level in ("p90_s", "max_s"):
            values = [k[level] for k in known if k[level] is not None]
            means[f"{name}_{level}"] = max(values, default=None)
    ages = [seconds for f in each for seconds in f.get("responses", {}).get(MEASURED, ())]
    means["rates_after_p50_s"] = levels(ages).get("p50")
    return means


def _chosen(first: Means, *names: str) -> dict[str, dict[str, Any]]:
    return {str(s): {name: figures[name] for name in names} for s, figures in first.items()}


# ---------------------------------------------------------------- rows


def _required(means: Means) -> Iterator[VerdictRow]:
    """Properties that must hold on any machine."""
    for strategy, figures in means.items():
        yield at_most(f"order findings of {strategy}", 0, figures["order_findings"])
    if {Strategy.OURS, Strategy.STICKY} <= means.keys():
        ours, sticky = (means[s]["sla_share"] for s in (Strategy.OURS, Strategy.STICKY))
        yield at_least("sla share of trim beside that of cooperative-sticky", sticky, ours)


def _bars(means: Means, workload: LiveWorkload) -> Iterator[VerdictRow]:
    ezzeddine = workload is LiveWorkload.EZZEDDINE_1
    if (ours := means.get(Strategy.OURS)) is not None and ezzeddine:
        yield at_least("sla share of trim", SLA_BAR, ours["sla_share"])
        yield at_most("replica-minutes of trim", MINUTES_BAR, ours["replica_minutes"])
    judged = (Strategy.OURS, Strategy.LL_FFD, Strategy.LL_FFD_GROUP)
    for strategy in judged if ezzeddine else judged[:1]:
        for what, figure in (
            ("blocked s of a move of", "blocked_p90_s"),
            ("s without reading in a rebalance of", "rebalance_p90_s"),
        ):
            seconds = means.get(strategy, {}).get(figure)
            if seconds is not None:
                known = ezzeddine_paper.BLOCKED_P90_S if ezzeddine else None
                yield at_most(f"{what} {strategy}, p90", BLOCKED_BAR_S, seconds, paper=known)
    if ezzeddine and Strategy.STICKY in means:
        share = means[Strategy.STICKY]["sla_share"]
        known = ezzeddine_paper.STICKY_SLA_SHARE
        yield at_most("sla share of cooperative-sticky", STICKY_BAR, share, paper=known)


def _bytes_bars(means: Means) -> Iterator[VerdictRow]:
    """Landau's loop on real brokers: nearly all records within the 5 s that a move may take."""
    for strategy in (Strategy.OURS, Strategy.MWF):
        if strategy in means:
            share = means[strategy]["sla_share"]
            yield at_least(f"share within {SLA_S:g} s of {strategy}", BYTES_SLA_BAR, share)


def _beside_the_paper(means: Means, workload: LiveWorkload) -> Iterator[VerdictRow]:
    """The paper's own figures, for information: they are from other machines."""
    if workload is not LiveWorkload.EZZEDDINE_1:
        return
    paper = ezzeddine_paper
    model = paper.REPLICA_MINUTES_MODEL[REPORTED_RATE]
    for strategy in (Strategy.LL_FFD, Strategy.LL_FFD_GROUP):
        if (found := means.get(strategy)) is not None:
            yield for_information(
                f"sla share of {strategy}", found["sla_share"], paper=paper.SLA_SHARE
            )
            yield for_information(
                f"replica-minutes of {strategy}",
                found["replica_minutes"],
                paper=paper.REPLICA_MINUTES,
                model=model,
            )
    if (found := means.get(Strategy.STICKY)) is not None:
        yield for_information(
            "max lag of cooperative-sticky", found["max_lag"], paper=paper.STICKY_MAX_LAG
        )


# ---------------------------------------------------------------- Landau


def peak(found: Mapping[str, Figures], *, scale: float) -> Part:
    """The consumer's peak rate in the three tests of Table VI."""
    rows = [
        for_information(f"peak MB/s, {name}", figures["mode_mb_s"], paper=landau_paper.PEAK_MB_S)
        for name, figures in found.items()
    ]
    return Part(
        settings={"scale of sizes": scale, "batch bytes": 5_000_000, "wait s": 1.0},
        rows=tuple(rows),
        figures={"conditions": dict(found)},
    )


def responses(found: Mapping[str, Mapping[str, Any]], *, stretch: float) -> Part:
    """The four response times, by workload; the paper gives orders of magnitude."""
    rows = []
    for workload, spans in found.items():
        for name, figures in spans.items():
            bound = landau_paper.RESPONSES_S.get(name)
            p90 = figures["levels"].get("p90")
            rows.append(for_information(f"{name} s, p90, {workload}", p90, paper=bound))
    return Part(
        settings={"planner": str(Strategy.MWF), "stretch": stretch},
        rows=tuple(rows),
        figures={"responses": {name: dict(spans) for name, spans in found.items()}},
    )
