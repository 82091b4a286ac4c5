"""Runs side by side: means with intervals, rows against the aims and the thesis.

Promise  Pure. Every figure of a cell is from the same samples; an interval is Student's, at 95 %,
         over repetitions. Losses stand there like wins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean, median, stdev
from typing import Any, NamedTuple

from trimtab.experiments.burato.design import (
    GAUGE,
    OURS,
    BrokerRun,
    Cell,
    Kind,
    Policy,
    Setting,
    World,
    cell_to,
)
from trimtab.experiments.part import Part
from trimtab.experiments.published import burato as paper
from trimtab.experiments.verdict import Row, Verdict, at_least, beside
from trimtab.plan.routing.partitioner import Granularity

Figures = Mapping[str, Any]
Found = Mapping[BrokerRun, Figures]

LOWER_BAR = 3.0
"""How many times lower the p95 of ours is to be where one broker is slow."""

MARGIN = 1.25
"""On even brokers ours is no worse where its p95 is surely below so many times the other's."""

LATE_AT_MOST = 0.02
"""Where more was sent late, the client was too slow, and nothing is judged."""

_ENOUGH = 5
_DELAYS = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "mean_ms", "max_ms")
_RATIOS = ("broker_ratio", "partition_ratio")
_BARRED = (("U2", "1"), ("U3", "all"))


class Interval(NamedTuple):
    """A mean and how far the truth may be from it; infinite for a single value."""

    mean: float
    half: float

    def to_json(self) -> list[float | None]:
        """Mean, low and high; unknown ends are null."""
        if not math.isfinite(self.half):
            return [_short(self.mean), None, None]
        return [_short(self.mean), _short(self.mean - self.half), _short(self.mean + self.half)]


def interval(values: Sequence[float]) -> Interval:
    """The mean of some runs with its 95 % interval.

    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0])
    Interval(mean=3.0, half=1.963...)
    """
    if len(values) < 2:
        return Interval(fmean(values), math.inf)
    return Interval(fmean(values), _student(len(values) - 1) * stdev(values) / len(values) ** 0.5)


