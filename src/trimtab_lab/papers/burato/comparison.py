"""Compares runs: means with intervals, and rows compared with our aims and with the thesis.

Promise  Pure. All figures of a cell are from the same samples; an interval is Student's, at 95 %,
         over repetitions, of logarithms for latencies and ratios. Losses are shown like gains.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, geometric_mean, stdev
from typing import Any, NamedTuple

from trimtab.plan.records.partitioner import Granularity
from trimtab_lab.papers.burato.design import (
    GAUGE,
    OURS,
    PLACEMENT,
    BrokerRun,
    BrokerWorld,
    BuratoCell,
    ExperimentSetting,
    PolicyName,
    RunKind,
    cell_to,
)
from trimtab_lab.papers.part import Part
from trimtab_lab.papers.published import burato as paper
from trimtab_lab.papers.verdict import RowVerdict, VerdictRow, at_least, for_information

Figures = Mapping[str, Any]
Found = Mapping[BrokerRun, Figures]

LOWER_BAR = 3.0
"""How many times lower our p95 should be when one broker is slow."""

MARGIN = 1.25
"""On even brokers, ours is no worse if the interval of the p95 ratio is below this."""

LATE_AT_MOST = 0.02
"""With a larger share sent late though the buffer had room, the client was too slow: no verdict."""

_ENOUGH = 5
_DELAYS = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "mean_ms", "max_ms")
_RATIOS = ("broker_ratio", "partition_ratio")
_BARRED = (("U2", "1"), ("U3", "all"))
_ALIKE = ("B1", "B2")


class Interval(NamedTuple):
    """A mean and half the width of its interval; infinite for a single value."""

    mean: float
    half: float

    def to_json(self) -> list[float | None]:
        """Mean, low and high; unknown ends are null."""
        return _ends(self.mean, self.mean - self.half, self.mean + self.half)


def interval(values: Sequence[float]) -> Interval:
    """The mean of several runs with its 95 % interval.

    >>> interval([1.0, 2.0, 3.0, 4.0, 5.0])
    Interval(mean=3.0, half=1.963...)
    """
    if len(values) < 2:
        return Interval(fmean(values), math.inf)
    return Interval(fmean(values), _student(len(values) - 1) * stdev(values) / len(values) ** 0.5)


def times(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The ratio ours / theirs: its geometric mean over repetitions, and the interval.

    The same repetition has the same arrivals, so ratios are taken repetition by repetition.

    >>> [round(value, 3) for value in times([2.0, 2.2, 1.8], [1.0, 1.1, 0.9])]
    [2.0, 2.0, 2.0]
    """
    return geometric([a / b for a, b in zip(ours, theirs, strict=False)])


def geometric(values: Sequence[float]) -> tuple[float, float, float]:
    """The geometric mean of several runs, and its interval: Student's, of the logarithms."""
    mean, half = interval([math.log(value) for value in values])
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


Gauged = Mapping[tuple[ExperimentSetting, PolicyName, int], float]
"""Records/s of saturating runs, by setting, policy and repetition."""


def gauge(rates: Gauged, setting: ExperimentSetting, repetition: int) -> float | None:
    """The records/s that loads of a repetition refer to: the throughput of the best gauge policy.

    The best policy is determined over all repetitions up to this one, because the maximum of a
    single repetition is often chance. None if a run is missing.
    """
    best, most = None, 0.0
    for policy in GAUGE:
        each = [rates.get((setting, policy, at)) for at in range(repetition + 1)]
        known = [rate for rate in each if rate is not None]
        if len(known) < len(each):
            return None
        if (mean := geometric_mean(known)) > most:
            best, most = known[-1], mean
    return best


def by_cell(found: Found) -> dict[BuratoCell, list[Figures]]:
    """The repetitions of every cell, with the cells sorted by name."""
    cells: dict[BuratoCell, list[Figures]] = {}
    for run, figures in found.items():
        cells.setdefault(run.cell, []).append(figures)
    return dict(sorted(cells.items(), key=lambda item: _place(item[0])))