def times(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """How many times the one is the other: the geometric mean over repetitions, and its interval.

    Repetitions have the same arrivals, and are compared one by one.

    >>> [round(value, 3) for value in times([2.0, 2.2, 1.8], [1.0, 1.1, 0.9])]
    [2.0, 2.0, 2.0]
    """
    logs = [math.log(a / b) for a, b in zip(ours, theirs, strict=False)]
    mean, half = interval(logs)
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def best_rates(found: Found) -> dict[Setting, float]:
    """Records/s of the best that gauges a setting: what loads of open loops are parts of."""
    best: dict[Setting, float] = {}
    for cell, runs in by_cell(found).items():
        if cell.kind is Kind.SATURATING and cell.policy in GAUGE:
            rate = median(figures["records_s"] for figures in runs)
            best[cell.setting] = max(rate, best.get(cell.setting, 0.0))
    return best


def by_cell(found: Found) -> dict[Cell, list[Figures]]:
    """The repetitions of every cell, cells in the order of their names."""
    cells: dict[Cell, list[Figures]] = {}
    for run, figures in found.items():
        cells.setdefault(run.cell, []).append(figures)
    return dict(sorted(cells.items(), key=lambda item: _place(item[0])))


def parts_of(found: Found, *, settings: Mapping[str, Any]) -> dict[str, Part]:
    """The experiment's parts: throughput of saturating runs, latency of open loops."""
    cells = by_cell(found)
    parts = {}
    for name, kind, rows in (
        ("saturating", Kind.SATURATING, _published),
        ("open-loop", Kind.OPEN_LOOP, _aims),
    ):
        chosen = {cell: runs for cell, runs in cells.items() if cell.kind is kind}
        if chosen:
            parts[name] = Part(
                settings={**settings, "repetitions": min(len(runs) for runs in chosen.values())},
                rows=tuple(rows(chosen)),
                figures={"cells": [_told(cell, runs) for cell, runs in chosen.items()]},
            )
    return parts


def _told(cell: Cell, runs: Sequence[Figures]) -> dict[str, Any]:
    names = ("mb_s", "records_s", *(_DELAYS if cell.kind is Kind.OPEN_LOOP else ()))
    return {
        **cell_to(cell),
        "runs": len(runs),
        **{name: interval([run[name] for run in runs]).to_json() for name in names},
        **{name: _short(fmean(run[name] for run in runs)) for name in _RATIOS},
        "by_broker": _shares(runs, "by_broker"),
        "by_partition": _shares(runs, "by_partition"),
        "late": _short(fmean(run["late"] for run in runs)),
        "failed": sum(run["failed"] for run in runs),
    }


def _shares(runs: Sequence[Figures], name: str) -> dict[str, float]:
    """Mean part of all bytes, by broker or partition."""
    totals = [sum(run[name].values()) or 1 for run in runs]
    every = sorted({one for run in runs for one in run[name]}, key=int)
    return {
        one: _short(fmean(run[name].get(one, 0) / t for run, t in zip(runs, totals, strict=True)))
        for one in every
    }


# ---------------------------------------------------------------- rows


def _published(cells: Mapping[Cell, Sequence[Figures]]) -> Iterable[Row]:
    """Throughput against Default's, beside the thesis' figures: the machines were others."""
    for topic, acks in paper.MEASURED:
        setting = Setting(topic=topic, acks=acks)
        default = cells.get(_per_record(setting, "default"))
        for policy in ("node", "sqf"):
            ours = cells.get(_per_record(setting, policy))
            if default and ours:
                gain = _mean(ours, "mb_s") / _mean(default, "mb_s") - 1
                yield beside(
                    f"% more throughput than default, {policy}, {topic} acks={acks}",
                    100 * paper.gain(topic, acks, policy),
                    100 * gain,
                )


def _aims(cells: Mapping[Cell, Sequence[Figures]]) -> Iterable[Row]:
    """Ours beside the best that people have, by p95."""
    for ours, runs in cells.items():
        if ours.policy != Policy(OURS):
            continue
        stock = {
            cell: theirs
            for cell, theirs in cells.items()
            if cell.policy.stock and (cell.setting, cell.load) == (ours.setting, ours.load)
        }
        if stock:
            best = min(stock, key=lambda cell: _mean(stock[cell], "p95_ms"))
            yield _judged(ours, runs, best.policy, stock[best])


def _judged(cell: Cell, runs: Sequence[Figures], rival: Policy, theirs: Sequence[Figures]) -> Row:
    """One row: on even brokers ours over theirs, with a bad broker theirs over ours."""
    setting = cell.setting
    p95s = [[run["p95_ms"] for run in each] for each in (runs, theirs)]
    sound = (
        min(len(runs), len(theirs)) >= _ENOUGH
        and max(_mean(runs, "late"), _mean(theirs, "late")) <= LATE_AT_MOST
    )
    even = setting.world is World.EVEN
    ratio, low, high = times(*(p95s if even else reversed(p95s)))
    where = f"{setting} at {cell.load:.0%}; best stock: {rival}; interval {low:.2f} – {high:.2f}"
    if not even:
        what = f"times lower p95 of {OURS}, {where}"
        barred = setting.world is World.SLOWED and (setting.topic, setting.acks) in _BARRED
        return at_least(what, LOWER_BAR, ratio) if barred and sound else beside(what, None, ratio)
    what = f"p95 of {OURS} over the other's, {where}"
    if not sound or setting.topic not in ("B1", "B2"):
        return beside(what, 1.0, ratio)
    if high < 1:
        verdict = Verdict.BETTER
    elif high <= MARGIN:
        verdict = Verdict.WITHIN
    elif low > 1:
        verdict = Verdict.OUTSIDE
    else:
        return beside(f"undecided: {what}", 1.0, ratio)
    return Row(what=what, published=1.0, ours=ratio, tolerance=MARGIN - 1, verdict=verdict)


def _per_record(setting: Setting, policy: str) -> Cell:
    return Cell(setting=setting, policy=Policy(policy, Granularity.PER_RECORD))


def _mean(runs: Sequence[Figures], name: str) -> float:
    return fmean(run[name] for run in runs)


def _place(cell: Cell) -> tuple[Any, ...]:
    s, p = cell.setting, cell.policy
    order: Callable[[World], int] = list(World).index
    return order(s.world), s.value_bytes, s.topic, s.acks, cell.load, not p.stock, str(p)


def _student(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def _short(value: float) -> float:
    return float(f"{value:.5g}")