def parts_of(found: Found, *, settings: Mapping[str, Any]) -> dict[str, Part]:
    """The experiment's parts: throughput of saturating runs, latency of open loops."""
    cells = by_cell(found)
    parts = {}
    for name, kind, rows in (
        ("saturating", RunKind.SATURATING, _published),
        ("open-loop", RunKind.OPEN_LOOP, _aims),
    ):
        chosen = {cell: runs for cell, runs in cells.items() if cell.kind is kind}
        if chosen:
            parts[name] = Part(
                settings={**settings, "repetitions": min(len(runs) for runs in chosen.values())},
                rows=tuple(rows(chosen)),
                figures={
                    "cells": [_cell_figures(cell, runs, cells) for cell, runs in chosen.items()]
                },
            )
    return parts


def _cell_figures(
    cell: BuratoCell, runs: Sequence[Figures], cells: Mapping[BuratoCell, Sequence[Figures]]
) -> dict[str, Any]:
    """The figures of a cell; `of_own` is its sending rate over its policy's own throughput."""
    delays = _DELAYS if cell.kind is RunKind.OPEN_LOOP else ()
    own = cells.get(replace(cell, load=0.0))
    return {
        **cell_to(cell),
        "runs": len(runs),
        **{name: interval([run[name] for run in runs]).to_json() for name in ("mb_s", "records_s")},
        **{name: _ends(*geometric([run[name] for run in runs])) for name in delays},
        **{name: _short(fmean(run[name] for run in runs)) for name in _RATIOS},
        "by_broker": _shares(runs, "by_broker"),
        "by_partition": _shares(runs, "by_partition"),
        "held": _short(fmean(run["held"] for run in runs)),
        "late": _short(fmean(run["late"] for run in runs)),
        "of_own": None
        if own is None
        else _short(_mean(runs, "records_s") / _mean(own, "records_s")),
        "failed": sum(run["failed"] for run in runs),
    }


def _shares(runs: Sequence[Figures], name: str) -> dict[str, float]:
    """The mean share of all bytes, by broker or partition."""
    totals = [sum(run[name].values()) or 1 for run in runs]
    every = sorted({one for run in runs for one in run[name]}, key=int)
    return {
        one: _short(fmean(run[name].get(one, 0) / t for run, t in zip(runs, totals, strict=True)))
        for one in every
    }


# ---------------------------------------------------------------- rows


def _published(cells: Mapping[BuratoCell, Sequence[Figures]]) -> Iterable[VerdictRow]:
    """Throughput compared with Default's, next to the thesis' figures from other machines."""
    for topic, acks in paper.MEASURED:
        setting = ExperimentSetting(topic=topic, acks=acks)
        default = cells.get(_per_record(setting, "default"))
        for policy in ("node", "sqf"):
            ours = cells.get(_per_record(setting, policy))
            if default and ours:
                gains = times(*([run["mb_s"] for run in each] for each in (ours, default)))
                gain, low, high = (100 * (ratio - 1) for ratio in gains)
                yield for_information(
                    f"% more throughput than default, {policy}, {setting_name(topic, acks)}; "
                    f"interval {low:.0f} to {high:.0f}",
                    gain,
                    paper=100 * paper.gain(topic, acks, policy),
                    interval=(low, high),
                )


def _aims(cells: Mapping[BuratoCell, Sequence[Figures]]) -> Iterable[VerdictRow]:
    """Our partitioner compared with the best stock partitioner, by p95."""
    for ours, runs in cells.items():
        if ours.policy != PolicyName(OURS):
            continue
        stock = {
            cell: theirs
            for cell, theirs in cells.items()
            if cell.policy.stock and (cell.setting, cell.load) == (ours.setting, ours.load)
        }
        if stock:
            best = min(stock, key=lambda cell: geometric_mean(run["p95_ms"] for run in stock[cell]))
            yield _judged(ours, runs, best.policy, stock[best])
    yield from _twice(cells)


def _twice(cells: Mapping[BuratoCell, Sequence[Figures]]) -> Iterable[VerdictRow]:
    """Compares two policies that make the same choices: the smallest detectable difference.

    Where every broker leads one partition, node chooses as default does; weighted-node as well, as
    long as all brokers have the same weight.
    """
    for default, runs in cells.items():
        node = BuratoCell(setting=default.setting, policy=PolicyName("node"), load=default.load)
        alike = default.policy == PolicyName("default") and default.setting.topic in _ALIKE
        if alike and default.setting.world is BrokerWorld.EVEN and node in cells:
            ratio, low, high = times(
                *([run["p95_ms"] for run in each] for each in (cells[node], runs))
            )
            yield for_information(
                "the same choices twice: p95 of node over default's, both per batch, "
                f"{default.setting} at {default.load:.0%}; interval {low:.2f} – {high:.2f}",
                ratio,
                bar=1.0,
            )


def _judged(
    cell: BuratoCell, runs: Sequence[Figures], rival: PolicyName, theirs: Sequence[Figures]
) -> VerdictRow:
    """One row: on even brokers ours over theirs, with a slow broker theirs over ours."""
    setting = cell.setting
    p95s = [[run["p95_ms"] for run in each] for each in (runs, theirs)]
    sound = (
        min(len(runs), len(theirs)) >= _ENOUGH
        and max(_mean(runs, "late"), _mean(theirs, "late")) <= LATE_AT_MOST
    )
    even = setting.world is BrokerWorld.EVEN
    ratio, low, high = times(*(p95s if even else reversed(p95s)))
    where = f"{setting} at {cell.load:.0%}; best stock: {rival}; interval {low:.2f} – {high:.2f}"
    if not even:
        what = f"times lower p95 of {OURS}, {where}"
        barred = setting.world is BrokerWorld.SLOWED and (setting.topic, setting.acks) in _BARRED
        return (
            at_least(what, LOWER_BAR, ratio) if barred and sound else for_information(what, ratio)
        )
    leaders = {str(replicas[0]) for replicas in PLACEMENT[setting.topic]}
    level = sum(all(run["weights"].get(b) == 1.0 for b in leaders) for run in runs)
    what = f"p95 of {OURS} over the other's, {where}; weights equal after {level} of {len(runs)}"
    if not sound or setting.topic not in _ALIKE:
        return for_information(what, ratio, bar=1.0)
    if high < 1:
        verdict = RowVerdict.BETTER
    elif high <= MARGIN:
        verdict = RowVerdict.WITHIN
    elif low > 1:
        verdict = RowVerdict.OUTSIDE
    else:
        return for_information(f"undecided: {what}", ratio, bar=1.0)
    return VerdictRow(what=what, bar=1.0, ours=ratio, tolerance=MARGIN - 1, verdict=verdict)


def setting_name(topic: str, acks: str) -> str:
    """The name of a setting of the thesis, without acks if there is only one replica.

    >>> setting_name("B1", "1"), setting_name("U2", "all")
    ('B1', 'U2 acks=all')
    """
    return topic if len(PLACEMENT[topic][0]) == 1 else f"{topic} acks={acks}"


def _per_record(setting: ExperimentSetting, policy: str) -> BuratoCell:
    return BuratoCell(setting=setting, policy=PolicyName(policy, Granularity.PER_RECORD))


def _rate(runs: Sequence[Figures]) -> float:
    return _mean(runs, "records_s")


def _mean(runs: Sequence[Figures], name: str) -> float:
    return fmean(run[name] for run in runs)


def _place(cell: BuratoCell) -> tuple[Any, ...]:
    s, p = cell.setting, cell.policy
    order: Callable[[BrokerWorld], int] = list(BrokerWorld).index
    return order(s.world), s.value_bytes, s.topic, s.acks, cell.load, not p.stock, str(p)


def _student(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.975, freedom))


def _ends(mean: float, low: float, high: float) -> list[float | None]:
    """A mean with its interval as JSON; unknown ends are null."""
    if not math.isfinite(high):
        return [_short(mean), None, None]
    return [_short(mean), _short(low), _short(high)]


def _short(value: float) -> float:
    return float(f"{value:.5g}")
